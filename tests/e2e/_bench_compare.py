"""_bench_compare.py SOURCE_DIR FOLDER - what bench_compare.sh tests, in one process: bench/compare on results that are
made here, on the recorded ones, and on FOLDER/k.json and t.json, which the command printed."""
import contextlib
import copy
import glob
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import sys

src, tmp = sys.argv[1:]
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("compare", os.path.join(src, "bench", "compare"))
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", loader))
loader.exec_module(module)


def run(code, *args):
    """(stdout, stderr) of compare, which must exit with `code`."""
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["compare"] + [str(a) for a in args]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            rc = module.main()
        except SystemExit as e:
            rc = e.code
    assert rc == code, (rc, code, args, out.getvalue(), err.getvalue())
    return out.getvalue(), err.getvalue()


def says(code, words, *args):
    out, _ = run(code, *args)
    for w in words:
        assert re.search(w, out, re.M), (w, out)
    return out


def refused(words, *args):
    out, err = run(2, *args)
    assert out == "" and err.count("\n") == 1 and words in err, (words, out, err)


def put(name, text):
    path = os.path.join(tmp, name)
    with open(path, "wb") as f:
        f.write(text if isinstance(text, bytes) else text.encode())
    return path


def row(name, median, rel, n=9, better="lower", unit="ns"):
    return dict(name=name, unit=unit, better=better, median=median, mad=median * rel if n > 1 else None,
                lo=median * (1 - 2 * rel), hi=median * (1 + 4 * rel), n=n)


def control(at=1.0):
    return dict(median=at, mad=0.001, lo=0.99 * at, hi=1.1 * at, n=15)


PLAIN = dict(schema=1, command="bench kernel", version="0.1.0", commit="abc", date="20261121-200000",
             machine=dict(cpu="X", processors=2, caps="avx2", build="Release"),
             results=[row("quiet", 1000.0, 0.005), row("loud", 1000.0, 0.08), row("rate", 50.0, 0.005, better="higher", unit="MiB/s"),
                      row("few", 10.0, 0.005, n=3, unit="ms"), row("once", 10.0, 0, n=1, unit="ms")],
             noise=dict(rows=4, control_ns=dict(begin=control(), end=control()), load_average=dict(begin=0, end=0)))


def make(name, change=None, **by):
    """A result whose rows are scaled by name, then given to `change` with its rows by name."""
    j = copy.deepcopy(PLAIN)
    rows = {r["name"]: r for r in j["results"]}
    for key, x in by.items():
        for k in ("median", "lo", "hi", "mad"):
            rows[key][k] = rows[key][k] and rows[key][k] * x
    if change:
        change(j, rows)
    return put(name, json.dumps(j))


def slow(by):
    def change(j, _):
        j["noise"]["control_ns"] = dict(begin=control(by), end=control(by))
    return change


def regressions(base):
    says(0, ["^5 figures: 0 worse, 0 better, 5 within the noise; 0 missing, 0 added"], base, base)
    says(1, [r"^worse +20\.0% .* quiet$", "1 worse, 0 better, 4 within"], base, make("new.json", quiet=1.2))
    says(0, ["0 worse, 0 better, 5 within"], base, make("new.json", quiet=1.02, loud=1.2, rate=1 / 1.02, few=1.02, once=1.2))
    says(1, [r"^worse +25\.0% .* rate$", r"^worse +20\.0% .* few$"], base, make("new.json", rate=0.8, few=1.2))
    new = make("new.json", quiet=0.8, rate=1.2, once=1.6)
    says(1, ["^better .* quiet$", "^better .* rate$", r"^worse .* once \(spread not recorded\)$"], base, new)
    run(0, "--sigmas", 5, base, new)
    run(1, "--sigmas", 0, "--floor", 0, base, new)


def noise(base):
    def loud(_, rows):
        rows["quiet"]["mad"] = 100.0
    run(0, base, make("new.json", loud, quiet=1.2)) # of either side
    run(0, make("new.json", loud), make("new2.json", quiet=1.2))
    says(0, ["the machine was 25% slower in the new run"], base, make("new.json", slow(1.25), quiet=1.2))
    run(1, base, make("new.json", slow(1.25), quiet=1.6))
    run(1, base, make("new.json", slow(0.8), quiet=1.2)) # a faster machine excuses nothing
    says(3, ["^unsure .* quiet$", "0 worse, 0 better, 4 within the noise, 1 unsure"], base, make("new.json", slow(1.5), quiet=2.5))
    says(0, ["0 worse, 0 better, 4 within the noise, 1 unsure"], base, make("new.json", slow(0.5), quiet=0.3))
    says(1, ["^worse .* quiet$"], base, make("new.json", slow(0.5), quiet=1.1))
    run(0, base, make("new.json", slow(1.2), quiet=1.23))
    new, other = make("new.json", quiet=1.2), make("new2.json", quiet=0.95)
    run(1, base, new)
    run(0, base, new, "--also-new", other)
    lines = put("lines.json", open(new).read() + "\n" + open(other).read() + "\n")
    run(0, base, lines)
    out, _ = run(1, "--json", base, new)
    assert [(x["name"], x["verdict"]) for x in json.loads(out)[0]["rows"] if x["verdict"] != "same"] == [("quiet", "worse")], out


def rows_and_machines(base):
    def drop(j, _):
        j["results"] = j["results"][1:] + [row("another", 1, 0)]
    new = make("new.json", drop)
    says(0, ["^missing +quiet$", "^added +another$", "1 missing, 1 added"], base, new)
    run(1, "--strict", base, new)
    assert "^missing" not in run(0, "--only-common", base, new)[0]

    def other_cpu(j, _):
        j["machine"]["cpu"] = "Y"
    other = make("other.json", other_cpu, quiet=1.2)
    refused("different machines: X, 2 processors, avx2; Y, 2 processors, avx2", base, other)
    run(1, "--any-machine", base, other)
    folder = os.path.join(tmp, "results")
    os.mkdir(folder)
    os.symlink(base, os.path.join(folder, "base.json"))
    says(1, ["^base: .*base.json"], "--results", folder, make("new.json", quiet=1.2))
    refused("no results of Y, 2 processors", "--results", folder, other)

    def nothing(j, _):
        j["results"] = [row("no", 1, 0)]
    refused("no figure in common", base, make("none.json", nothing))


def hostile(base):
    refused("no such file", base, os.path.join(tmp, "absent.json"))
    refused("not a file", base, tmp)
    for words, text in [("not JSON", ""), ("not JSON", '{"schema": 1, "results": ['), ("not JSON", '{"a": 1} x'),
                        ("expected an object", "[]"), ("expected an object", "3"), ("not a result", "{}"),
                        ("not a result", '{"runs": 3}'), ("schema 2: expected 1", '{"schema": 2, "results": []}'),
                        ("results: expected a list", '{"schema": 1, "results": {}}'),
                        ("no figures", '{"schema": 1, "results": []}'),
                        ("results[0]: expected an object", '{"schema": 1, "results": [4]}'),
                        ("results[0].name: expected a text", '{"schema": 1, "results": [{"name": 4}]}'),
                        ("NaN is not a number", '{"schema": 1, "results": [{"median": NaN}]}'),
                        ("bad.json", "[" * 200000), ("bad.json", b"\377\376"), ("bad.json", '{"output_throughput": []}')]:
        bad = put("bad.json", text)
        refused(words, base, bad)
        refused(words, bad)
    for key, value in [("median", "1"), ("median", 10**400), ("median", True), ("median", None), ("lo", 2000.0), ("hi", "x"),
                       ("n", 0), ("n", 1.5), ("mad", -1), ("better", "more"), ("name", None), ("unit", 3)]:
        def change(_, rows, key=key, value=value):
            rows["quiet"][key] = value
        refused("results[0]", base, make("bad.json", change))

    def no_noise(j, _):
        j["noise"] = 3
    refused("not a result", base, make("bad.json", no_noise))

    def escape(_, rows):
        rows["quiet"]["name"] = "a\x1b[31mb"
    assert "\x1b" not in "".join(run(0, base, make("bad.json", escape)))
    run(2)
    run(2, base, base, base)
    run(2, base, base, "--floor", "nan")


def recorded():
    """What lies in bench/results, and the command's output in its form of before as well."""
    for path in sorted(glob.glob(os.path.join(src, "bench", "results", "*.json"))):
        says(0, [" 0 worse, 0 better, [1-9]"], path, path)
    base = os.path.join(src, "bench", "results", "gpu_h100.json")
    measured = {f.name: f for f in module.figures_of(json.load(open(base)))}
    def on_gpu(j, _): # the names that the command has on a GPU: one figure as it was, one twice as slow
        j["device"] = dict(name="NVIDIA H100 80GB HBM3", emulated=False)
        j["results"] = [row(name, times * measured[name].value, 0.01, unit=measured[name].unit)
                        for name, times in [("attn_pages cuda nvfp4 heads=16 queries=1 batch=128 context=4096", 1),
                                            ("decode v2lite BF16 nvfp4 depth=512 sequences=1 gpu", 2)]]
    says(1, ["^2 figures: 1 worse", "^worse .* decode v2lite"], base, make("gpu.json", on_gpu))
    for name in ("k", "t"):
        path = os.path.join(tmp, name + ".json")
        j = json.load(open(path))
        for key in ("schema", "command", "version", "commit", "date", "noise"):
            del j[key]
        for r in j["results"]:
            for key in ("name", "unit", "better", "median", "mad", "lo", "hi", "n"):
                del r[key]
        if "decode" in j:
            del j["results"]
        says(0, ["; 0 missing, 0 added;"], path, put("old.json", json.dumps(j)))


plain = make("base.json")
regressions(plain)
noise(plain)
rows_and_machines(plain)
hostile(plain)
recorded()
