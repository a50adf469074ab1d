"""A server that answers in all the ways a load generator must tell apart; used by bench_client.sh.

    python3 _bench_mock.py FOLDER

Writes its port to FOLDER/port, and every body it gets to FOLDER/bodies, one a line.  What it does
with request i is the i-th word of FOLDER/plan (then: ok).
"""
import json
import os
import socketserver
import sys
import threading
import time

FOLDER = sys.argv[1]
LOCK = threading.Lock()
ACTS = iter(())


def next_act():
    global ACTS
    with LOCK:
        act = next(ACTS, None)
        if act is None:
            return "ok"
        return act


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(text):
    return b"data: " + text.encode() + b"\n\n"


def token(i):
    return event('{"id":"c","choices":[{"index":0,"text":"t%d ","finish_reason":null}],"usage":null}' % i)


USAGE = event('{"id":"c","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":3,"total_tokens":14,'
              '"prompt_tokens_details":{"cached_tokens":5}}}')
STREAM = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
          b"Transfer-Encoding: chunked\r\n\r\n")
WHOLE = token(0) + b": ping\n\n" + token(1) + token(2) + USAGE + event("[DONE]")


def plain(status, body, more=""):
    return (f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while self.one():
            pass

    def one(self):
        """One request; whether the connection goes on."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self.rfile.readline()
            if not line:
                return False
            head += line
        method, path, _ = head.split(b" ", 2)
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        body = self.rfile.read(length)
        if path == b"/v1/models":
            self.wfile.write(plain("200 OK", b'{"data":[{"id":"mock"}]}'))
            return True
        if path == b"/tokenize":
            n = len(json.loads(body)["prompt"].split())
            self.wfile.write(plain("200 OK", json.dumps({"tokens": [i % 40 + 7 for i in range(n)]}).encode()))
            return True
        if path == b"/detokenize":
            ids = json.loads(body)["tokens"]
            self.wfile.write(plain("200 OK", json.dumps({"prompt": " ".join(f"w{i}" for i in ids)}).encode()))
            return True
        with LOCK:
            with open(FOLDER + "/bodies", "ab") as f:
                f.write(body + b"\n")
            with open(FOLDER + "/heads", "ab") as f:
                f.write(head)
        return self.act(next_act())

    def act(self, act):
        w = self.wfile
        if act == "ok":
            w.write(STREAM + chunk(WHOLE) + b"0\r\n\r\n")
        elif act == "pieces":  # events cut anywhere
            w.write(STREAM)
            for i in range(0, len(WHOLE), 7):
                w.write(chunk(WHOLE[i:i + 7]))
                w.flush()
            w.write(b"0\r\n\r\n")
        elif act == "close":  # a stream that ends with the connection
            w.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + WHOLE)
            return False
        elif act == "503":
            w.write(plain("503 Busy", b'{"error":{"message":"full"}}', "Retry-After: 1\r\n"))
        elif act == "400":
            w.write(plain("400 Bad", b'{"error":{"message":"no"}}'))
        elif act == "drop":
            return False
        elif act == "cut":
            w.write(STREAM + chunk(token(0)))
            return False
        elif act == "nodone":
            w.write(STREAM + chunk(token(0)) + b"0\r\n\r\n")
        elif act == "error":
            w.write(STREAM + chunk(token(0) + event('{"error":{"message":"broke"}}') + event("[DONE]")) + b"0\r\n\r\n")
        elif act == "junk":
            w.write(b"220 mail ready\r\n")
            return False
        elif act == "json":
            w.write(plain("200 OK", b"{}"))
        elif act == "slow":
            w.write(STREAM + chunk(token(0)))
            w.flush()
            time.sleep(20)
            return False
        else:
            raise ValueError(act)
        return True


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


class Plan(threading.Thread):
    """Takes a new plan whenever the file appears, and removes it."""

    def run(self):
        global ACTS
        while True:
            try:
                with open(FOLDER + "/plan", encoding="ascii") as f:
                    words = f.read().split()
                with LOCK:
                    ACTS = iter(words)
                os.unlink(FOLDER + "/plan")
            except OSError:
                pass
            time.sleep(0.02)


server = Server(("127.0.0.1", 0), Handler)
with open(FOLDER + "/port.new", "w", encoding="ascii") as f:
    f.write(str(server.server_address[1]))
os.rename(FOLDER + "/port.new", FOLDER + "/port")
Plan(daemon=True).start()
server.serve_forever()
