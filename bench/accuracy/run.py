#!/usr/bin/env python3
"""The ablation: what each way of keeping the cache costs, one factor at a time.

    python3 bench/accuracy/run.py build/release/nibble --quick -o quick.json
    python3 bench/accuracy/run.py build/release/nibble --full --hard outliers,spread --seeds DIR... \\
        -o bench/results/accuracy.json && python3 bench/accuracy/report.py bench/results/accuracy.json

Measures with `nibble calibrate`, `nibble eval kl`, `ruler` and `attn` (cells.py has the table) on the
bundled model, on variants of it that compute the same function from a harder cache (make_hard.py), on
further models, and on generated tensors.  Texts are books that nibble-tiny was not trained on and two
other corpora, from --corpora (default $NB_DATA_DIR/corpora, else ../shared/data/corpora), or the files of
--text and --calibration-text.  Finished cells are kept in --work, and the same binary does not measure
them again.  Needs only Python's standard library.
"""
import argparse
import concurrent.futures
import hashlib
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile
import time

import cells

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
# The last document of these files was held out of training; the others were never trained on.
HELD_OUT = ["chilit", "classic_children_md", "dickens_dnov", "c19_novels"]
OTHER = ["wikitext2_test", "tinyshakespeare"]
CALIBRATION = ["gitenberg_children", "wikitext2_valid"]
SLICE = 6000  # characters of one text in turn: about a window
KEEP_BUILD = 16


def fail(text):
    raise SystemExit("run: " + text)


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, cwd=SOURCE, check=False)
    return done.stdout.strip()


def machine(nibble):
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        cpu = re.search(r"^model name\s*: (.*)$", f.read(), re.M)
    with open("/proc/meminfo", encoding="utf-8") as f:
        memory = int(re.search(r"^MemTotal:\s*(\d+)", f.read(), re.M).group(1)) / (1 << 20)
    version = output(nibble, "--version")
    compiler = re.search(r"\((.*)\)", version)
    isa = re.search(r"this machine: (.*)", version)
    dirty = "+" if output("git", "status", "--porcelain", "--untracked-files=no") else ""
    return (f"{cpu.group(1) if cpu else 'unknown CPU'}, {os.cpu_count()} cores, {isa.group(1) if isa else '?'}, "
            f"{memory:.1f} GiB, {compiler.group(1) if compiler else '?'}, "
            f"commit {output('git', 'rev-parse', '--short', 'HEAD')}{dirty}")


# ---- text -----------------------------------------------------------------------

def corpora_path(given):
    data = os.environ.get("NB_DATA_DIR") or os.path.join(SOURCE, "..", "shared", "data")
    path = given or os.path.join(data, "corpora")
    if not os.path.isdir(path):
        fail(f"{path}: no such folder; give texts with --text and --calibration-text, or --corpora")
    return path


def last_document(path, name):
    with lzma.open(os.path.join(path, name + ".txt.xz"), "rt", encoding="utf-8") as f:
        documents = [d.strip() for d in f.read().split("<|endoftext|>") if d.strip()]
    return documents[-1]


def mixed(path, names, n_char):
    """Slices of the texts in turn, after their first pages."""
    texts = [last_document(path, n) for n in names]
    parts, at = [], 4000
    while sum(map(len, parts)) < n_char:
        parts += [t[at:at + SLICE] for t in texts]
        at += SLICE
    return "\n\n".join(parts)


def write_text(work, name, text):
    """-> path, relative to the work folder"""
    with open(os.path.join(work, name), "w", encoding="utf-8") as f:
        f.write(text)
    return name


def texts(a, work, size):
    def read(path):
        with open(path, encoding="utf-8") as f:
            return f.read()
    path = None if a.text and a.calibration_text else corpora_path(a.corpora)
    eval_text = read(a.text) if a.text else mixed(path, HELD_OUT + OTHER, 12 * cells.SIZES[size]["n"])
    cal_text = read(a.calibration_text) if a.calibration_text else mixed(path, CALIBRATION, 12 * cells.SIZES[size]["calibrate"])
    return {"TEXT": write_text(work, "text.txt", eval_text), "CALTEXT": write_text(work, "calibration.txt", cal_text)}


# ---- cells ----------------------------------------------------------------------

def sha256(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            h.update(block)
    return h.hexdigest()


def model_hash(path):
    h = hashlib.sha256()
    for name in sorted(os.listdir(path)):
        if name.endswith((".safetensors", ".json")):
            h.update(sha256(os.path.join(path, name)).encode())
    return h.hexdigest()


def waited(command, folder):
    """-> exit code, processor seconds, what it printed, its errors"""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder)
        _, status, use = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for f in (out, err):
            f.seek(0)
        return process.returncode, use.ru_utime + use.ru_stime, out.read().decode(), err.read().decode(errors="replace")


class Runner:
    def __init__(self, a, work):
        self.a, self.work = a, work
        self.nibble = os.path.abspath(a.nibble)
        self.build = sha256(self.nibble)[:KEEP_BUILD]
        self.failed = []
        os.makedirs(os.path.join(work, "cells"), exist_ok=True)
        for name in sorted(os.listdir(os.path.join(work, "cells"))):  # of another build
            if not a.keep and not name.startswith(self.build):
                os.unlink(os.path.join(work, "cells", name))

    def cell(self, model, name, arguments, inputs):
        """-> {"seconds", "cpu_seconds", "result"}; inputs: hashes of what it reads"""
        key = hashlib.sha256(json.dumps([model, arguments, inputs]).encode()).hexdigest()[:24]
        path = os.path.join(self.work, "cells", ("" if self.a.keep else self.build + "-") + key + ".json")
        makes = arguments[arguments.index("-o") + 1] if "-o" in arguments else None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                done = json.load(f)
            if makes:  # the file that other cells read
                with open(os.path.join(self.work, makes), "w", encoding="utf-8") as f:
                    f.write(done["file"])
            return done
        start = time.monotonic()
        command = [self.nibble, *arguments] + ([] if makes else ["--json"])
        code, cpu, out, err = waited(command, self.work)
        seconds = time.monotonic() - start
        print(f"{model}: {name}: {seconds:.1f} s", file=sys.stderr)
        if code:
            line = (err.strip() or "no message").splitlines()[-1]
            print(f"  failed: {line}", file=sys.stderr)
            self.failed.append(f"{model}: {name}: {line}")
            return None
        done = {"seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1)}
        if makes:
            with open(os.path.join(self.work, makes), encoding="utf-8") as f:
                done["file"] = f.read()
            done["result"] = out
        else:
            done["result"] = json.loads(out)
        with open(path + ".tmp", "w", encoding="utf-8") as f:
            json.dump(done, f)
        os.rename(path + ".tmp", path)
        return done

    def model(self, name, path, kind, size, text):
        """All cells of a model -> {cell: ...}"""
        put = {**text, "MODEL": os.path.abspath(path), "CAL": "cal-" + re.sub(r"\W", "-", name) + ".json"}
        inputs = [model_hash(path)] + [sha256(os.path.join(self.work, t)) for t in text.values()]
        out = {}
        for cell, arguments in cells.of_model(kind, size, self.a.samples):
            words = [re.sub(r"\b(TEXT|CALTEXT|MODEL|CAL)\b", lambda m: put[m.group(1)], x) for x in arguments]
            done = self.cell(name, cell, words, inputs)
            if done:
                result = done["result"]
                if isinstance(result, dict):  # names as in the table, whatever the file is called
                    result = json.loads(json.dumps(result).replace(put["CAL"], "CAL"))
                out[cell] = {**{k: done[k] for k in ("seconds", "cpu_seconds")}, "arguments": arguments[:2], "result": result}
            elif cell == "calibrate":
                break
        return out


def make_hard(work, base, name):
    out = os.path.join(work, "models", os.path.basename(os.path.normpath(base)) + "-" + name)
    script = os.path.join(HERE, "make_hard.py")
    done = subprocess.run([sys.executable, "-B", script, base, out, *cells.HARD[name]], check=False)
    if done.returncode:
        fail(f"make_hard.py {name}")
    return out


def options():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("nibble")
    ap.add_argument("--models", nargs="+", default=[os.path.join(SOURCE, "models", "nibble-tiny")], metavar="DIR")
    ap.add_argument("--hard", default="", metavar="LIST", help="variants of the first model: " + ", ".join(cells.HARD))
    ap.add_argument("--seeds", nargs="*", default=[], metavar="DIR", help="more models, measured with the shorter set")
    ap.add_argument("--quick", action="store_true", help="few variants, little text")
    ap.add_argument("--full", action="store_true")
    ap.add_argument("--samples", type=int, default=0, help="prompts per retrieval task, for all models")
    ap.add_argument("--no-stress", action="store_true", help="skip the generated tensors")
    ap.add_argument("--text", help="text to measure on")
    ap.add_argument("--calibration-text", help="another text, to calibrate with")
    ap.add_argument("--corpora", metavar="DIR")
    ap.add_argument("--work", metavar="DIR", default=os.path.join(SOURCE, "build", "accuracy"))
    ap.add_argument("--keep", action="store_true", help="reuse cells measured by another build")
    ap.add_argument("-o", "--output", required=True)
    a = ap.parse_args()
    if a.quick == a.full:
        ap.error("give one of --quick and --full")
    for name in filter(None, a.hard.split(",")):
        if name not in cells.HARD:
            ap.error(f"--hard {name}: expected some of {', '.join(cells.HARD)}")
    return a


def main():
    a = options()
    size = "quick" if a.quick else "full"
    work = os.path.abspath(a.work)
    os.makedirs(os.path.join(work, "models"), exist_ok=True)
    text = texts(a, work, size)
    runner = Runner(a, work)
    plan = [(os.path.basename(os.path.normpath(m)), m, size[0]) for m in a.models]
    short = "q" if a.quick else "h"
    plan += [(f"{plan[0][0]}, {n}", make_hard(work, a.models[0], n), short) for n in filter(None, a.hard.split(","))]
    plan += [(os.path.basename(os.path.normpath(m)), m, short) for m in a.seeds]
    if len({name for name, _, _ in plan}) < len(plan):
        fail("two models have the same name")
    report = {"machine": machine(runner.nibble), "load_average": round(os.getloadavg()[0], 2), "size": size,
              "text": "given" if a.text else HELD_OUT + OTHER, "calibration_text": "given" if a.calibration_text else CALIBRATION,
              "variants": [[w, f] for w, f, _ in cells.VARIANTS], "models": {}, "stress": {}}
    for name, path, kind in plan:
        report["models"][name] = runner.model(name, path, kind, size, text)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:  # each runs on one core
        todo = [] if a.no_stress else cells.of_stress(size)
        for (name, _), done in zip(todo, pool.map(lambda c: runner.cell("stress", *c, []), todo)):
            if done:
                report["stress"][name] = {k: done[k] for k in ("seconds", "cpu_seconds", "result")}
    every = [c for m in report["models"].values() for c in m.values()] + list(report["stress"].values())
    report["seconds"] = round(sum(c["seconds"] for c in every), 1)  # of the cells, also of earlier runs
    report["cpu_seconds"] = round(sum(c["cpu_seconds"] for c in every), 1)
    report["failed"] = runner.failed
    with open(a.output, "w", encoding="utf-8") as f:
        json.dump(report, f, indent=1)
        f.write("\n")
    print(f"{len(every)} cells, {report['seconds']:.0f} s ({report['cpu_seconds']:.0f} s of processor time); "
          f"{len(runner.failed)} failed", file=sys.stderr)
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())
