"""Weight files that change under a server; called by serve_weights.sh.

    python3 _serve_weights.py NIBBLE MODEL FOLDER
"""
import contextlib
import http.client
import os
import shutil
import threading
import time

from _server import MODEL, TMP, WAIT, Server, ask, complete, run_tests, stream

SHARD = "model-00001-of-00002.safetensors"


def copy_model(name):
    folder = os.path.join(TMP, name)
    shutil.copytree(MODEL, folder)
    return folder, os.path.join(folder, SHARD)


def until_unhealthy(server):
    deadline = time.monotonic() + WAIT
    while ask(server.connect(), "/health")[0] == 200:
        assert time.monotonic() < deadline, server.text()
        time.sleep(0.05)


def expect_failed(server, words):
    """Every request gets 503 with the reason; the process lives until it is told to end, and fails."""
    for path, body in (("/health", None), ("/v1/completions", {"prompt": "Once"}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})):
        status, answer = ask(server.connect(), path, body)
        assert status == 503, (path, status, answer)
        assert SHARD in answer["error"]["message"], answer
        assert answer["error"]["message"].count("engine has failed") == 1, answer
    assert ask(server.connect(), "/metrics")[0] == 200
    assert server.process.poll() is None
    assert server.stop() == 1, server.text()
    lines = [line for line in server.log if " ERROR engine " in line]
    assert len(lines) == 1 and SHARD in lines[0] and words in lines[0], server.text()
    assert "restart the server" in lines[0], lines


def test_truncated_under_load():
    folder, shard = copy_model("truncated")
    with Server(folder, "--port", "0") as s:
        ends, threads = [], []

        def reader(answer):
            with contextlib.suppress(http.client.HTTPException):
                ends.append(answer.read().decode())

        for _ in range(4):
            threads.append(threading.Thread(target=reader, args=(stream(s, 3000),)))
            threads[-1].start()
        os.truncate(shard, 100000)
        for t in threads:
            t.join(WAIT)
        assert len(ends) == 4
        for text in ends:
            last = text.strip().split("\n\n")[-2:]
            assert '"code":503' in last[0] and SHARD in last[0] and last[1] == "data: [DONE]", last
        expect_failed(s, "cannot be read at byte ")


def test_truncated_when_idle():
    folder, shard = copy_model("idle")
    with Server(folder, "--port", "0") as s:
        assert complete(s.connect())["usage"]["completion_tokens"] == 16
        os.truncate(shard, 100000)
        until_unhealthy(s)
        expect_failed(s, "was changed in place: it had ")


def test_overwritten():
    folder, shard = copy_model("overwritten")
    with Server(folder, "--port", "0") as s:
        before = os.stat(shard)
        with open(shard, "r+b") as f:
            f.seek(200000)
            f.write(b"\x3c" * 100000)
        os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
        until_unhealthy(s)
        expect_failed(s, "was changed in place")


def test_harmless():
    folder, shard = copy_model("harmless")
    with Server(folder, "--port", "0") as s:
        first = complete(s.connect())["choices"][0]["text"]
        os.chmod(shard, 0o600)
        os.link(shard, shard + ".link")
        time.sleep(1.5)  # the files are looked at once a second

        def warnings():
            return [line for line in s.log if " WARN engine " in line]

        shutil.copy(os.path.join(MODEL, "config.json"), shard + ".new")
        os.replace(shard + ".new", shard)
        deadline = time.monotonic() + WAIT
        while not warnings() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.unlink(shard)
        time.sleep(1.5)
        assert complete(s.connect())["choices"][0]["text"] == first
        assert s.stop() == 0
        warned = warnings()
        assert len(warned) == 1 and SHARD in warned[0] and "replaced or removed" in warned[0], warned


def test_copied():
    for option in (["--no-mmap"], ["--load-format", "copy"]):
        folder, shard = copy_model("copied" + option[0])
        with Server(folder, "--port", "0", *option) as s:
            first = complete(s.connect())["choices"][0]["text"]
            os.truncate(shard, 100000)
            time.sleep(1.5)
            assert complete(s.connect(), cache_salt="other")["choices"][0]["text"] == first
            assert s.stop() == 0


run_tests(globals())
