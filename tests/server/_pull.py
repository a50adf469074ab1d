"""_pull.py - what the tests of `nibble pull` share: a clean environment, the command, a cache to look at."""
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import time
import traceback

NIBBLE = os.path.abspath(sys.argv[1])
SOURCE = os.path.abspath(sys.argv[2])
TINY = os.path.join(SOURCE, "models", "nibble-tiny")


def tiny_files():
    """The bundled model as a repository, with what pull leaves out."""
    files = {}
    for name in os.listdir(TINY):
        with open(os.path.join(TINY, name), "rb") as f:
            files[name] = f.read()
    files.update({"LICENSE": b"a licence\n", "pytorch_model.bin": b"pickle", "original/consolidated.00.pth": b"x",
                  "onnx/model.onnx": b"x", "model.gguf": b"GGUF", "configuration_nibble.py": b"import os\n"})
    return files


def small_files():
    """Enough for `pull` to be content; `run` is not tried."""
    return {"config.json": b'{"model_type": "x"}', "tokenizer.json": b"{}", "README.md": b"# read me\n",
            "model.safetensors": bytes(range(256)) * 1200}


class Cache:
    """A cache of its own for one test."""

    def __init__(self, hub=None, **env):
        self.folder = tempfile.TemporaryDirectory(prefix="nibble-pull-")
        self.home = self.folder.name
        self.hub_dir = os.path.join(self.home, "hub")
        keep = {k: v for k, v in os.environ.items()
                if not k.startswith("HF_") and not k.startswith("HUGGINGFACE") and not any(w in k.lower() for w in ("proxy", "ssl_cert", "ca_bundle", "xdg_"))}
        self.env = {**keep, "HF_HOME": self.home, "HF_HUB_DOWNLOAD_TIMEOUT": "10"}
        if hub:
            self.env["HF_ENDPOINT"] = hub.url
            self.repo = os.path.join(self.hub_dir, "models--" + hub.id.replace("/", "--"))
            self.snapshot = os.path.join(self.repo, "snapshots", hub.commit)
        self.env.update(env)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.folder.cleanup()

    def run(self, *args, code=0, err=(), out=(), timeout=120, **env):
        """Runs nibble; its exit code must be `code`, its two streams must hold the words."""
        p = subprocess.run([NIBBLE, *args], env={**self.env, **env}, capture_output=True, timeout=timeout,
                           stdin=subprocess.DEVNULL, text=True, errors="replace")
        told = f"nibble {' '.join(args)}: exit code {p.returncode}\n{p.stdout}{p.stderr}"
        assert p.returncode == code, told
        for word in [err] if isinstance(err, str) else err:
            assert word in p.stderr, f"'{word}' is not said by {told}"
        for word in [out] if isinstance(out, str) else out:
            assert word in p.stdout, f"'{word}' is not printed by {told}"
        return p

    def start(self, *args, **env):
        return subprocess.Popen([NIBBLE, *args], env={**self.env, **env}, stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def names(self):
        """The files of the snapshot."""
        found = []
        for at, _, names in os.walk(self.snapshot):
            found += [os.path.relpath(os.path.join(at, n), self.snapshot) for n in names]
        return sorted(found)

    def ref(self, name="main"):
        path = os.path.join(self.repo, "refs", name)
        return open(path).read() if os.path.exists(path) else None

    def partial(self, blob):
        path = os.path.join(self.repo, "blobs", blob + ".incomplete")
        return os.path.getsize(path) if os.path.exists(path) else None

    def check_whole(self, hub, names):
        """Every file is there, by a relative link to the blob of its hash; nothing else is."""
        assert self.names() == sorted(names), self.names()
        for name in names:
            link = os.readlink(os.path.join(self.snapshot, name))
            assert link == "../" * (2 + name.count("/")) + "blobs/" + hub.blob(name), link
            with open(os.path.join(self.snapshot, name), "rb") as f:
                assert f.read() == hub.files[name], name
        assert not [b for b in os.listdir(os.path.join(self.repo, "blobs")) if b.endswith(".incomplete")]
        assert self.ref() == hub.commit

    def check_not_whole(self, missing):
        """After a failure: the revision names nothing, and the file is not in the snapshot."""
        assert self.ref() is None
        assert missing not in self.names()


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def run_one(name, function):
    """Whether it passed, and what to print."""
    begun = time.monotonic()
    try:
        why = function()
    except Exception: # the others still run
        return False, f"FAILED {name}\n{traceback.format_exc(limit=-3)}"
    return True, f"{'skipped: ' + why if why else 'ok'} {name} ({time.monotonic() - begun:.1f} s)"


def main(module):
    """Runs the functions test_* of a module, some at a time, as most of them wait; NB_ONLY=word chooses."""
    only = os.environ.get("NB_ONLY", "")
    tests = [(n, f) for n, f in vars(module).items() if n.startswith("test_") and only in n]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        results = [pool.submit(run_one, *t) for t in tests]
        for r in results:
            print(r.result()[1], flush=True)
    sys.exit(0 if all(r.result()[0] for r in results) else 1)
