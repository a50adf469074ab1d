#!/usr/bin/env python3
"""pull.py NIBBLE SOURCE_DIR - `nibble pull` and `nibble verify` against a hub on this machine: what is downloaded and
where it lies, continuing, two at once, tokens, proxies, offline, hashes."""
import hashlib
import http.server
import json
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import urllib.request

import _fake_hub as fake
from _pull import NIBBLE, TINY, Cache, main, small_files, tiny_files, wait_for

ID = "nibble-project/nibble-tiny"
USABLE = ["LICENSE", "README.md", "config.json", "generation_config.json", "model-00001-of-00002.safetensors",
          "model-00002-of-00002.safetensors", "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json"]


def small_hub(**more):
    return fake.FakeHub(small_files(), **more)


def test_whole_model():
    """The bundled model, from the hub to generated text."""
    hub = fake.FakeHub(tiny_files())
    with Cache(hub) as c:
        c.run("run", ID, "-p", "x", code=1, err=f"`nibble pull {ID}` downloads it")
        p = c.run("pull", ID, out=c.snapshot)
        assert p.stdout == c.snapshot + "\n"
        c.check_whole(hub, USABLE)
        assert hub.count("tree") > 3 # pages
        assert os.path.exists(os.path.join(c.hub_dir, "CACHEDIR.TAG"))
        locks = os.listdir(os.path.join(c.hub_dir, ".locks", "models--nibble-project--nibble-tiny"))
        assert sorted(locks) == sorted(hub.blob(n) + ".lock" for n in USABLE)
        by_id = c.run("run", ID, "-p", "Once upon a time", "-n", "8", "--json").stdout
        assert by_id == c.run("run", TINY, "-p", "Once upon a time", "-n", "8", "--json").stdout
        c.run("verify", ID, out=f"{len(USABLE)} files: {len(USABLE)} have the expected hash, 0 are bad")
        hub.reset() # again: nothing is downloaded or written
        ref = os.stat(os.path.join(c.repo, "refs", "main")).st_ino
        c.run("pull", ID, out=c.snapshot, err="was there")
        assert os.stat(os.path.join(c.repo, "refs", "main")).st_ino == ref
        assert not [n for n, _, _ in hub.log if n not in ("info", "tree")]
        serves_by_name(c)
    hub.close()


def serves_by_name(c):
    """The server's name of the model is the id."""
    p = c.start("serve", ID, "--port", "0", "--no-page", "--kv-cache-memory-bytes", "32M")
    log, port = "", None
    for line in p.stderr:
        log += line
        port = re.search(r"listening on http://[^/]*:(\d+)", line)
        if port:
            break
    assert port, log
    port = port.group(1)
    threading.Thread(target=p.stderr.read, daemon=True).start()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models") as f:
        assert json.load(f)["data"][0]["id"] == ID
    p.send_signal(signal.SIGTERM)
    assert p.wait(60) == 0


def test_choice_of_files():
    hub = fake.FakeHub(tiny_files())
    with Cache(hub) as c:
        c.run("pull", ID, "--include", "*.gguf", "--include", "original/*")
        assert c.names() == ["model.gguf", "original/consolidated.00.pth"]
        assert os.readlink(os.path.join(c.snapshot, "original/consolidated.00.pth")).startswith("../../../blobs/")
        c.run("verify", ID, out="2 files: 2 have the expected hash")
    with Cache(hub) as c:
        c.run("pull", ID, "--exclude", "*.safetensors", "--exclude", "LICENSE")
        assert c.names() == [n for n in USABLE if not n.endswith(".safetensors") and n != "LICENSE"]
        c.run("run", ID, "-p", "x", code=1, err=["model-0000", f"`nibble pull {ID}` downloads what is missing"])
        c.run("tokenize", ID, "-p", "Once")
        c.run("verify", ID, code=1, out="model.safetensors.index.json:")
        c.run("pull", ID) # the rest
        c.check_whole(hub, USABLE)
        c.run("pull", ID, "--include", "*.nothing", code=1, err=f"none of its {len(hub.files)} files is chosen")
        c.run("pull", "nope", code=2, err="expected the id of a model on the hub")
        c.run("pull", "a/b/c", code=2, err="expected the id")
        c.run("pull", ID + "@../x", code=2, err="expected the id")
        c.run("pull", ID, "--jobs", "0", code=2, err="--jobs")
    hub.files = {k: v for k, v in hub.files.items() if not k.endswith(".safetensors")}
    with Cache(hub) as c:
        c.run("pull", ID, code=1, err=[f"none of its {len(hub.files)} files is *.safetensors", "--include"])
    hub.close()


def test_dry_run_and_json():
    hub = small_hub()
    with Cache(hub) as c:
        p = c.run("pull", ID, "--dry-run", out=["download", "model.safetensors", "307.2 kB"], err="4 files, 307.2 kB")
        assert not os.path.exists(c.hub_dir), "a dry run wrote"
        j = json.loads(c.run("pull", ID, "--dry-run", "--json").stdout)
        assert j["dry_run"] and j["commit"] == hub.commit and j["bytes_to_download"] == j["bytes"]
        j = json.loads(c.run("pull", ID, "--json", "-j", "1").stdout)
        assert [f["path"] for f in j["files"]] == sorted(hub.files) and j["path"] == c.snapshot
        assert {f["path"]: f["hash"] for f in j["files"]} == {n: hub.blob(n) for n in hub.files}
        j = json.loads(c.run("pull", ID, "--json").stdout)
        assert all(f["was_there"] for f in j["files"]) and j["bytes_to_download"] == 0
    hub.close()


def test_revisions():
    hub = small_hub()
    hub.revisions |= {"v1.0", "refs/pr/1"}
    with Cache(hub) as c:
        c.run("pull", ID + "@refs/pr/1")
        assert c.ref("refs/pr/1") == hub.commit and c.ref() is None
        c.run("pull", ID, "--revision", "v1.0")
        assert c.ref("v1.0") == hub.commit
        c.run("pull", ID + "@" + hub.commit)
        assert not os.path.exists(os.path.join(c.repo, "refs", hub.commit))
        c.run("run", ID, "-p", "x", code=1, err="revision main is not in the hub cache")
        c.run("pull", ID + "@v2", code=1, err=f"{ID} has no revision v2 at {hub.url}")
        asked = [p for n, p, _ in hub.log if n == "info"]
        assert asked[0].endswith("/revision/refs%2Fpr%2F1"), asked[0]
    hub.close()


def test_names_of_files():
    """Spaces and other letters in names; the same content twice; an empty file."""
    files = small_files()
    files.update({"sub folder/dé%2F #1?.txt": b"x" * 30000, "sub folder/copy.txt": b"x" * 30000, "empty": b""})
    hub = fake.FakeHub(files)
    with Cache(hub) as c:
        c.run("pull", ID, "--include", "*")
        c.check_whole(hub, files)
        assert hub.count("cdn:" + hub.blob("sub folder/copy.txt")) == 1
        c.run("verify", ID, out="7 files: 7 have the expected hash")
    hub.close()


def test_cache_folders():
    hub = small_hub()
    with Cache(hub) as c:
        other = os.path.join(c.home, "deep", "er")
        p = c.run("pull", ID, "--cache-dir", other)
        assert p.stdout.startswith(other + "/models--")
        c.run("pull", ID, HF_HUB_CACHE=os.path.join(c.home, "third"), out="/third/models--")
        c.run("pull", ID, HF_HOME="", XDG_CACHE_HOME=c.home, out=c.home + "/huggingface/hub/models--")
        c.run("pull", ID, HF_HOME="", XDG_CACHE_HOME="", HOME=c.home + "/u", out="/u/.cache/huggingface/hub/models--")
        # a file where a folder belongs
        with open(os.path.join(c.home, "file"), "w"):
            pass
        c.run("pull", ID, "--cache-dir", os.path.join(c.home, "file"), code=1, err="/file")
        c.run("pull", ID, "--cache-dir", "", code=2, err="--cache-dir")
    hub.close()


# ---- continuing --------------------------------------------------------------------------------

def kill_half_way(hub, c, blob, sig):
    """Starts a pull of a slow blob and ends it when some of it is there; how much."""
    hub.faults["cdn:" + blob] = [fake.slow(40000)] # slow enough that the signal comes in time
    p = c.start("pull", ID)
    wait_for(lambda: (c.partial(blob) or 0) > 40000)
    p.send_signal(sig)
    out, err = p.communicate(timeout=60)
    assert p.returncode == (-sig if sig == signal.SIGKILL else 1), (p.returncode, err)
    c.check_not_whole("model.safetensors")
    hub.faults.clear()
    return c.partial(blob), err


def test_killed_and_continued():
    for sig in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        hub = small_hub()
        blob = hub.blob("model.safetensors")
        with Cache(hub) as c:
            had, err = kill_half_way(hub, c, blob, sig)
            size = len(hub.files["model.safetensors"])
            assert 40000 < had < size
            if sig != signal.SIGKILL:
                assert "interrupted; the same command goes on" in err, err
            hub.reset()
            c.run("pull", ID)
            c.check_whole(hub, hub.files)
            assert hub.sent[blob] == size - had, "bytes that were there came again"
        hub.close()


def test_servers_without_ranges():
    hub = small_hub()
    blob = hub.blob("model.safetensors")
    with Cache(hub) as c:
        kill_half_way(hub, c, blob, signal.SIGKILL)
        hub.reset()
        hub.faults["cdn:" + blob] = [fake.no_range()]
        c.run("pull", ID)
        c.check_whole(hub, hub.files)
        assert hub.sent[blob] == len(hub.files["model.safetensors"])
    hub.close()


def test_what_was_left_is_damaged():
    """Other bytes, too many bytes: noticed by the hash, downloaded anew."""
    for left in (b"y" * 1000, b"y" * 307200, b"y" * 400000):
        hub = small_hub()
        blob = hub.blob("model.safetensors")
        with Cache(hub) as c:
            os.makedirs(os.path.join(c.repo, "blobs"))
            with open(os.path.join(c.repo, "blobs", blob + ".incomplete"), "wb") as f:
                f.write(left)
            c.run("pull", ID, err="damaged" if len(left) <= 307200 else ())
            c.check_whole(hub, hub.files)
        hub.close()


def test_broken_connections_in_one_run():
    """Each try goes on where the last one ended."""
    hub = small_hub()
    blob = hub.blob("model.safetensors")
    hub.faults["cdn:" + blob] = [fake.truncate(100000)] * 2
    hub.faults["resolve:config.json"] = [fake.truncate(3)]
    with Cache(hub) as c:
        c.run("pull", ID, err="trying again in")
        c.check_whole(hub, hub.files)
        assert hub.sent[blob] == len(hub.files["model.safetensors"])
        asked = [h.get("Range") for n, _, h in hub.log if n == "cdn:" + blob]
        assert asked == [None, "bytes=100000-", "bytes=200000-"], asked
        asked = [(h.get("Range"), h.get("If-Range")) for n, _, h in hub.log if n == "resolve:config.json"]
        assert asked[1] == ("bytes=3-", f'"{hub.blob("config.json")}"'), asked
    hub.close()


def test_terminal():
    """A bar with a rate, which is gone in the end, and no lines for files."""
    hub = small_hub()
    hub.faults["cdn:" + hub.blob("model.safetensors")] = [fake.slow(130000)]
    with Cache(hub) as c:
        ours, theirs = pty.openpty()
        p = subprocess.Popen([NIBBLE, "pull", ID], env=c.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 4096)
            except OSError: # the other end was closed
                break
        os.close(ours)
        assert p.wait(60) == 0 and p.stdout.read().decode() == c.snapshot + "\n"
        assert re.search(rb"downloading \[#+ *\] +\d+%  [0-9.]+ [kM]?B/s, 0:0\d left", shown), shown
        assert b"of 4:" not in shown and shown.endswith(b"\r\x1b[K"), shown
    hub.close()


def test_two_at_once():
    hub = small_hub()
    blob = hub.blob("model.safetensors")
    hub.faults["cdn:" + blob] = [fake.slow(60000)] # the second has to wait for more than a second
    with Cache(hub) as c:
        pulls = [c.start("pull", ID) for _ in range(2)]
        told = [p.communicate(timeout=120) for p in pulls]
        assert [p.returncode for p in pulls] == [0, 0], told
        assert any("waiting for another download of it" in err for _, err in told), told
        c.check_whole(hub, hub.files)
        for name, data in hub.files.items():
            key = hub.blob(name) if hub.is_lfs(data) else name
            assert hub.sent[key] == len(data), f"{name} was downloaded twice"
    hub.close()


def test_a_new_commit():
    """What did not change is linked; the old snapshot stays."""
    hub = small_hub()
    with Cache(hub) as c:
        c.run("pull", ID)
        old = c.snapshot
        hub.commit = "f" * 40
        hub.info = {"sha": hub.commit}
        hub.files["config.json"] = b'{"model_type": "y"}'
        hub.reset()
        c.snapshot = os.path.join(c.repo, "snapshots", hub.commit)
        c.run("pull", ID)
        c.check_whole(hub, hub.files)
        assert [n for n, _, _ in hub.log if n not in ("info", "tree")] == ["resolve:config.json"]
        assert open(os.path.join(old, "config.json")).read() == '{"model_type": "x"}'
    hub.close()


# ---- tokens, proxies, offline --------------------------------------------------------------------

def test_tokens():
    """From the variable, then a file; to the hub and to nobody else."""
    hub = small_hub()
    with Cache(hub) as c:
        path = os.path.join(c.home, "other")
        for place, env, want in ((None, {"HF_TOKEN": " hf_one\n"}, "hf_one"),
                                 (os.path.join(c.home, "token"), {}, "hf_two"),
                                 (path, {"HF_TOKEN_PATH": path}, "hf_three"),
                                 (None, {"HF_TOKEN": "hf_four"}, "hf_four")):
            if place:
                with open(place, "w") as f:
                    f.write(want + "\n")
            hub.reset()
            shutil.rmtree(c.hub_dir, ignore_errors=True)
            p = c.run("pull", ID, **env)
            assert want not in p.stdout + p.stderr
            for name, _, headers in hub.log:
                sent = headers.get("Authorization")
                assert sent == (None if name.startswith("cdn:") else "Bearer " + want), (name, sent)
        os.remove(path)
        os.mkfifo(path)
        c.run("pull", ID, HF_TOKEN_PATH=path, code=1, err=["/other: is a fifo", "expected a regular file"])
        c.run("pull", ID, HF_TOKEN_PATH=path + "x")
        c.run("pull", ID, HF_TOKEN="a b", code=2, err="HF_TOKEN: expected one token")
        p = c.run("pull", ID, HF_TOKEN="hf_\x01secret", code=2, err="HF_TOKEN")
        assert "secret" not in p.stderr
    hub.close()


def test_proxy():
    """http_proxy is used, no_proxy is respected."""
    hub = small_hub(page_size=100)

    class Proxy(http.server.BaseHTTPRequestHandler):
        asked = []

        def do_GET(self):
            Proxy.asked.append(self.path)
            request = urllib.request.Request(self.path, headers=dict(self.headers))
            opener = urllib.request.build_opener(NoRedirect, urllib.request.ProxyHandler({}))
            try:
                answer = opener.open(request)
            except urllib.error.HTTPError as e:
                answer = e
            data = answer.read()
            self.send_response(answer.status)
            for key in ("Location", "Content-Range", "ETag"):
                if answer.headers.get(key):
                    self.send_header(key, answer.headers[key])
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *args):
            return None

    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{proxy.server_address[1]}"
    with Cache(hub) as c:
        c.run("pull", ID, http_proxy=url)
        c.check_whole(hub, hub.files)
        assert len(Proxy.asked) == 2 + 4 + 1 and all(a.startswith("http://127.0.0.1:") for a in Proxy.asked), Proxy.asked
        Proxy.asked.clear()
        c.run("pull", ID, http_proxy=url, no_proxy="127.0.0.1")
        assert not Proxy.asked
    proxy.shutdown()
    hub.close()


def test_offline():
    hub = small_hub()
    with Cache(hub) as c:
        c.run("pull", ID, HF_HUB_OFFLINE="1", code=1, err=["HF_HUB_OFFLINE is set", "not in the hub cache"])
        assert not hub.log
        c.run("pull", ID)
        hub.reset()
        p = c.run("pull", ID, HF_HUB_OFFLINE="TRUE", err="HF_HUB_OFFLINE is set", out=c.snapshot)
        assert not hub.log
        c.run("pull", ID, HF_HUB_OFFLINE="0")
        assert hub.log
        c.run("verify", ID, "--online", ID, HF_HUB_OFFLINE="1", code=1, err="HF_HUB_OFFLINE")
    hub.close()


# ---- verify --------------------------------------------------------------------------------------

def test_verify():
    hub = fake.FakeHub(tiny_files())
    with Cache(hub) as c:
        c.run("pull", ID)
        path = os.path.realpath(os.path.join(c.snapshot, "model-00001-of-00002.safetensors"))
        with open(path, "r+b") as f:
            f.seek(100000)
            f.write(b"\xff\x00\xff")
        with open(os.path.realpath(os.path.join(c.snapshot, "config.json")), "ab") as f:
            f.write(b" ")
        os.remove(os.path.realpath(os.path.join(c.snapshot, "LICENSE")))
        p = c.run("verify", ID, code=1)
        lines = p.stdout.splitlines()
        assert len(lines) == 4 and "3 are bad" in lines[3], p.stdout
        assert lines[0] == "LICENSE: it is missing" and lines[1].startswith("config.json: its SHA-1")
        assert lines[2].startswith("model-00001-of-00002.safetensors: its SHA-256 is")
        j = json.loads(c.run("verify", ID, "--json", code=1).stdout)
        assert j["bad"] == 3 and j["good"] == len(USABLE) - 3
        assert [f["path"] for f in j["files"] if f["verdict"] == "bad"] == ["LICENSE", "config.json", "model-00001-of-00002.safetensors"]
        c.run("verify", "no-project/no-model", code=1, err="`nibble pull no-project/no-model` downloads it")
        c.run("verify", os.path.join(TINY, "config.json"), code=1, err="expected a model's folder")
    hub.close()


def test_verify_folders():
    """Hashes of a list, of the hub, and none."""
    hub = fake.FakeHub(tiny_files())
    with Cache(hub) as c:
        plain = os.path.join(c.home, "plain")
        shutil.copytree(TINY, plain)
        for name in os.listdir(plain):
            os.chmod(os.path.join(plain, name), stat.S_IRUSR | stat.S_IWUSR)
        n = len(os.listdir(TINY))
        c.run("verify", plain, out=[f"{n} files: 0 have", f"{n} have no known hash", "No hashes are known here"])
        c.run("verify", plain, "--online", ID, out=f"{n} have the expected hash")
        c.run("verify", plain, "--online", "nibble-project/other", code=1, err="nibble-project/other is not at")
        sums = "".join(f"{hashed(os.path.join(plain, f))}  {f}\n" for f in sorted(os.listdir(plain)))
        listed = os.path.join(c.home, "list")
        with open(listed, "w") as f:
            f.write("# a list\n" + sums)
        c.run("verify", plain, "--sha256sums", listed, out=f"{n} have the expected hash, 0 are bad")
        shutil.copy(listed, os.path.join(plain, "SHA256SUMS"))
        c.run("verify", plain, out=f"{n} have the expected hash, 0 are bad, 1 have no known hash")
        os.rename(os.path.join(plain, "config.json"), os.path.join(plain, "config"))
        c.run("verify", plain, code=1, out="config.json: it is missing")
        for bad in ("zz  x\n", "0" * 64 + "  ../x\n", "0" * 64 + " x\n", "0" * 64 + "  /etc/passwd\n", "\0\n"):
            with open(listed, "w") as f:
                f.write(bad)
            c.run("verify", plain, "--sha256sums", listed, code=1, err="/list:1: ")
        c.run("verify", plain, "--sha256sums", listed + "x", code=1, err="cannot be opened")
        c.run("verify", plain, "--sha256sums", listed, "--online", ID, code=2, err="do not go together")
    with Cache(hub) as c: # the structure alone
        plain = os.path.join(c.home, "plain")
        shutil.copytree(TINY, plain)
        shard = os.path.join(plain, "model-00001-of-00002.safetensors")
        os.chmod(shard, stat.S_IRUSR | stat.S_IWUSR)
        os.truncate(shard, os.path.getsize(shard) - 1)
        c.run("verify", plain, code=1, out="model-00001-of-00002.safetensors:")
        os.remove(shard)
        c.run("verify", plain, code=1, out="model.safetensors.index.json:")
    hub.close()


def hashed(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


main(sys.modules[__name__])
