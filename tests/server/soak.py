#!/usr/bin/env python3
"""soak.py - a server under clients that cancel, hang up, lie, dawdle and come back.

    soak.py NIBBLE SOURCE_DIR [--minutes M | --seconds S] [--seed N] [--clients C] [--keep-log FILE]

Starts `nibble serve` with the bundled model and a KV cache that is too small for the load, lets
many clients do what clients do, and then asks whether everything came back: no request running
or waiting, no block held, as many files open and threads running as before, memory flat, the
structures sound (/api/check), /health 200, and an orderly end after SIGTERM.  While it runs every
answer to a correct request is checked, and every answer to a wrong one must be an error.

Only the standard library is used.  Exit code 0: all well, 1: not, with one line per finding.
"""
import argparse
import asyncio
import ctypes
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HANG_S = 240          # an answer that takes longer counts as lost
MAX_FINDINGS = 20
WORDS = ("Once upon a time there was a small red house by the sea where a fox and a bear lived "
         "together with seven birds who sang every morning when the sun came up over the hills "
         "and they were happy until one day").split()


class Finding(Exception):
    """The server did something wrong."""


def die_with_parent():
    """In the child: a test that is killed leaves no server behind."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL) # PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        pass


class Server:
    def __init__(self, args, log):
        self.log = log
        command = [args.nibble, "serve", os.path.join(args.source, "models", "nibble-tiny"),
                   "--port", "0", "--max-num-seqs", "12", "--max-num-batched-tokens", "128",
                   "--num-gpu-blocks-override", "20", "--max-model-len", "1024",
                   "--max-num-queued-reqs", "40", "--max-num-queued-tokens", "12000",
                   "--max-connections", "200", "--max-body-bytes", "512K",
                   "--read-timeout", "2", "--idle-timeout", "3", "--write-timeout", "2",
                   "--drain-timeout", "5", "--dev-endpoints", "--scheduling-policy", "priority",
                   "--priority-age", "1",
                   "--kv-cache-dtype", "nvfp4"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=log, preexec_fn=die_with_parent)
        self.port = None
        until = time.monotonic() + 60
        while self.port is None:
            with open(log.name, encoding="utf-8", errors="replace") as f:
                match = re.search(r"listening on http://127\.0\.0\.1:(\d+)", f.read())
            if match:
                self.port = int(match.group(1))
            elif self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit("soak: the server did not start:\n" + self.tail())
            else:
                time.sleep(0.05)

    def tail(self, lines=15):
        with open(self.log.name, encoding="utf-8", errors="replace") as f:
            return "".join(f.readlines()[-lines:])

    def proc(self, name):
        return f"/proc/{self.process.pid}/{name}"

    def files(self):
        return len(os.listdir(self.proc("fd")))

    def status(self, key):
        with open(self.proc("status"), encoding="ascii") as f:
            for line in f:
                if line.startswith(key + ":"):
                    return int(line.split()[1])
        raise KeyError(key)

    def alive(self):
        return self.process.poll() is None


# ---- a small HTTP client over raw sockets ------------------------------------------------

class Link:
    """One connection."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.answers = 0

    @staticmethod
    async def open(port, receive_bytes=None):
        if receive_bytes is None:
            return Link(*await asyncio.open_connection("127.0.0.1", port))
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        s.setblocking(False)
        await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", port))
        return Link(*await asyncio.open_connection(sock=s, limit=4096))

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def head(self):
        """(status, headers) of the next answer."""
        text = await self.reader.readuntil(b"\r\n\r\n")
        lines = text.decode("latin-1").split("\r\n")
        if not re.fullmatch(r"HTTP/1\.1 \d\d\d .*", lines[0]):
            raise Finding(f"status line {lines[0]!r}")
        headers = {}
        for line in lines[1:]:
            if line:
                name, _, value = line.partition(":")
                headers[name.strip().lower()] = value.strip()
        return int(lines[0].split()[1]), headers

    async def body(self, headers, each=None):
        """All of the body; each(bytes) is called with what comes and may raise."""
        out = bytearray()

        def take(data):
            out.extend(data)
            if each:
                each(data)

        if headers.get("transfer-encoding", "").lower() == "chunked":
            while True:
                size = int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16)
                data = await self.reader.readexactly(size + 2)
                if data[size:] != b"\r\n":
                    raise Finding("a chunk without its end")
                if size == 0:
                    return bytes(out)
                take(data[:size])
        if "content-length" in headers:
            take(await self.reader.readexactly(int(headers["content-length"])))
        else:
            while data := await self.reader.read(65536):
                take(data)
        return bytes(out)

    def close(self, reset=False):
        s = self.writer.get_extra_info("socket")
        if reset and s is not None:
            try:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                pass
        try:
            self.writer.close()
        except OSError:
            pass


def request_bytes(method, path, body=None, headers=(), keep=True):
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    if not keep:
        lines.append("Connection: close")
    lines += headers
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


# ---- what is asked, and what must come back ------------------------------------------------

def text_of(rng, n):
    """Prompts share beginnings, as those of real clients do."""
    start = rng.choice((0, 0, 0, 5, 9))
    words = [WORDS[(start + i) % len(WORDS)] for i in range(n)]
    if rng.random() < 0.5:
        words.append(str(rng.randrange(1000)))
    return " ".join(words)


def events_of(body):
    for frame in body.decode().split("\n\n"):
        for line in frame.split("\n"):
            if line.startswith("data: "):
                yield line[6:]


def check_usage(usage, body):
    if usage["completion_tokens"] + usage["prompt_tokens"] != usage["total_tokens"]:
        raise Finding(f"usage {usage}")
    if usage["completion_tokens"] > body.get("max_tokens", 1 << 30) * body.get("n", 1):
        raise Finding(f"more tokens than asked for: {usage}")
    if usage["prompt_tokens_details"]["cached_tokens"] > usage["prompt_tokens"]:
        raise Finding(f"more cached than there are: {usage}")


def check_completion(answer, body):
    if not body.get("stream"):
        doc = json.loads(answer)
        if len(doc["choices"]) != body.get("n", 1):
            raise Finding(f"{len(doc['choices'])} choices, expected {body.get('n', 1)}")
        for choice in doc["choices"]:
            if choice["finish_reason"] not in ("stop", "length"):
                raise Finding(f"finish_reason {choice['finish_reason']!r}")
        check_usage(doc["usage"], body)
        return
    ended, usage, last = set(), None, None
    for data in events_of(answer):
        last = data
        if data == "[DONE]":
            continue
        doc = json.loads(data)
        if "error" in doc:
            raise Finding(f"an error in the stream: {data}")
        for choice in doc["choices"]:
            if choice["finish_reason"]:
                ended.add(choice["index"])
        usage = doc.get("usage") or usage
    if last != "[DONE]":
        raise Finding("a stream without [DONE]")
    if ended != set(range(body.get("n", 1))):
        raise Finding(f"choices {sorted(ended)} have ended, of {body.get('n', 1)}")
    if body.get("stream_options", {}).get("include_usage"):
        check_usage(usage, body)


def check_message(answer, body):
    if not body.get("stream"):
        if json.loads(answer)["stop_reason"] not in ("end_turn", "max_tokens", "stop_sequence"):
            raise Finding("stop_reason of a message")
        return
    kinds = re.findall(rb"^event: (\S+)", answer, re.M)
    if not kinds or kinds[0] != b"message_start" or kinds[-1] != b"message_stop":
        raise Finding(f"events of a message: {kinds[:2]} ... {kinds[-2:]}")


class Soak:
    def __init__(self, server, rng, until):
        self.server, self.rng, self.until = server, rng, until
        self.findings, self.counts = [], {}

    def found(self, text):
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(text)
            print(f"soak: {text}", flush=True)

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- requests that are correct

    def completion(self):
        rng = self.rng
        body = {"prompt": text_of(rng, rng.choice((1, 3, 10, 40, 120, 400))),
                "max_tokens": rng.choice((1, 2, 5, 16, 40, 160)),
                "temperature": rng.choice((0, 0.7, 1)), "seed": rng.randrange(5)}
        if rng.random() < 0.6:
            body["stream"] = True
            if rng.random() < 0.7:
                body["stream_options"] = {"include_usage": True}
        if rng.random() < 0.2:
            body["n"] = rng.choice((2, 3, 5))
        if rng.random() < 0.2:
            body["logprobs"] = rng.choice((0, 1, 5))
        if rng.random() < 0.1:
            body["stop"] = rng.choice((["."], [" the", "sea"], "and"))
        if rng.random() < 0.3:
            body["ignore_eos"] = True
        if rng.random() < 0.2:
            body["cache_salt"] = rng.choice("ab")
        if rng.random() < 0.3:
            body["priority"] = rng.choice((-1, 0, 1, 5))
        if rng.random() < 0.05:
            body["echo"] = True
        if rng.random() < 0.1:
            body["prompt"] = [rng.randrange(300, 4000) for _ in range(rng.choice((1, 64, 200, 700)))]
        return "/v1/completions", body, check_completion

    def chat(self):
        path, body, check = self.completion()
        if not isinstance(body["prompt"], str):
            body["prompt"] = "tell me a story"
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
        body.pop("echo", None)
        if "logprobs" in body:
            body["top_logprobs"] = body["logprobs"]
            body["logprobs"] = True
        return "/v1/chat/completions", body, check

    def message(self):
        rng = self.rng
        body = {"model": "nibble-tiny", "max_tokens": rng.choice((1, 8, 30)),
                "messages": [{"role": "user", "content": text_of(rng, 12)}]}
        if rng.random() < 0.5:
            body["stream"] = True
        return "/v1/messages", body, check_message

    def small(self):
        rng = self.rng
        text = text_of(rng, 8)
        say = [{"role": "user", "content": text}]
        method, path, body = rng.choice((
            ("GET", "/v1/models", None), ("GET", "/health", None), ("GET", "/metrics", None),
            ("GET", "/load", None), ("GET", "/version", None), ("GET", "/ping", None),
            ("POST", "/tokenize", {"prompt": text}), ("POST", "/detokenize", {"tokens": [400, 401, 402]}),
            ("POST", "/v1/chat/completions/render", {"messages": say}),
            ("POST", "/v1/completions/render", {"prompt": text}),
            ("POST", "/v1/messages/count_tokens", {"model": "nibble-tiny", "messages": say}),
            ("POST", "/reset_prefix_cache", None), ("GET", "/api/check", None), ("GET", "/", None)))
        return method, path, body

    def request(self):
        return self.rng.choices((self.completion, self.chat, self.message), (6, 3, 1))[0]()

    async def exchange(self, link, path, body, check):
        """A whole correct exchange."""
        await link.send(request_bytes("POST", path, body))
        status, headers = await link.head()
        answer = await link.body(headers)
        self.count(f"{path} {status}")
        if status == 503:
            if "retry-after" not in headers:
                raise Finding(f"{path}: 503 without Retry-After")
            json.loads(answer)["error"]
            await asyncio.sleep(self.rng.random()) # as a client does that obeys it
        elif status != 200:
            raise Finding(f"{path}: {status} {answer[:300]!r} for {json.dumps(body)[:300]}")
        else:
            check(answer, body)
        return headers.get("connection", "").lower() != "close"

    # -- clients

    async def polite(self):
        """Some requests on one connection."""
        link = await Link.open(self.server.port)
        try:
            for _ in range(self.rng.choice((1, 1, 2, 4))):
                if not await self.exchange(link, *self.request()):
                    break
        finally:
            link.close()

    async def curious(self):
        """Requests of the other endpoints."""
        link = await Link.open(self.server.port)
        try:
            for _ in range(self.rng.choice((1, 3))):
                method, path, body = self.small()
                await link.send(request_bytes(method, path, body))
                status, headers = await link.head()
                answer = await link.body(headers)
                self.count(f"{path} {status}")
                busy = path in ("/reset_prefix_cache", "/api/check")
                if status != 200 and not (busy and status == 503):
                    raise Finding(f"{method} {path}: {status} {answer[:300]!r}")
                if headers.get("connection", "").lower() == "close":
                    break
        finally:
            link.close()

    async def leaving(self):
        """Sends a request and goes, at a random moment and in one of several ways."""
        rng = self.rng
        path, body, _ = self.request()
        link = await Link.open(self.server.port)
        try:
            data = request_bytes("POST", path, body)
            if rng.random() < 0.2:
                data = data[:rng.randrange(len(data))]
            await link.send(data)
            way = rng.random()
            if way < 0.3:
                pass
            elif way < 0.7:
                await asyncio.sleep(rng.random() ** 2 * 1.5)
            else:
                left = rng.randrange(1, 4000)
                try:
                    while left > 0:
                        got = await asyncio.wait_for(link.reader.read(min(left, 700)), 10)
                        if not got:
                            break
                        left -= len(got)
                except asyncio.TimeoutError:
                    pass
            self.count("left")
        finally:
            link.close(reset=rng.random() < 0.4)

    async def slow_writer(self):
        """A request in pieces; --read-timeout is 2 seconds, so a late one gets 408 or is cut off."""
        rng = self.rng
        path, body, check = self.request()
        data = request_bytes("POST", path, body)
        link = await Link.open(self.server.port)
        pause = rng.choice((0.001, 0.01, 0.3))
        step = max(1, len(data) // rng.choice((3, 10, 30)))
        begin = time.monotonic()
        sent = None
        try:
            for at in range(0, len(data), step):
                await link.send(data[at:at + step])
                await asyncio.sleep(pause)
            sent = time.monotonic() - begin
            status, headers = await link.head()
            answer = await link.body(headers)
            self.count(f"slow writer {status}")
            if status == 200:
                check(answer, body)
            elif status != 503 and not (sent > 1.5 and status == 408):
                raise Finding(f"slow writer: {status} {answer[:200]!r} after {sent:.2f} s")
        except (ConnectionError, asyncio.IncompleteReadError) as e:
            took = sent or time.monotonic() - begin
            if took < 1.5:
                raise Finding(f"cut off after {took:.2f} s: {e!r}") from None
            self.count("slow writer cut off")
        finally:
            link.close()

    async def slow_reader(self):
        """A stream that is longer than socket buffers, read late or never."""
        rng = self.rng
        body = {"prompt": text_of(rng, 5), "max_tokens": 150, "ignore_eos": True, "stream": True,
                "logprobs": 5, "n": 2}
        link = await Link.open(self.server.port, receive_bytes=2048)
        try:
            await link.send(request_bytes("POST", "/v1/completions", body))
            link.writer.transport.pause_reading()
            await asyncio.sleep(rng.choice((0.5, 2, 6)))
            link.writer.transport.resume_reading()
            for _ in range(rng.choice((0, 10, 60))):
                if not await asyncio.wait_for(link.reader.read(1000), HANG_S):
                    break
                await asyncio.sleep(0.02)
            self.count("slow reader")
        except (ConnectionError, asyncio.TimeoutError):
            self.count("slow reader cut off")
        finally:
            link.close(reset=rng.random() < 0.3)

    async def dozing(self):
        """Connects and says nothing, or half of something."""
        link = await Link.open(self.server.port)
        try:
            if self.rng.random() < 0.5:
                await link.send(b"POST /v1/completions HTTP/1.1\r\nHost:")
            await asyncio.wait_for(link.reader.read(1000), self.rng.choice((0.2, 1, 5)))
        except (ConnectionError, asyncio.TimeoutError):
            pass
        finally:
            link.close()
        self.count("dozed")

    def wrong(self):
        """Bytes that must be answered with 4xx (or 501, 505), or by hanging up."""
        rng = self.rng
        good = request_bytes("POST", "/v1/completions", self.completion()[1])
        post = "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        kind = rng.randrange(16)
        if kind == 0:
            return rng.randbytes(rng.randrange(1, 4000)) + b"\r\n\r\n"
        if kind == 1: # one byte of the head is another
            at = rng.randrange(good.index(b" HTTP/1.1"))
            return good[:at] + b"\x01" + good[at + 1:]
        if kind == 2:
            return b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"
        if kind == 3:
            return b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"X-A: b\r\n" * 6000 + b"\r\n"
        if kind == 4:
            n = rng.choice(("-1", "99999999999999999999", "1e3", "0x10", "", "5, 6"))
            return (post + f"Content-Length: {n}\r\n\r\n").encode()
        if kind == 5:
            return (post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").encode()
        if kind == 6:
            size = rng.choice(("zz", "-1", "fffffffffffffffff", ""))
            return (post + f"Transfer-Encoding: chunked\r\n\r\n{size}\r\n{{}}\r\n0\r\n\r\n").encode()
        if kind == 7:
            return request_bytes("POST", "/v1/completions", b"[" * rng.choice((10, 3000, 100000)))
        if kind == 8:
            return request_bytes("POST", "/v1/completions", rng.choice((
                b"", b"null", b"{}", b'{"prompt":1}', b'{"prompt":"\xff\xfe"}', b'{"prompt":"a"',
                b'{"prompt":[999999999]}', b'{"prompt":"a","max_tokens":-1}', b'{"prompt":[]}',
                b'{"prompt":"a","temperature":"hot"}', b'{"prompt":"a","n":100000}',
                b'{"prompt":"a","model":"no-such"}', b'{"prompt":"a","top_p":7}')))
        if kind == 9:
            return request_bytes("POST", "/v1/chat/completions", rng.choice((
                b'{"messages":[]}', b'{"messages":"a"}', b'{"messages":[{"role":"user"}]}',
                b'{"messages":[{"role":"user","content":"a"}],"top_logprobs":3}',
                b'{"messages":[{"role":"user","content":"a"}],"stream_options":{}}')))
        if kind == 10:
            return request_bytes(rng.choice(("GET", "DELETE", "PATCH")), "/v1/completions", b"{}")
        if kind == 11:
            return request_bytes("POST", rng.choice(("/nothing", "/../etc/passwd", "/%00", "//")), b"{}")
        if kind == 12:
            return good.replace(b"application/json", b"text/plain")
        if kind == 13:
            return (post + "Content-Length: 600000\r\n\r\n").encode() + b"a" * 600000
        if kind == 14:
            return good.replace(b"HTTP/1.1", rng.choice((b"HTTP/2.0", b"HTTP/3.1", b"JUNK/1.1", b"")))
        return request_bytes("POST", "/v1/completions", {"prompt": "a " * 6000, "max_tokens": 4})

    async def liar(self):
        data = self.wrong()
        link = await Link.open(self.server.port)
        try:
            try:
                await link.send(data)
            except ConnectionError:
                pass
            if self.rng.random() < 0.2:
                return
            status, _ = await asyncio.wait_for(link.head(), 30)
            self.count(f"wrong bytes {status}")
            if not (400 <= status < 500 or status in (501, 503, 505)):
                raise Finding(f"wrong bytes: status {status} for {data[:160]!r}")
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            self.count("wrong bytes cut off")
        except asyncio.TimeoutError:
            raise Finding(f"wrong bytes: neither answer nor end within 30 s: {data[:160]!r}") from None
        finally:
            link.close()

    # -- the run

    async def client(self):
        kinds = (self.polite, self.leaving, self.curious, self.liar, self.slow_writer,
                 self.slow_reader, self.dozing)
        weights = (30, 30, 12, 14, 5, 4, 5)
        while time.monotonic() < self.until and self.server.alive() and \
                len(self.findings) < MAX_FINDINGS:
            act = self.rng.choices(kinds, weights)[0]
            try:
                await asyncio.wait_for(act(), HANG_S)
            except Finding as e:
                self.found(f"{act.__name__}: {e}")
            except asyncio.TimeoutError:
                self.found(f"{act.__name__}: no end within {HANG_S} s")
            except (ConnectionError, asyncio.IncompleteReadError) as e:
                self.found(f"{act.__name__}: the connection broke: {e!r}")
            except (ValueError, KeyError, IndexError, TypeError) as e:
                self.found(f"{act.__name__}: an answer that is not as it should be: {e!r}")
            await asyncio.sleep(self.rng.random() * 0.05)

    async def run(self, n_clients):
        memory = []

        async def watch():
            while time.monotonic() < self.until and self.server.alive():
                memory.append(self.server.status("VmRSS"))
                await asyncio.sleep(1)

        await asyncio.gather(watch(), *(self.client() for _ in range(n_clients)))
        return memory


# ---- afterwards ----------------------------------------------------------------------------

async def get(port, path, method="GET"):
    link = await Link.open(port)
    try:
        await link.send(request_bytes(method, path, keep=False))
        status, headers = await link.head()
        return status, (await link.body(headers)).decode()
    finally:
        link.close()


def metric(text, name, label=""):
    total = 0.0
    for line in text.split("\n"):
        if line.startswith((name + "{", name + " ")) and label in line:
            total += float(line.rsplit(" ", 1)[1])
    return total


async def settled(server):
    """What is still in use, once nothing should be; "" when nothing is."""
    left = ""
    for _ in range(100):
        _, text = await get(server.port, "/metrics")
        left = ", ".join(f"{what} {n:g}" for what, n in (
            ("running", metric(text, "vllm:num_requests_running")),
            ("waiting", metric(text, "vllm:num_requests_waiting")),
            ("bytes of held blocks", metric(text, "nibble:kv_pool_bytes", 'use="held"')),
            ("other connections", metric(text, "nibble:http_connections") - 1),
            ("other requests", metric(text, "nibble:http_requests_in_flight") - 1)) if n > 0)
        if not left:
            return ""
        await asyncio.sleep(0.1)
    return left


async def baseline(server):
    """Every kind of request once, so that what is allocated once is there."""
    for path in ("/health", "/metrics", "/v1/models", "/api/check", "/"):
        await get(server.port, path)
    for stream in (False, True):
        body = {"prompt": "Once", "max_tokens": 4, "stream": stream}
        link = await Link.open(server.port)
        await link.send(request_bytes("POST", "/v1/completions", body, keep=False))
        _, headers = await link.head()
        await link.body(headers)
        link.close()
    await settled(server)
    return server.files(), server.status("Threads")


def check_memory(memory, soak, sanitized):
    """Resident memory of the last third against that of the first third after the first seconds."""
    if sanitized or len(memory) < 9:
        return
    third = len(memory) // 3
    early, late = max(memory[:third]), max(memory[-third:])
    print(f"soak: resident memory {early} KiB at most in the first third, {late} KiB in the last")
    if late > early + max(16384, early // 8):
        soak.found(f"memory grew from {early} to {late} KiB")


async def examine(server, soak, files, threads):
    left = await settled(server)
    if left:
        soak.found(f"still in use at the end: {left}")
    for path in ("/health", "/api/check"):
        status, text = await get(server.port, path)
        if status != 200:
            soak.found(f"{path}: {status} {text[:300]}")
    status, text = await get(server.port, "/reset_prefix_cache", "POST")
    if status != 200:
        soak.found(f"/reset_prefix_cache: {status} {text[:300]}")
    _, text = await get(server.port, "/metrics")
    cached = metric(text, "nibble:kv_pool_bytes", "cached_")
    if cached:
        soak.found(f"{cached:g} bytes of cached blocks after a reset")
    for _ in range(50): # the last connections are closed a moment later
        if server.files() <= files and server.status("Threads") <= threads:
            break
        await asyncio.sleep(0.1)
    for what, before, after in (("files", files, server.files()),
                                ("threads", threads, server.status("Threads"))):
        if after > before:
            soak.found(f"{after} {what} open at the end, {before} at the begin")
    return {"preemptions": metric(text, "vllm:num_preemptions_total"),
            "evictions": metric(text, "nibble:kv_evictions_total"),
            "cached tokens": metric(text, "vllm:prompt_tokens_cached_total"),
            "generated tokens": metric(text, "vllm:generation_tokens_total")}


def stop(server, soak):
    if not server.alive():
        soak.found(f"the server ended by itself with {server.process.returncode}:\n{server.tail()}")
        return
    server.process.send_signal(signal.SIGTERM)
    try:
        code = server.process.wait(30)
    except subprocess.TimeoutExpired:
        server.process.kill()
        soak.found("SIGTERM did not end the server within 30 s")
        return
    if code != 0:
        soak.found(f"exit code {code} after SIGTERM:\n{server.tail()}")


async def work(server, args):
    files, threads = await baseline(server)
    soak = Soak(server, random.Random(args.seed), time.monotonic() + args.seconds)
    memory = await soak.run(args.clients)
    figures = {}
    if server.alive():
        figures = await examine(server, soak, files, threads)
    check_memory(memory, soak, os.environ.get("NB_SANITIZE"))
    for what, n in sorted(soak.counts.items()):
        print(f"  {n:7d}  {what}")
    for what, n in figures.items():
        print(f"  {n:7.0f}  {what}")
    if not soak.counts or not any(k.endswith("completions 200") for k in soak.counts):
        soak.found("no completion was answered: this has tested nothing")
    return soak


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("nibble")
    parser.add_argument("source")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--keep-log")
    args = parser.parse_args()
    if os.environ.get("NB_SANITIZE"): # the same, but so much slower that fewer clients are as many
        args.clients = min(args.clients, 12)
    if args.minutes:
        args.seconds = args.minutes * 60
    if not os.path.exists("/proc/self/fd"):
        print("soak: skipped: no /proc")
        return 77
    with (open(args.keep_log, "w+", encoding="utf-8") if args.keep_log
          else tempfile.NamedTemporaryFile("w+", suffix=".log")) as log:
        server = Server(args, log)
        try:
            soak = asyncio.run(work(server, args))
            stop(server, soak)
        finally:
            if server.alive():
                server.process.kill()
                server.process.wait()
    print(f"soak: {args.seconds:g} s, {args.clients} clients, {sum(soak.counts.values())} exchanges, "
          f"{len(soak.findings)} findings")
    return 1 if soak.findings else 0


if __name__ == "__main__":
    sys.exit(main())
