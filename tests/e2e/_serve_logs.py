"""The log of a server under faults; called by serve_logs.sh.

    python3 _serve_logs.py NIBBLE MODEL FOLDER
"""
import contextlib
import fcntl
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import time

from _server import MODEL, NIBBLE, TMP, WAIT, Server, ask, complete, metrics, run_tests

F_SETPIPE_SZ = 1031
DROPPED = "nibble:log_lines_dropped_total"


def dropped(connection):
    return [v for k, v in metrics(connection).items() if k.startswith(DROPPED)][0]


class Unread:
    """A server whose log is a pipe of 4 KiB that this program reads when it wants to."""

    def __init__(self, *args):
        self.read_fd, write_fd = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(write_fd, F_SETPIPE_SZ, 4096)
        self.process = subprocess.Popen(
            [NIBBLE, "serve", MODEL, "--port", "0", "--kv-cache-memory-bytes", "16M",
             "--kv-cache-dtype", "nvfp4", *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=write_fd)
        os.close(write_fd)
        self.text = ""
        match = None
        while not match:
            self.read_some()
            match = re.search(r"listening on http://127.0.0.1:(\d+)/", self.text)
        self.connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=WAIT)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def read_some(self):
        assert select.select([self.read_fd], [], [], WAIT)[0], self.text
        piece = os.read(self.read_fd, 1 << 16).decode()
        assert piece, f"it ended: {self.text}"
        self.text += piece

    def refused(self, n):
        """n requests with a line in the log each."""
        for _ in range(n):
            assert ask(self.connection, "/nowhere", {})[0] == 404

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WAIT) == 0


def test_stopped_reader():
    with Unread() as s:
        s.refused(200)  # far more than the pipe takes
        assert complete(s.connection)["usage"]["completion_tokens"] == 16
        s.end()
    with Unread() as s:
        s.refused(6000)
        while not dropped(s.connection):
            s.refused(1000)
        n = dropped(s.connection)
        s.text = ""
        while "log lines dropped" not in s.text:
            s.read_some()
        assert int(re.search(r"(\d+) log lines dropped", s.text)[1]) >= n, n
        s.text = ""
        s.refused(1)
        status, _ = ask(s.connection, "/last", {})
        while "path=/last" not in s.text:
            s.read_some()
        assert status == 404
        s.end()


def test_reader_gone():
    with Unread() as s:
        os.close(s.read_fd)
        s.refused(10)
        assert complete(s.connection)["usage"]["completion_tokens"] == 16
        assert dropped(s.connection) > 0
        s.end()


def test_full_disk():
    if not os.access("/dev/full", os.W_OK):
        print("no /dev/full: a full disk is not tried")
        return
    path = os.path.join(TMP, "socket")
    with open(os.devnull, "w", encoding="utf-8") as null:
        p = subprocess.Popen([NIBBLE, "serve", MODEL, "--uds", path, "--kv-cache-memory-bytes",
                              "64M", "--log-file", "/dev/full"], stderr=null, stdout=null)
    try:
        until(p, lambda: os.path.exists(path))
        c = http.client.HTTPConnection("localhost", timeout=WAIT)
        c.sock = socket.socket(socket.AF_UNIX)
        c.sock.connect(path)
        assert ask(c, "/nowhere", {})[0] == 404
        assert complete(c)["usage"]["completion_tokens"] == 16
        assert dropped(c) > 0
        p.send_signal(signal.SIGTERM)
        assert p.wait(WAIT) == 0
    finally:
        p.kill()


def until(process, what):
    """Waits until what() is true; returns it."""
    deadline = time.monotonic() + WAIT
    while not (answer := what()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    return answer


def test_file():
    path = os.path.join(TMP, "serve.log")
    args = [NIBBLE, "serve", MODEL, "--kv-cache-memory-bytes", "64M", "--log-file", path, "--port"]

    def ports():
        with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as f:
            return re.findall(r"listening on http://127.0.0.1:(\d+)/", f.read())
        return []

    for n, form in enumerate(("text", "json")):
        p = subprocess.Popen([*args, "0", "--log-format", form], stderr=subprocess.PIPE, text=True)
        try:
            port = int(until(p, lambda n=n: ports()[n:])[0])
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
            assert ask(c, "/nowhere", {})[0] == 404
            p.send_signal(signal.SIGTERM)
            assert p.communicate(timeout=WAIT)[1] == ""
            assert p.returncode == 0
        finally:
            p.kill()
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    text = [line for line in lines if line[0] != "{"]
    docs = [json.loads(line) for line in lines if line[0] == "{"]
    assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z (INFO|WARN) (start|http|stop) ", t) for t in text)
    assert len([t for t in text if "path=/nowhere" in t]) == 1, text
    assert [d["path"] for d in docs if d["event"] == "http"] == ["/nowhere"], docs
    assert docs[-1]["event"] == "stop" and docs[-1]["level"] == "info", docs[-1]
    # What fails at the start is on standard error, and in the file.
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        p = subprocess.run([*args, str(port)], stderr=subprocess.PIPE, text=True, check=False)
    assert p.returncode == 1 and p.stderr.count("\n") == 1 and str(port) in p.stderr, p
    with open(path, encoding="utf-8") as f:
        last = f.read().splitlines()[-1]
    assert " ERROR end message=" in last and str(port) in last, last
    for bad in (os.path.join(TMP, "none", "log"), TMP):
        p = subprocess.run([NIBBLE, "serve", MODEL, "--port", "0", "--log-file", bad], stderr=subprocess.PIPE, text=True, check=False)
        assert p.returncode == 1 and p.stderr.count("\n") == 1 and bad in p.stderr, p


def test_journal():
    """Where standard error is the journal's stream, lines have its prefix and no time."""
    for is_journal, form in ((True, "text"), (True, "json"), (False, "text")):
        r, w = os.pipe()
        st = os.fstat(w)
        stream = f"{st.st_dev}:{st.st_ino + (0 if is_journal else 1)}"
        p = subprocess.Popen([NIBBLE, "serve", MODEL, "--port", "0", "--kv-cache-memory-bytes",
                              "64M", "--enforce-eager", "--log-format", form], stderr=w,
                             env={**os.environ, "JOURNAL_STREAM": stream})
        os.close(w)
        try:
            with os.fdopen(r, encoding="utf-8") as f:
                lines = []
                while not lines or "listening on" not in lines[-1]:
                    lines.append(f.readline())
                p.send_signal(signal.SIGTERM)
                assert p.wait(WAIT) == 0
                lines += f.read().splitlines()
        finally:
            p.kill()
        warned = [line for line in lines if "--enforce-eager" in line]
        if not is_journal:
            assert all(line[0].isdigit() for line in lines), lines
        elif form == "text":
            assert all(line.startswith(("<6>start ", "<4>start ", "<6>stop ")) for line in lines)
            assert warned[0].startswith("<4>"), warned
        else:
            assert json.loads(warned[0].removeprefix("<4>"))["level"] == "warn", warned


def test_stderr_of_server():
    """The other tests' way to read the log works as before."""
    with Server(MODEL, "--port", "0") as s:
        assert ask(s.connect(), "/nowhere", {})[0] == 404
        assert s.stop() == 0
        assert "path=/nowhere" in s.text() and "stop message=stopped" in s.text(), s.text()


run_tests(globals())
