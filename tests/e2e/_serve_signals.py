"""Signals of a server; called by serve_signals.sh.

    python3 _serve_signals.py NIBBLE MODEL FOLDER
"""
import contextlib
import os
import pty
import re
import signal
import ssl
import subprocess
import time

from _server import MODEL, NIBBLE, TMP, WAIT, Server, ask, complete, run_tests, stream

COMMAND = [NIBBLE, "serve", MODEL, "--port", "0", "--kv-cache-memory-bytes", "64M"]


def until(what, text):
    """Waits until what() is true."""
    deadline = time.monotonic() + WAIT
    while not what():
        assert time.monotonic() < deadline, text() if callable(text) else text
        time.sleep(0.01)


def status(server, key):
    return ask(server.connect(), "/v1/models", Authorization=f"Bearer {key}")[0]


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def hang_up(server, words):
    """SIGHUP, and what the log says of it."""
    n = len(server.log)
    server.process.send_signal(signal.SIGHUP)
    until(lambda: any(words in line for line in server.log[n:]), server.text)


def test_keys():
    path = os.path.join(TMP, "keys")
    write(path, "# ours\nfirst\n\n  second \r\n")
    with Server(MODEL, "--port", "0", "--api-key", "argument", "--api-key-file", path) as s:
        assert [status(s, k) for k in ("first", "second", "argument", "third")] == [200] * 3 + [401]
        write(path, "third")
        hang_up(s, "read again: API keys")
        assert [status(s, k) for k in ("first", "argument", "third")] == [401, 200, 200]
        write(path, "# none\n")
        hang_up(s, "has no API key")
        write(path, "a b\n")
        hang_up(s, "no header can carry")
        os.unlink(path)
        hang_up(s, "keys: is no regular file")
        os.mkfifo(path)
        hang_up(s, "keys: is no regular file")
        os.unlink(path)
        assert [status(s, k) for k in ("first", "argument", "third")] == [401, 200, 200]
        assert not re.search(r"first|third", s.text()), s.text()
        assert s.stop() == 0
    for text in (None, "", "# none\n\n", "a b\n", "a\0b\n"):
        if text is not None:
            write(path, text)
        p = subprocess.run([*COMMAND, "--api-key-file", path], stderr=subprocess.PIPE, text=True,
                           check=False)
        assert p.returncode == 1 and p.stderr.splitlines()[-1].startswith("nibble: "), p


def make_certificate(name):
    cert, key = (os.path.join(TMP, f"{name}.{x}") for x in ("cert", "key"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key,
                    "-out", cert, "-days", "2", "-subj", f"/CN={name}"], check=True,
                   stderr=subprocess.DEVNULL)
    return cert, key


def copy(pair, to):
    for a, b in zip(pair, to):
        with open(a, encoding="utf-8") as f:
            write(b, f.read())


def test_tls():
    try:
        first, second = make_certificate("first"), make_certificate("second")
    except FileNotFoundError:
        print("no openssl command: TLS is not tried")
        return
    used = [os.path.join(TMP, f"used.{x}") for x in ("cert", "key")]
    copy(first, used)

    def shown(server):
        pem = ssl.get_server_certificate((server.host, int(server.port)))
        for name, pair in (("first", first), ("second", second)):
            with open(pair[0], encoding="utf-8") as f:
                if f.read().strip() == pem.strip():
                    return name
        return None

    with Server(MODEL, "--port", "0", "--ssl-certfile", used[0], "--ssl-keyfile", used[1]) as s:
        assert shown(s) == "first"
        copy(second, used)
        hang_up(s, "read again: TLS files")
        assert shown(s) == "second"
        copy((first[0],), used)  # its key is another
        hang_up(s, "the TLS files from before stay in use")
        write(used[0], "no certificate")
        hang_up(s, "the TLS files from before stay in use")
        os.unlink(used[1])
        os.mkfifo(used[1])
        hang_up(s, "is no regular file; the TLS files from before stay in use")
        os.unlink(used[1])
        assert shown(s) == "second"
        assert s.stop() == 0


def test_rotation():
    path = os.path.join(TMP, "rotated.log")
    port_of = re.compile(r"listening on http://127.0.0.1:(\d+)/")
    p = subprocess.Popen([*COMMAND, "--log-file", path], stderr=subprocess.DEVNULL)

    def text(name):
        with contextlib.suppress(FileNotFoundError), open(name, encoding="utf-8") as f:
            return f.read()
        return ""

    try:
        until(lambda: port_of.search(text(path)), "not listening")
        server = Server.__new__(Server)
        server.host, server.port = "127.0.0.1", port_of.search(text(path))[1]
        for i, sig in enumerate((signal.SIGUSR1, signal.SIGHUP)):
            os.rename(path, f"{path}.{i}")
            assert ask(server.connect(), f"/old{i}", {})[0] == 404
            p.send_signal(sig)
            until(lambda: os.path.exists(path), "the log was not opened again")
            assert ask(server.connect(), f"/new{i}", {})[0] == 404
            until(lambda: f"path=/new{i}" in text(path), lambda: text(path))
            assert f"path=/old{i}" in text(f"{path}.{i}") and f"path=/old{i}" not in text(path)
        p.send_signal(signal.SIGTERM)
        assert p.wait(WAIT) == 0
    finally:
        p.kill()


def test_drain():
    for sig, words in ((signal.SIGINT, "finishing 2 requests; press Ctrl-C again to stop now"),
                       (signal.SIGQUIT, "finishing 2 requests; a second signal stops it now"),
                       (signal.SIGTERM, "finishing 2 requests; a second signal stops it now")):
        with Server(MODEL, "--port", "0", "--drain-timeout", "600") as s:
            answers = [stream(s, 400) for _ in range(2)]  # which still run when the signal comes
            s.process.send_signal(sig)
            for answer in answers:
                assert answer.read().endswith(b"data: [DONE]\n\n")
            assert s.end() == 0
            assert words in s.text(), s.text()
        with Server(MODEL, "--port", "0") as s:
            answers = [stream(s, 4000) for _ in range(2)]
            s.process.send_signal(sig)
            until(lambda s=s: words in s.text(), s.text)
            s.process.send_signal(sig)
            assert s.end() == 0
    with Server(MODEL, "--port", "0") as s:
        assert s.stop(signal.SIGINT) == 0
        assert "finishing" not in s.text(), s.text()


def test_ignored():
    with Server(MODEL, "--port", "0") as s:
        for sig in (signal.SIGUSR2, signal.SIGPIPE, signal.SIGUSR1, signal.SIGHUP):
            s.process.send_signal(sig)
        assert complete(s.connect())["usage"]["completion_tokens"] == 16
        assert s.stop() == 0


def blocked(process):
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as f:
        mask = re.search(r"SigBlk:\t([0-9a-f]+)", f.read())
    return int(mask[1], 16) >> (signal.SIGHUP - 1) & 1


def test_start():
    """At any time of the start: an end without a message, or no harm."""
    if not os.path.exists("/proc/self/status"):
        print("no /proc: signals during the start are not tried")
        return
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1):
        for delay in (0, 0.01, 0.03, 0.1, 0.3):
            p = subprocess.Popen(COMMAND, stderr=subprocess.PIPE, text=True)
            try:
                until(lambda p=p: blocked(p), "it takes no signals")
                time.sleep(delay)
                p.send_signal(sig)
                if sig in (signal.SIGHUP, signal.SIGUSR1):
                    for line in p.stderr:
                        if "listening on" in line:
                            break
                    p.send_signal(signal.SIGTERM)
                    assert p.wait(WAIT) == 0, (sig, delay, p.returncode)
                    continue
                p.wait(WAIT)
                wanted = -(signal.SIGTERM if sig == signal.SIGQUIT else sig)
                assert p.returncode in (0, wanted), (sig, delay, p.returncode)
            finally:
                p.kill()
                p.communicate()


def test_terminal():
    """A server that was started in a terminal ends with it; kill -HUP alone reloads."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(NIBBLE, COMMAND)
    text = b""
    while b"listening on" not in text:
        text += os.read(fd, 1 << 16)
    os.kill(pid, signal.SIGHUP)
    port = re.search(rb"127.0.0.1:(\d+)/", text)[1].decode()
    server = Server.__new__(Server)
    server.host, server.port = "127.0.0.1", port
    time.sleep(0.1)
    assert complete(server.connect())["usage"]["completion_tokens"] == 16
    os.close(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


run_tests(globals())
