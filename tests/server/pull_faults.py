#!/usr/bin/env python3
"""pull_faults.py NIBBLE SOURCE_DIR - `nibble pull` against a hub that misbehaves: damaged files, refusals, waits,
redirects, full disks, hostile lists."""
import email.utils
import fcntl
import json
import os
import resource
import shutil
import ssl
import subprocess
import sys
import time

import _fake_hub as fake
from _pull import NIBBLE, Cache, main, small_files, wait_for

ID = "nibble-project/nibble-tiny"
WEIGHTS = "model.safetensors"


def small_hub(**more):
    return fake.FakeHub(small_files(), **more)


def failing_pull(faults, err, missing=WEIGHTS, code=1, **env):
    """A pull that must fail: the words, no snapshot that looks whole; then a hub that behaves."""
    hub = small_hub()
    with Cache(hub) as c:
        for name, fault in faults.items():
            kind, _, path = name.partition(":")
            hub.faults["cdn:" + hub.blob(path) if kind == "cdn" else name] = [fault]
        p = c.run("pull", ID, code=code, err=err, **env)
        assert p.stdout == "" and "Traceback" not in p.stderr
        last = p.stderr.strip().splitlines()[-1]
        assert last.startswith("nibble: "), last
        c.check_not_whole(missing)
        hub.faults.clear()
        c.run("pull", ID)
        c.check_whole(hub, hub.files)
    hub.close()
    return p


# ---- damaged files -------------------------------------------------------------------------------

def test_truncated():
    """Each connection ends early and brings nothing new."""
    failing_pull({"cdn:" + WEIGHTS: fake.truncate(0, always=True)}, ["model.safetensors", "the same command goes on"])


def test_wrong_hash():
    failing_pull({"cdn:" + WEIGHTS: fake.corrupt(always=True)},
                 ["model.safetensors: its SHA-256 is", "expected", "what was sent is damaged"])
    failing_pull({"resolve:config.json": fake.corrupt(always=True)}, "config.json: its SHA-1 is", "config.json")


def test_wrong_size():
    data = small_files()[WEIGHTS]
    failing_pull({"cdn:" + WEIGHTS: fake.body(data + b"more", always=True)},
                 ["sends 307204 bytes, expected 307200 as the hub lists it"])
    failing_pull({"cdn:" + WEIGHTS: fake.body(data[:-1], always=True)}, ["sends 307199 bytes, expected 307200"])
    failing_pull({"cdn:" + WEIGHTS: fake.endless(always=True)}, ["sends more than 307200 bytes, expected 307200"])


def test_wrong_parts():
    """Content-Range that is not what was asked for."""
    hub = small_hub()
    data = hub.files[WEIGHTS]
    with Cache(hub) as c:
        for answer in ({"Content-Range": "bytes 7-307199/307200"}, {"Content-Range": "bytes 1000-307199/9"},
                       {"Content-Range": "junk"}, {}):
            os.makedirs(os.path.join(c.repo, "blobs"), exist_ok=True)
            with open(os.path.join(c.repo, "blobs", hub.blob(WEIGHTS) + ".incomplete"), "wb") as f:
                f.write(data[:1000])
            hub.faults["cdn:" + hub.blob(WEIGHTS)] = [fake.Fault("partial", (data[1000:], answer), False)]
            if answer.get("Content-Range", "").endswith("/9"):
                c.run("pull", ID, code=1, err="sends 9 bytes, expected 307200")
                continue
            c.run("pull", ID)
            c.check_whole(hub, hub.files)
            shutil.rmtree(c.repo)
    hub.close()


def test_no_progress():
    """The same bytes again and again are no progress, however each answer looks: the pull ends after some tries."""
    data = small_files()[WEIGHTS]
    part = fake.Fault("partial", (data[:1000], {"Content-Range": "bytes 0-999/307200"}), True)
    failing_pull({"cdn:" + WEIGHTS: part}, ["ended after 1000 of 307200 bytes", "the same command goes on"])


# ---- refusals -------------------------------------------------------------------------------------

def test_refusals():
    cases = [
        (401, {"X-Error-Code": "RepoNotFound"}, {}, ["is not at http://127.0.0.1", "check the id", "HF_TOKEN"]),
        (401, {"X-Error-Message": "Invalid credentials in Authorization header"}, {"HF_TOKEN": "hf_x"},
         ["refuses the token", "Invalid credentials", "HF_TOKEN"]),
        (401, {}, {}, ["check the id"]),
        (403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}, {},
         ["is gated", "Access is restricted", "accept its licence at http://127.0.0.1", "/" + ID, "set HF_TOKEN"]),
        (403, {}, {"HF_TOKEN": "hf_x"}, ["may not be read", "accept its licence"]),
        (404, {"X-Error-Code": "RepoNotFound"}, {"HF_TOKEN": "hf_x"}, ["is not at", "the token that was sent may not"]),
        (418, {"X-Error-Message": "a\x1b[2Jteapot" + "x" * 1000}, {}, ["answers HTTP 418: a?[2Jteapot"]),
    ]
    for code, headers, env, words in cases:
        p = failing_pull({"info": fake.status(code, headers, always=True)}, [ID, f"HTTP {code}", *words], **env)
        assert len(p.stderr.strip().splitlines()) == 1, p.stderr
        failing_pull({"resolve:config.json": fake.status(code, headers, always=True)}, ["config.json", f"HTTP {code}"],
                     missing="config.json", **env)
    failing_pull({"cdn:" + WEIGHTS: fake.status(403, always=True)}, ["model.safetensors", "127.0.0.1 answers HTTP 403"])


def waited(faults, at_least_s, err):
    hub = small_hub()
    with Cache(hub) as c:
        for name, queue in faults.items():
            hub.faults[name] = queue
        begun = time.monotonic()
        c.run("pull", ID, err=err)
        assert time.monotonic() - begun >= at_least_s
        c.check_whole(hub, hub.files)
    hub.close()


def test_waits():
    """What the server asks for in each of its ways; it is the tests' own clock, so only the least is asserted."""
    def date(): # when the server answers; a date has whole seconds
        return email.utils.formatdate(time.time() + 4, usegmt=True)
    waited({"info": [fake.status(429, {"Retry-After": "1"})]}, 1, "answers HTTP 429; trying again in 1 s")
    waited({"tree": [fake.status(429, {"Retry-After": date})]}, 1, "answers HTTP 429; trying again in")
    waited({"resolve:config.json": [fake.status(429, {"RateLimit": '"resolvers";r=0;t=2'})]}, 2, "trying again in 2 s")
    waited({"resolve:config.json": [fake.status(500)], "info": [fake.status(503)], "tree": [fake.status(502)]}, 0.5,
           ["HTTP 500", "answers HTTP 503; trying again in 0.5 s", "HTTP 502"])
    hub = small_hub()
    with Cache(hub) as c: # a day: no more than five minutes; Ctrl-C ends the wait
        hub.faults["info"] = [fake.status(429, {"Retry-After": "86400"}, always=True)]
        p = c.start("pull", ID)
        assert "trying again in 300 s" in p.stderr.readline()
        p.terminate()
        out, err = p.communicate(timeout=60)
        assert p.returncode == 1 and "interrupted" in err, err
    hub.close()


def test_server_errors_that_stay():
    failing_pull({"info": fake.status(500, always=True)}, ["answers HTTP 500", "trying again in 4 s"])
    hub = small_hub()
    hub.close()
    with Cache(hub) as c:
        c.run("pull", ID, code=1, err=["127.0.0.1: ", "trying again"])


def test_silence():
    """A server that says nothing for HF_HUB_DOWNLOAD_TIMEOUT seconds."""
    hub = small_hub()
    with Cache(hub, HF_HUB_DOWNLOAD_TIMEOUT="1") as c:
        hub.faults["cdn:" + hub.blob(WEIGHTS)] = [fake.Fault("stall", (1000, 20), False)]
        c.run("pull", ID, err="trying again")
        c.check_whole(hub, hub.files)
        for bad in ("0", "-1", "x", "1e9"):
            c.run("pull", ID, HF_HUB_DOWNLOAD_TIMEOUT=bad, code=2, err="HF_HUB_DOWNLOAD_TIMEOUT")
    hub.close()


# ---- redirects ---------------------------------------------------------------------------------------

def test_redirects():
    hub = small_hub()
    with Cache(hub, HF_TOKEN="hf_x") as c: # a renamed repository: the same server, relative
        hub.faults["resolve:config.json"] = [fake.redirect("/" + ID + "/resolve/" + hub.commit + "/README.md?x", 307, False)]
        c.run("pull", ID, code=1, err="config.json")
        asked = [h.get("Authorization") for n, _, h in hub.log if n == "resolve:README.md"]
        assert "Bearer hf_x" in asked
    with Cache(hub, HF_TOKEN="hf_x") as c: # the same host by another name, and a page elsewhere: no token
        port = hub.main.server_address[1]
        hub.reset()
        hub.faults["resolve:config.json"] = [fake.redirect(f"http://localhost:{port}/{ID}/resolve/{hub.commit}/config.json", 302, False)]
        c.run("pull", ID)
        asked = [h.get("Authorization") for n, _, h in hub.log if n == "resolve:config.json"]
        assert asked == ["Bearer hf_x", None], asked
    hub.close()
    for url, words in (("/" + ID + "/resolve/" + fake.COMMIT + "/config.json", "more than 10 redirects"),
                       ("ftp://127.0.0.1/x", "no http or https address"), ("file:///etc/passwd", "no http or https"),
                       ("gopher://127.0.0.1/", "no http or https address")):
        failing_pull({"resolve:config.json": fake.redirect(url)}, words, "config.json")
    failing_pull({"resolve:config.json": fake.status(302, always=True)}, "HTTP 302 without an address", "config.json")
    failing_pull({"info": fake.redirect("file:///etc/passwd")}, "no http or https address")


def test_pages_elsewhere():
    """A next page on another server gets no token."""
    hub = small_hub()
    other = fake.FakeHub(small_files())
    with Cache(hub, HF_TOKEN="hf_x") as c:
        page = json.dumps([hub.entry("config.json"), hub.entry(WEIGHTS)]).encode()
        link = f'<{other.url}/api/models/{ID}/tree/{hub.commit}?cursor=3>; rel="next"'
        hub.faults["tree"] = [fake.body(page, {"Link": link}, always=True)]
        c.run("pull", ID)
        assert [h.get("Authorization") for n, _, h in other.log] == [None]
    with Cache(hub) as c: # pages without an end
        links = [f'<{hub.url}/api/models/{ID}/tree/{hub.commit}?cursor={i}>; rel="next"' for i in range(1002)]
        hub.faults["tree"] = [fake.body(b"[]", {"Link": links[0]}, always=True)]
        c.run("pull", ID, code=1, err="the list of files has no end")
        hub.faults["tree"] = [fake.body(b"[]", {"Link": link}) for link in links]
        c.run("pull", ID, code=1, err="more than 1000 pages")
    hub.close()
    other.close()


def test_encryption():
    """https is not left for http; a certificate that nobody vouches for is refused."""
    if not shutil.which("openssl"):
        return "no openssl command to make a certificate"
    files = small_files()
    with Cache() as c:
        key, cert = os.path.join(c.home, "key"), os.path.join(c.home, "cert")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key,
                        "-out", cert, "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        hub = fake.FakeHub(files, tls=context)
        with Cache(hub) as c2:
            p = c2.run("pull", ID, code=1, err="127.0.0.1: its certificate is refused")
            assert "trying again" not in p.stderr
            c2.run("pull", ID, code=1, SSL_CERT_FILE=cert, err=["127.0.0.1 without encryption (http), which is refused"])
            c2.check_not_whole(WEIGHTS)
        hub.close()
        hub = fake.FakeHub(files, tls=context, cdn_tls=context)
        with Cache(hub) as c2:
            c2.run("pull", ID, CURL_CA_BUNDLE=cert)
            c2.check_whole(hub, files)
        hub.close()
        hub = fake.FakeHub(files, cdn_tls=context) # from http to https is fine
        with Cache(hub) as c2:
            c2.run("pull", ID, SSL_CERT_FILE=cert)
            c2.check_whole(hub, files)
        hub.close()
    return None


def test_endpoints():
    hub = small_hub()
    with Cache(hub) as c:
        for bad in ("ftp://x", "huggingface.co", "http://user:pw@x", "http://x?y", "http://a b"):
            p = c.run("pull", ID, HF_ENDPOINT=bad, code=2, err="HF_ENDPOINT")
            assert "pw" not in p.stderr
        c.run("pull", ID, HF_ENDPOINT=hub.url + "//")
        c.check_whole(hub, hub.files)
        c.run("pull", ID, HF_ENDPOINT="http://x" + "y" * 5000, code=1, err="too long an address")
    hub.close()


# ---- disks ---------------------------------------------------------------------------------------------

def test_no_space():
    """The check before anything is written, on a small file system of its own."""
    hub = small_hub()
    with Cache(hub) as c:
        small = os.path.join(c.home, "small")
        os.mkdir(small)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", small], capture_output=True).returncode:
            hub.close()
            return "a small tmpfs cannot be mounted here"
        try:
            cache = os.path.join(small, "not", "yet")
            c.run("pull", ID, "--cache-dir", cache, code=1,
                  err=["0.31 MB are to be downloaded and 0.13 are free", "--cache-dir"])
            assert os.listdir(small) == []
            c.run("pull", ID, "--cache-dir", cache, "--exclude", WEIGHTS)
        finally:
            subprocess.run(["umount", small], check=True)
    hub.close()
    return None


def test_disk_full_on_the_way():
    """A limit on the size of files stands for a disk that fills up."""
    hub = small_hub()
    with Cache(hub) as c:
        p = subprocess.run([NIBBLE, "pull", ID], env=c.env, capture_output=True, text=True, timeout=60,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)))
        assert p.returncode == 1 and "model.safetensors: cannot write to" in p.stderr, p.stderr
        assert "make room" in p.stderr
        c.check_not_whole(WEIGHTS)
        assert c.partial(hub.blob(WEIGHTS)) == 100000
        hub.reset()
        c.run("pull", ID)
        c.check_whole(hub, hub.files)
        assert hub.sent[hub.blob(WEIGHTS)] == len(hub.files[WEIGHTS]) - 100000
    hub.close()


def test_locks_of_others():
    """huggingface_hub holds the same lock while it downloads."""
    hub = small_hub()
    with Cache(hub) as c:
        locks = os.path.join(c.hub_dir, ".locks", os.path.basename(c.repo))
        os.makedirs(locks)
        held = open(os.path.join(locks, hub.blob(WEIGHTS) + ".lock"), "w")
        fcntl.flock(held, fcntl.LOCK_EX)
        p = c.start("pull", ID)
        wait_for(lambda: "waiting for another download of it" in p.stderr.readline())
        assert hub.count("cdn:" + hub.blob(WEIGHTS)) == 0
        os.remove(held.name) # some versions remove it when they are done
        held.close()
        out, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
        c.check_whole(hub, hub.files)
    hub.close()


# ---- hostile lists ---------------------------------------------------------------------------------------

def entry(path, more=None):
    return {"type": "file", "oid": "a" * 40, "size": 5, "path": path, **(more or {})}


def test_hostile_names():
    bad = ["../x", "a/../../x", "/etc/passwd", "./x", "a//b", "a/", "", ".", "..", "a\\b", "a\nb", "a\x00b", "a\x7fb",
           "x" * 231, "a/" * 500 + "xyz", "a/./b"]
    hub = small_hub()
    with Cache(hub) as c:
        for name in bad:
            hub.entries = [hub.entry(WEIGHTS), entry(name)]
            p = c.run("pull", ID, "--include", "*", code=1, err=ID)
            assert len(p.stderr.strip().splitlines()) == 1, p.stderr
            assert not os.path.exists(c.hub_dir), name
        hub.entries = [hub.entry(WEIGHTS), hub.entry("config.json"), hub.entry("config.json")]
        c.run("pull", ID, code=1, err="'config.json' is refused: it is listed twice")
        hub.entries = [hub.entry(WEIGHTS), entry("d"), entry("d/e")]
        hub.files["d"] = hub.files["d/e"] = b"12345"
        hub.entries[1]["oid"] = hub.entries[2]["oid"] = fake.git_sha1(b"12345")
        c.run("pull", ID, "--include", "*", code=1, err="/d")
        d = os.path.join(c.snapshot, "d") # both are downloaded at once; the first takes the name
        assert os.path.islink(d) != os.path.islink(os.path.join(d, "e"))
        hub.page_size = 200000
        hub.entries = [entry(f"f{i}") for i in range(100001)]
        c.run("pull", ID, code=1, err="more files than the limit of 100000")
        hub.entries = [hub.entry(n) for n in small_files()] + [entry(f"f/{i}") for i in range(20000)]
        c.run("pull", ID)
    hub.close()


def test_hostile_metadata():
    hub = small_hub()
    sha = "a" * 64
    with Cache(hub) as c:
        for broken in ({"oid": "A" * 40}, {"oid": "a" * 39}, {"oid": 5}, {"oid": "../../x"}, {"size": -1}, {"size": 1.5},
                       {"size": "5"}, {"size": 1 << 60}, {"size": None}, {"lfs": {"oid": sha}}, {"type": "link"},
                       {"lfs": {"oid": sha, "size": 6}}, {"lfs": {"oid": "a" * 40, "size": 5}}, {"path": 7}, {"path": None}):
            hub.entries = [hub.entry(WEIGHTS), entry("config.json", broken)]
            p = c.run("pull", ID, code=1, err=ID)
            assert len(p.stderr.strip().splitlines()) == 1 and not os.path.exists(c.hub_dir), (broken, p.stderr)
        hub.entries = [{**entry(WEIGHTS), "size": 1 << 45, "lfs": {"oid": sha, "size": 1 << 45}}]
        c.run("pull", ID, code=1, err="are to be downloaded and") # no disk has that
        for text in (b"", b"{}", b"nonsense", b"[1]", b"[{}]", b"[" * 100000, b'[{"path": "\xff"}]', b"[null]",
                     b'[{"type": "file", "type": "file"}]', b" " * 1000):
            hub.faults["tree"] = [fake.body(text, always=True)]
            p = c.run("pull", ID, code=1, err=ID)
            assert len(p.stderr.strip().splitlines()) == 1, p.stderr
        hub.faults["tree"] = []
        for text in (b"", b"[]", b"{}", b'{"sha": 5}', b'{"sha": "main"}', b'{"sha": "../../x"}', b"<html>"):
            hub.faults["info"] = [fake.body(text, always=True)]
            p = c.run("pull", ID, code=1, err=ID)
            assert len(p.stderr.strip().splitlines()) == 1, p.stderr
        hub.faults["info"] = [fake.body(b" " * (65 << 20), always=True)]
        c.run("pull", ID, code=1, err="sends more than 64 MiB")
        hub.faults["info"] = [fake.Fault("status_body", (404, b"x" * (8 << 20)), True)]
        c.run("pull", ID, code=1, err="check the id")
        assert not os.path.exists(c.hub_dir)
    hub.close()


main(sys.modules[__name__])
