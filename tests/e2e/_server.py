"""What the tests of `nibble serve` as a process share: a server, and how it is asked.

The scripts that import it are called as python3 SCRIPT NIBBLE MODEL FOLDER [TEST...].
"""
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


def run_tests(tests):
    """Those of a script's globals() that are named on the command line, or all."""
    for name in sys.argv[4:] or [n for n in tests if n.startswith("test_")]:
        print(name, flush=True)
        tests[name]()
