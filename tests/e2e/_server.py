"""What the tests of `nibble serve` as a process share: a server, and how it is asked.

The scripts that import it are called as python3 SCRIPT NIBBLE MODEL FOLDER [TEST...].
"""
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

NIBBLE, MODEL, TMP = sys.argv[1:4]
WAIT = 120  # seconds for what takes one; nothing is measured


class Server:
    def __init__(self, *args, env=None, preexec=None, small=True):
        self.log = []
        self.listening = threading.Event()
        environment = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
        environment.update(env or {})
        command = [NIBBLE, "serve", *args]
        if small:
            command += ["--kv-cache-memory-bytes", "16M", "--kv-cache-dtype", "nvfp4"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=environment,
                                        preexec_fn=preexec)
        self.thread = threading.Thread(target=self.read_log, daemon=True)
        self.thread.start()

    def __enter__(self):
        deadline = time.monotonic() + WAIT
        while not self.listening.wait(0.05):
            assert self.process.poll() is None, f"it ended: {self.text()}"
            assert time.monotonic() < deadline, f"it does not listen: {self.text()}"
        match = re.search(r"listening on https?://([^/\"]*):(\d+)/", self.text())
        self.host, self.port = match.groups() if match else (None, None)
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if error[0]:
            print(self.text(), file=sys.stderr)

    def read_log(self):
        for line in self.process.stderr:
            self.log.append(line)
            if "listening on" in line:
                self.listening.set()

    def text(self):
        return "".join(self.log)

    def connect(self):
        return http.client.HTTPConnection(self.host, int(self.port), timeout=WAIT)

    def stop(self, sig=signal.SIGTERM):
        """Ends it; its exit code."""
        self.process.send_signal(sig)
        return self.end()

    def end(self):
        code = self.process.wait(WAIT)
        self.thread.join(WAIT)
        assert self.process.stdout.read() == "", "something on standard output"
        return code


def ask(connection, path, body=None, **headers):
    """Status and body; JSON is parsed."""
    data = None if body is None else json.dumps(body)
    headers = {k.replace("_", "-"): v for k, v in headers.items()}
    if data is not None:
        headers["Content-Type"] = "application/json"
    connection.request("GET" if data is None else "POST", path, data, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    is_json = (answer.getheader("Content-Type") or "").startswith("application/json")
    return answer.status, json.loads(text) if is_json else text


def complete(connection, prompt="Once upon a time", max_tokens=16, **more):
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **more}
    status, answer = ask(connection, "/v1/completions", body)
    assert status == 200, answer
    return answer


def metrics(connection):
    status, text = ask(connection, "/metrics")
    assert status == 200
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
            for line in text.splitlines() if line and line[0] != "#"}


def stream(server, max_tokens):
    """A streamed answer whose first chunk has come."""
    connection = server.connect()
    body = {"prompt": "Once", "max_tokens": max_tokens, "stream": True, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.readline().startswith(b"data: {")
    return answer


def break_under_load(server, act, *words):
    """Four streams run when act() breaks the engine: each ends with 503, and with all of the words."""
    ends, threads = [], []

    def reader(answer):
        with contextlib.suppress(http.client.HTTPException):
            ends.append(answer.read().decode())

    for _ in range(4):
        threads.append(threading.Thread(target=reader, args=(stream(server, 3000),)))
        threads[-1].start()
    act()
    for t in threads:
        t.join(WAIT)
    assert len(ends) == 4, server.text()
    for text in ends:
        last = text.strip().split("\n\n")[-2:]
        assert '"code":503' in last[0] and last[1] == "data: [DONE]", last
        assert all(word in last[0] for word in words), last


def expect_failed(server, *words):
    """Every request gets 503 with the reason; the process lives until it is told to end, and fails."""
    for path, body in (("/health", None), ("/v1/completions", {"prompt": "Once"}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})):
        status, answer = ask(server.connect(), path, body)
        assert status == 503, (path, status, answer)
        message = answer["error"]["message"]
        assert all(word in message for word in words), answer
        assert message.count("engine has failed") == 1, answer
    assert ask(server.connect(), "/metrics")[0] == 200
    assert server.process.poll() is None
    assert server.stop() == 1, server.text()
    lines = [line for line in server.log if " ERROR engine " in line]
    assert len(lines) == 1 and all(word in lines[0] for word in words), server.text()
    return lines[0]


def run_tests(tests):
    """Those of a script's globals() that are named on the command line, or all."""
    for name in sys.argv[4:] or [n for n in tests if n.startswith("test_")]:
        print(name, flush=True)
        tests[name]()
