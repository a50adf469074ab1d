"""_fake_hub.py - a hub for the tests of `nibble pull`: the API, the files, and a second server as its content
delivery network.  Both misbehave as a test asks for.

What a request does wrong is a queue per address: hub.faults["resolve:config.json"] = [status(500), truncate(10)].
The addresses: "info", "tree", "resolve:PATH", "cdn:SHA256".  A fault is used once, unless it is `always`.
"""
import collections
import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


Fault = collections.namedtuple("Fault", "kind args always")


def status(code, headers=None, always=False):
    return Fault("status", (code, headers or {}), always)


def truncate(n, always=False):
    """Says the whole length and closes the connection after n bytes."""
    return Fault("truncate", (n,), always)


def corrupt(always=False):
    return Fault("corrupt", (), always)


def body(data, headers=None, always=False):
    return Fault("body", (data, headers or {}), always)


def no_range(always=True):
    return Fault("no_range", (), always)


def slow(bytes_per_s, always=True):
    return Fault("slow", (bytes_per_s,), always)


def endless(always=False):
    """No length is given, and the content comes again and again."""
    return Fault("endless", (), always)


def redirect(url, code=302, always=True):
    return Fault("redirect", (url, code), always)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    tls = None

    def __init__(self, hub):
        self.hub = hub
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        pass # a client that leaves


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16 # headers and body in one packet

    def log_message(self, *args):
        pass

    def do_GET(self):
        hub, name, data, etag = self.server.hub, None, None, None
        url = urllib.parse.urlsplit(self.path)
        if url.scheme: # a proxy's request
            hub.log.append(("proxy", self.path, dict(self.headers)))
        path = urllib.parse.unquote(url.path)
        headers = {}
        if self.server is hub.cdn:
            name = "cdn:" + path.rsplit("/", 1)[1]
            data = hub.blobs.get(path.rsplit("/", 1)[1])
            etag = "cdn-" + path.rsplit("/", 1)[1][:8]
        elif path.startswith(f"/api/models/{hub.id}/revision/"):
            name = "info"
            revision = path.split("/revision/", 1)[1]
            data = json.dumps(hub.info).encode() if revision in hub.revisions else None
            if data is None:
                headers = {"X-Error-Code": "RevisionNotFound"}
        elif path.startswith(f"/api/models/{hub.id}/tree/"):
            name = "tree"
            data, headers = hub.page(urllib.parse.parse_qs(url.query))
        elif path.startswith(f"/{hub.id}/resolve/{hub.commit}/"):
            name = "resolve:" + path.split("/resolve/" + hub.commit + "/", 1)[1]
            data, etag, where = hub.resolve(name.split(":", 1)[1])
            if where:
                headers = where
        hub.log.append((name, self.path, dict(self.headers)))
        if data is None and not headers.get("Location"):
            headers.setdefault("X-Error-Code", "RepoNotFound")
            self.answer(404, b"{}", headers)
        elif not self.misbehave(hub.fault(name), data, etag, headers):
            self.send(data, etag, headers)

    def misbehave(self, fault, data, etag, headers):
        """True: the answer was given."""
        kind, args = (fault.kind, fault.args) if fault else (None, ())
        if kind == "status":
            self.answer(args[0], b'{"error": "as asked"}', args[1])
        elif kind == "redirect":
            self.answer(args[1], b"", {"Location": args[0]})
        elif kind == "body":
            self.answer(200, args[0], {**headers, **args[1]})
        elif kind == "corrupt":
            self.send(bytes([data[0] ^ 1]) + data[1:], etag, headers)
        elif kind == "truncate":
            self.send(data, etag, headers, cut=args[0])
        elif kind == "partial": # a part with these headers
            self.answer(206, args[0], args[1])
        elif kind == "endless":
            self.close_connection = True
            self.send_response(200)
            self.end_headers()
            for _ in range(50):
                self.wfile.write(data)
        elif kind == "status_body":
            self.answer(args[0], args[1], {})
        elif kind == "stall": # some bytes, then silence
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:args[0]])
            self.wfile.flush()
            time.sleep(args[1])
        elif kind == "no_range":
            self.send(data, etag, headers, ranges=False)
        elif kind == "slow":
            self.send(data, etag, headers, rate=args[0])
        else:
            return False
        return True

    def answer(self, code, data, headers):
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key, value() if callable(value) else value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def send(self, data, etag, headers, cut=None, ranges=True, rate=None):
        if headers.get("Location"):
            self.answer(302, b"", headers)
            return
        code, begin = 200, 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        current = self.headers.get("If-Range", f'"{etag}"') == f'"{etag}"'
        if asked and ranges and current:
            code, begin = 206, int(asked.group(1))
            if begin >= len(data):
                self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            headers = {**headers, "Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"}
        if etag:
            headers = {**headers, "ETag": f'"{etag}"'}
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key, value)
        rest, sent = data[begin:], self.server.hub.sent # of this request, also after a reset
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        end = len(rest) if cut is None else min(cut, len(rest))
        step = max(1, rate // 20) if rate else 1 << 16
        for at in range(0, end, step):
            part = rest[at:min(at + step, end)]
            self.wfile.write(part)
            self.wfile.flush()
            with self.server.hub.lock:
                sent[self.path.split("?")[0].rsplit("/", 1)[1]] += len(part)
            if rate:
                time.sleep(0.05)
        if cut is not None:
            self.close_connection = True


class FakeHub:
    """A repository `id` with files {path: bytes}; those over `lfs_bytes` are stored on the second server."""

    def __init__(self, files, id="nibble-project/nibble-tiny", lfs_bytes=20000, commit=COMMIT, page_size=3,
                 tls=None, cdn_tls=None):
        self.id, self.commit, self.files, self.lfs_bytes, self.page_size = id, commit, files, lfs_bytes, page_size
        self.lock = threading.Lock()
        self.revisions = {"main", commit}
        self.info = {"id": id, "sha": commit, "siblings": [{"rfilename": p} for p in sorted(files)]}
        self.entries = None # instead of those of files
        self.reset()
        self.main, self.cdn = Server(self), Server(self)
        for server, context in ((self.main, tls), (self.cdn, cdn_tls)):
            if context:
                server.socket = context.wrap_socket(server.socket, server_side=True)
                server.tls = context
        self.blobs = {hashlib.sha256(d).hexdigest(): d for d in files.values()}

    def reset(self):
        self.faults, self.log, self.sent = {}, [], collections.Counter()

    def close(self):
        for server in (self.main, self.cdn):
            server.shutdown()
            server.server_close()

    @property
    def url(self):
        return self.main.url

    def is_lfs(self, data):
        return len(data) > self.lfs_bytes

    def blob(self, path):
        """The name of a file's blob."""
        data = self.files[path]
        return hashlib.sha256(data).hexdigest() if self.is_lfs(data) else git_sha1(data)

    def entry(self, path):
        data = self.files[path]
        e = {"type": "file", "oid": git_sha1(data), "size": len(data), "path": path}
        if self.is_lfs(data):
            e["lfs"] = {"oid": self.blob(path), "size": len(data), "pointerSize": 134}
            e["xetHash"] = hashlib.sha256(b"xet" + data).hexdigest()
        return e

    def page(self, query):
        folders = sorted({p.rsplit("/", 1)[0] for p in self.files if "/" in p})
        entries = self.entries
        if entries is None:
            entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": f} for f in folders]
            entries += [self.entry(p) for p in sorted(self.files)]
        begin = int(query.get("cursor", ["0"])[0])
        end = begin + self.page_size
        headers = {}
        if end < len(entries):
            headers["Link"] = f'<{self.main.url}/api/models/{self.id}/tree/{self.commit}?recursive=true&cursor={end}>; rel="next"'
        return json.dumps(entries[begin:end]).encode(), headers

    def resolve(self, path):
        data = self.files.get(path)
        if data is None or not self.is_lfs(data):
            return data, git_sha1(data) if data is not None else None, None
        sha = self.blob(path)
        return b"", None, {"Location": f"{self.cdn.url}/blob/{sha}?Signature=x&Expires=1", "X-Linked-Size": str(len(data)),
                           "X-Linked-ETag": f'"{sha}"', "X-Repo-Commit": self.commit}

    def fault(self, name):
        with self.lock:
            queue = self.faults.get(name) or []
            if not queue:
                return None
            return queue[0] if queue[0].always else queue.pop(0)

    def count(self, name):
        return sum(1 for n, _, _ in self.log if n == name)
