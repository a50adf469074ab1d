"""Weight files that change under a server; called by serve_weights.sh.

    python3 _serve_weights.py NIBBLE MODEL FOLDER
"""
import os
import shutil
import time

from _server import MODEL, TMP, WAIT, Server, ask, break_under_load, complete, expect_failed, run_tests

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


def expect_lost_shard(server, words):
    line = expect_failed(server, SHARD)
    assert words in line and "restart the server" in line, line


def test_truncated_under_load():
    folder, shard = copy_model("truncated")
    with Server(folder, "--port", "0") as s:
        break_under_load(s, lambda: os.truncate(shard, 100000), SHARD)
        expect_lost_shard(s, "cannot be read at byte ")


def test_exit_on_failure():
    folder, shard = copy_model("exit")
    with Server(folder, "--port", "0", "--exit-on-failure") as s:
        assert complete(s.connect())["usage"]["completion_tokens"] == 16
        os.truncate(shard, 100000)
        assert s.end() == 1, s.text()
        assert any(" ERROR engine " in line and "has failed" in line for line in s.log), s.text()


def test_truncated_when_idle():
    folder, shard = copy_model("idle")
    with Server(folder, "--port", "0") as s:
        assert complete(s.connect())["usage"]["completion_tokens"] == 16
        os.truncate(shard, 100000)
        until_unhealthy(s)
        expect_lost_shard(s, "was changed in place: it had ")


def test_overwritten():
    folder, shard = copy_model("overwritten")
    with Server(folder, "--port", "0") as s:
        before = os.stat(shard)
        with open(shard, "r+b") as f:
            f.seek(200000)
            f.write(b"\x3c" * 100000)
        os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
        until_unhealthy(s)
        expect_lost_shard(s, "was changed in place")


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
