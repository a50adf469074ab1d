#!/usr/bin/env python3
"""compare.py - nibble, ik_llama.cpp and llama.cpp on the same random weights, in turns, on this machine.

    compare.py --nibble PATH --out FILE [--ik SOURCE] [--llama LIBRARIES --llama-source SOURCE]
               [--part attention,steps] [--level best|avx2] [--weights q8_0,q4_k_m] [--threads N,N]
               [--depth 512,16384] [--rounds N] [--with 'COMMAND'] [--quick]

SOURCE of --ik is a source tree of ik_llama.cpp with a build in SOURCE/build (--level avx2: in
SOURCE/build-avx2); LIBRARIES is the folder of llama.cpp's prebuilt libllama.v*.so, and --llama-source the
source tree of that release.  README.md says how to get them.

  attention  attn_peer.c against `nibble bench kernel --op attn_pages`: slope of a decode step's attention
             between 512 tokens and the last --depth
  steps      llama_peer.c against `nibble bench throughput --depth`: at each depth a prompt of 512 tokens
             behind it, and single tokens, on the model ds4l of make_model.py

In each round every engine runs once, so that other load disturbs all; the result has medians over the
rounds, and the rates of the machine in each.  What could not be measured is listed under "missing" with
the reason.  --part, --weights, --threads and --only choose what a call measures; a FILE that exists keeps
its other rows, so that a long comparison can be made of short calls.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CHUNK, STEPS = 512, 32
FIELDS = ["prompt", "decode", "peak_mib"]  # of a depth
# Cache types that are compared, the peers' beside ours; the peers' own best is found among them.
ATTENTION = {"ik": ["q8_0", "q4_0", "f16", "iq4_nl"], "nibble": ["nvfp4", "fp8", "bf16"]}
CACHE = {"ik": ["q8_0", "q4_0"], "llama": ["f16"], "nibble": ["nvfp4", "bf16"]}
# Weights: the peers' file, and what nibble runs: the same file, and its own 8 bits from the BF16 folder.
WEIGHTS = {"q8_0": [("q8_0", "gguf", []), ("int8", "hf", ["--weight-dtype", "int8"])],
           "q4_k_m": [("q4_k_m", "gguf", [])],
           "bf16": [("bf16", "hf", [])]}
FTYPE = {"q4_k_m": "15", "q5_k_m": "17", "q6_k": "18"}  # enum llama_ftype


class Missing(Exception):
    """Why a part is not there."""


def run(cmd, timeout=1800, env=None):
    try:
        r = subprocess.run(cmd, capture_output=True, text=True, timeout=timeout, env=dict(os.environ, **(env or {})))
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Missing(f"{os.path.basename(cmd[0])}: {e}") from e
    if r.returncode != 0:
        last = (r.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise Missing(f"{shlex.join(cmd)}: exit code {r.returncode}: {last}")
    return r.stdout


def lines(out, what):
    try:
        rows = [json.loads(s) for s in out.splitlines() if s.startswith("{")]
    except ValueError as e:
        raise Missing(f"{what} printed a result that is no JSON: {e}") from e
    if not rows:
        raise Missing(f"{what} printed no result")
    return rows


def at_each(rows, key, wanted, fields, what):
    """The rows of which `key` is one of `wanted`, in that order, each with numbers in all of `fields`."""
    found = {r.get(key): r for r in rows}
    for k in wanted:
        lacks = [f for f in fields if not isinstance(found.get(k, {}).get(f), (int, float))]
        if lacks:
            raise Missing(f"{what} printed no {lacks[0]} at {key} {k}")
    return [found[k] for k in wanted]


class Engines:
    """Where the programs are; each is built when it is first needed."""

    def __init__(self, a):
        self.a = a
        self.pre = shlex.split(a.with_)
        self.ik_build = os.path.join(a.ik or "", "build" if a.level == "best" else "build-avx2")

    def ik(self, name):
        if not self.a.ik:
            raise Missing("no --ik")
        exe = os.path.join(self.ik_build, name)
        script = {"attn_peer": ["build_attn.sh", self.a.ik, exe, self.ik_build],
                  "llama_peer": ["build_llama.sh", "ik", self.a.ik, self.ik_build, exe]}[name]
        self.build(script, exe)
        return exe

    def llama(self):
        if not self.a.llama or not self.a.llama_source:
            raise Missing("no --llama and --llama-source")
        exe = os.path.join(self.a.model, "llama_peer")
        self.build(["build_llama.sh", "npm", self.a.llama, self.a.llama_source, exe], exe)
        return exe

    def build(self, script, exe):
        source = os.path.join(HERE, os.path.basename(exe) + ".c")
        if not os.path.exists(exe) or os.path.getmtime(exe) < os.path.getmtime(source):
            run(["sh", os.path.join(HERE, script[0])] + script[1:])

    def llama_env(self):
        env = {"LLAMA_LIBRARY_DIR": self.a.llama}
        if self.a.level == "avx2":
            env["GGML_CPU_LIBRARY"] = os.path.join(self.a.llama, "libggml-cpu-haswell.so")
        return env

    def caps(self):
        return ["--cpu-caps", "avx2"] if self.a.level == "avx2" else []

    def machine(self):
        out = run(self.pre + [self.a.nibble, "bench", "kernel", "--op", "rope", "--json", "--repeat", "1", "--sample-ms", "0",
                              "--set", "256"] + self.caps())
        return json.loads(out)


# ---- models -----------------------------------------------------------------------------------


def model(e, weights, form):
    """The GGUF of a form (joint: ik_llama.cpp and nibble; split: llama.cpp), or the folder; made when missing."""
    a = e.a
    path = os.path.join(a.model, "ds4l" if form == "hf" else f"ds4l-{form}-{weights}.gguf")
    if os.path.exists(path if form != "hf" else os.path.join(path, "config.json")):
        return path
    os.makedirs(a.model, exist_ok=True)
    make = [sys.executable, os.path.join(HERE, "make_model.py"), "--shape", "ds4l"]
    if form == "hf":
        run(make + ["--hf", path])
    elif weights in FTYPE:
        whole = path + ".bf16"
        try: # quantised by a peer's own function
            exe, env = (e.llama(), e.llama_env()) if a.llama else (e.ik("llama_peer"), {})
            run(make + ["--gguf", whole, "--type", "bf16", "--form", form])
            run([exe, "quantize", whole, path + ".part", FTYPE[weights], str(os.cpu_count())], env=env)
            os.rename(path + ".part", path)
        finally:
            if os.path.exists(whole):
                os.remove(whole)
    else:
        run(make + ["--gguf", path, "--type", weights, "--form", form])
    return path


# ---- one run of one engine ----------------------------------------------------------------------


def attention(e, engine, kind, threads):
    """{context: ns of a layer}"""
    a = e.a
    contexts = [512, a.depth[-1]]
    if engine == "ik":
        cmd = e.pre + [e.ik("attn_peer"), kind, str(a.heads), str(threads)] + [str(c) for c in contexts]
        rows = at_each(lines(run(cmd), "attn_peer"), "context", contexts, ["median_ns"], "attn_peer")
        return {r["context"]: r["median_ns"] for r in rows}
    cmd = e.pre + [a.nibble, "bench", "kernel", "--op", "attn_pages", "--record", kind, "--cache", "cold", "-t", str(threads),
                   "--heads", str(a.heads), "--context", ",".join(str(c) for c in contexts), "--json"] + e.caps()
    rows = at_each(lines(run(cmd), "nibble")[0].get("results", []), "context", contexts, ["median_ns"], "nibble bench kernel")
    return {int(r["context"]): r["median_ns"] for r in rows}


def peer_steps(e, engine, weights, kind, threads):
    """[{depth, prompt, decode, peak_mib}]"""
    exe = e.ik("llama_peer") if engine == "ik" else e.llama()
    gguf = model(e, weights, "joint" if engine == "ik" else "split")
    env = dict(e.llama_env() if engine == "llama" else {},
               PEER_STATE=os.path.join(e.a.model, f"state-{engine}-{kind}")) # of any weights: times do not depend on values
    depths = [d for d in e.a.depth if engine != "llama" or d <= e.a.llama_depth]
    if not depths:
        raise Missing(f"--llama-depth {e.a.llama_depth} leaves no depth")
    out = run(e.pre + [exe, "steps", gguf, str(threads), kind, str(CHUNK), str(STEPS)] + [str(d) for d in depths], env=env)
    what = f"llama_peer of {engine}"
    return at_each(lines(out, what), "depth", depths, FIELDS, what)


def our_steps(e, source, weights, kind, threads, options):
    a = e.a
    path = model(e, weights, "hf" if source == "hf" else "joint")
    common = [a.nibble, "bench", "throughput", path, "--kv-cache-dtype", kind, "-t", str(threads), "--depth",
              ",".join(str(d) for d in a.depth), "--skip-tokenizer-init", "--json"] + options + e.caps()
    rows = {d: {"depth": d} for d in a.depth}
    # Generated tokens use the absorbed form; its one prompt token must, too, or it expands the context.
    out = run(e.pre + common + ["--mla", "absorbed", "--depth-tokens", str(STEPS)])
    decode = lines(out, "nibble")[0].get("decode", [])
    for r in at_each(decode, "depth", a.depth, ["tokens_per_second", "peak_bytes"], "nibble bench throughput"):
        rows[r["depth"]].update(decode=r["tokens_per_second"], peak_mib=r["peak_bytes"] / 2**20)
    out = run(e.pre + common + ["--depth-tokens", "0", "--depth-prefill", str(CHUNK), "--depth-repeat", "1"])
    prompts = lines(out, "nibble")[0].get("prefill", [])
    for r in at_each(prompts, "depth", a.depth, ["tokens_per_second"], "nibble bench throughput --depth-prefill"):
        rows[r["depth"]].update(prompt=r["tokens_per_second"])
    return list(rows.values())


# ---- rounds -------------------------------------------------------------------------------------


def plan(e):
    """[(key of a row, function that measures it)] of one round, the engines in turns."""
    a, jobs = e.a, []
    for t in a.threads:
        if "attention" in a.part:
            for engine in [x for x in ("nibble", "ik") if x in a.only]:
                jobs += [({"part": "attention", "engine": engine, "cache": k, "threads": t, "heads": a.heads},
                          lambda engine=engine, k=k, t=t: [attention(e, engine, k, t)])
                         for k in a.cache.get(engine, ATTENTION[engine])]
        if "steps" not in a.part:
            continue
        for w in a.weights:
            for engine in [x for x in ("ik", "llama") if x in a.only]:
                jobs += [({"part": "steps", "engine": engine, "weights": w, "cache": k, "threads": t},
                          lambda engine=engine, w=w, k=k, t=t: peer_steps(e, engine, w, k, t))
                         for k in a.cache.get(engine, CACHE[engine])]
            if "nibble" in a.only:
                jobs += [({"part": "steps", "engine": "nibble", "weights": w, "ours": name, "cache": k, "threads": t},
                          lambda s=s, w=w, k=k, t=t, o=o: our_steps(e, s, w, k, t, o))
                         for name, s, o in WEIGHTS[w] if not a.ours or name in a.ours for k in a.cache.get("nibble", CACHE["nibble"])]
    return jobs


def measure(e, keep):
    """Calls keep(rows, missing, rates of the machine) after each round; what it was given last is the result."""
    got, missing, rates = {}, {}, []
    jobs = plan(e)
    for n in range(e.a.rounds):
        rates.append(e.machine()["peaks"][0])
        for key, job in jobs:
            name = json.dumps(dict(key, level=e.a.level))
            if name in missing:
                continue
            try:
                result = job()
                got.setdefault(name, []).append(result)
            except Missing as m:
                missing[name] = str(m)
                sys.stderr.write(f"missing: {name}: {m}\n")
        sys.stderr.write(f"round {n + 1} of {e.a.rounds}\n")
        keep(rows_of(got), [dict(json.loads(k), why=v) for k, v in missing.items()], rates)


def rows_of(got):
    rows = []
    for name, values in got.items():
        key = json.loads(name)
        if key["part"] == "attention":
            lo, hi = min(values[0][0]), max(values[0][0])
            slopes = [(v[0][hi] - v[0][lo]) / (hi - lo) for v in values]
            rows.append(dict(key, depth=hi, ns_per_token=statistics.median(slopes), all=slopes, rounds=len(values)))
            continue
        for i, first in enumerate(values[0]):
            row = dict(key, depth=first["depth"], rounds=len(values))
            for field in FIELDS:
                row[field] = statistics.median(v[i][field] for v in values)
                row["all_" + field] = [v[i][field] for v in values]
            rows.append(row)
    return rows


# ---- results ------------------------------------------------------------------------------------


def same(row):
    """What makes two rows the same measurement."""
    return json.dumps({k: row.get(k) for k in ("part", "level", "engine", "weights", "ours", "cache", "threads", "heads", "depth")})


def ratios(rows):
    """nibble over the best of each peer: of speed, so more than 1 is faster."""
    out = []
    for r in [x for x in rows if x["engine"] == "nibble"]:
        for peer in ("ik", "llama"):
            theirs = [x for x in rows if x["engine"] == peer and all(
                x.get(k) == r.get(k) for k in ("part", "level", "weights", "threads", "heads", "depth"))]
            if not theirs:
                continue
            base = {k: r[k] for k in ("part", "level", "weights", "ours", "cache", "threads", "heads", "depth") if k in r}
            if r["part"] == "attention":
                best = min(theirs, key=lambda x: x["ns_per_token"])
                out.append(dict(base, of="attention", peer=peer, peer_cache=best["cache"],
                                ratio=best["ns_per_token"] / r["ns_per_token"]))
                continue
            for field in ("decode", "prompt"):
                best = max(theirs, key=lambda x: x[field])
                out.append(dict(base, of=field, peer=peer, peer_cache=best["cache"], ratio=r[field] / best[field]))
    return out


def versions(a):
    out = {"nibble": run([a.nibble, "--version"]).strip()}
    for name, tree in (("ours", HERE), ("ik", a.ik), ("llama", a.llama_source)):
        try:
            out[name] = run(["git", "-C", tree, "rev-parse", "--short", "HEAD"]).strip() if tree else None
        except Missing:
            out[name] = None
    return out


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda s: s.split(",")
    numbers = lambda s: sorted(int(x) for x in s.split(","))
    p.add_argument("--nibble", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--ik", "--peer")
    p.add_argument("--llama")
    p.add_argument("--llama-source")
    p.add_argument("--model", default=os.path.join(HERE, "..", "..", "build", "peer"), help="folder of the weights")
    p.add_argument("--part", type=words, default=["attention", "steps"])
    p.add_argument("--only", type=words, default=["nibble", "ik", "llama"], help="engines")
    p.add_argument("--level", choices=("best", "avx2"), default="best", help="instruction set level of all engines")
    p.add_argument("--weights", type=words, default=["q8_0", "q4_k_m"])
    p.add_argument("--cache", type=json.loads, default={}, help='cache types, such as {"ik": ["q8_0"], "nibble": ["nvfp4"]}')
    p.add_argument("--ours", type=words, help="of nibble's rows only those with these weights, such as int8")
    p.add_argument("--threads", type=numbers, default=[os.cpu_count() or 1])
    p.add_argument("--heads", type=int, default=16, help="of attention")
    p.add_argument("--depth", type=numbers, default=[512, 16384])
    p.add_argument("--llama-depth", type=int, default=512, help="the deepest for llama.cpp, whose prompts take long")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--with", dest="with_", default="", help="put in front of every timed command, such as 'nice -n -5'")
    p.add_argument("--add", metavar="COMMIT", help="add the rounds to those of the file's rows of this commit")
    p.add_argument("--commit", help="of nibble, where it is not the one of these scripts")
    p.add_argument("--quick", action="store_true", help="one round at 512 and 2,048 tokens")
    a = p.parse_args()
    if a.quick:
        a.rounds, a.depth = 1, [512, 2048]
    for name, known in (("part", ["attention", "steps"]), ("only", ["nibble", "ik", "llama"]), ("weights", list(WEIGHTS))):
        bad = [x for x in getattr(a, name) if x not in known]
        if bad:
            p.error(f"--{name} {bad[0]}: expected {', '.join(known)}")
    return a


def joined(old, row):
    """row with the rounds of the old one, for --add."""
    row = dict(row, rounds=old["rounds"] + row["rounds"])
    for field in FIELDS:
        if field in row:
            row["all_" + field] = old["all_" + field] + row["all_" + field]
            row[field] = statistics.median(row["all_" + field])
    if "all" in row:
        row["all"] = old["all"] + row["all"]
        row["ns_per_token"] = statistics.median(row["all"])
    return row


def save(a, head, old, rows, missing, rates):
    """Writes the file: the old rows that were not measured again, and the new ones."""
    new = {same(r) for r in rows}
    if a.add:
        before = {same(r): r for r in old["rows"] if r.get("commit") == a.add}
        rows = [joined(before[same(r)], r) if same(r) in before else r for r in rows]
    doc = {"machine": head["machine"], "versions": versions(a), "rates": old["rates"] + [dict(r, level=a.level) for r in rates]}
    doc["rows"] = [r for r in old["rows"] if same(r) not in new] + [dict(r, commit=a.commit or doc["versions"]["ours"]) for r in rows]
    doc["ratios"], doc["missing"] = ratios(doc["rows"]), missing
    with open(a.out + ".part", "w") as f:
        json.dump(doc, f, indent=1)
        f.write("\n")
    os.replace(a.out + ".part", a.out)
    return doc


def main():
    a = options()
    e = Engines(a)
    try:
        head = e.machine()
    except Missing as m:
        sys.exit(f"nibble does not run: {m}")
    old = {"rates": [], "rows": []}
    if os.path.exists(a.out):
        with open(a.out) as f:
            old = json.load(f)
    last = []
    try:
        measure(e, lambda rows, missing, rates: last.append(save(a, head, old, rows, missing, rates)))
    except Missing as m: # of what every round needs: the machine's rates
        sys.exit(f"nibble no longer runs: {m}")
    doc = last[-1]
    for r in doc["ratios"]:
        what = " ".join(str(r[k]) for k in ("level", "weights", "ours", "cache") if k in r)
        print(f"{r['of']:9} at {r['depth']:6}, {r['threads']} threads, {what}: {r['ratio']:.2f} of {r['peer']} {r['peer_cache']}")
    for m in doc["missing"]:
        print(f"missing: {m['engine']} {m['part']} {m.get('weights', '')} {m['cache']}: {m['why']}")
    measured = len(doc["rows"]) > len([r for r in old["rows"] if r in doc["rows"]])
    return 0 if measured or not doc["missing"] else 1


sys.exit(main())
