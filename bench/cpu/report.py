#!/usr/bin/env python3
"""report.py - collects the runs of run_cpu.sh in one file, and writes the tables of docs/performance.md.

    report.py collect FOLDER OUT          joins FOLDER/k/*.json and FOLDER/t/*.json
    report.py render docs/performance.md  fills the places between <!-- table NAME --> and <!-- end -->
"""
import datetime
import glob
import json
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
RESULTS = os.path.join(ROOT, "bench", "results")
RECORDS = ["nvfp4", "if4", "mxfp4", "int4", "fp8", "fp8_ds_mla", "bf16", "f32"]
LEVELS = ["c", "avx2", "avxvnni", "avx512", "avx512bf16", "amx"]


def commit():
    r = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return r.stdout.strip()


def load(path):
    with open(path) as f:
        return json.load(f)


def collect(folder, out):
    runs = {}
    for kind in "kt":
        for path in sorted(glob.glob(os.path.join(folder, kind, "*.json"))):
            runs[os.path.basename(path)[:-5]] = load(path)
    if not runs:
        sys.exit("no run has succeeded")
    first = next(iter(runs.values()))
    doc = {"date": datetime.date.today().isoformat(), "commit": commit(), "machine": first["machine"], "runs": runs}
    for r in runs.values(): # once is enough; the load is each run's own
        r["load_average"] = r.pop("machine")["load_average"]
    with open(out, "w") as f:
        json.dump(doc, f, indent=1)
        f.write("\n")


def row(cells):
    return "| " + " | ".join(str(c) for c in cells) + " |"


def table(head, rows):
    if not rows:
        return "Not measured yet."
    return "\n".join([row(head), row(["---"] + ["--:"] * (len(head) - 1))] + [row(r) for r in rows])


def number(x, digits=3):
    """x with about so many significant digits."""
    if x is None:
        return ""
    if x >= 10 ** (digits - 1):
        return f"{x:,.0f}"
    return f"{x:.{max(0, digits - 1 - (len(str(int(x))) - 1 if x >= 1 else 0))}f}"


def many(n, one, more):
    return f"{n:,} {one if n == 1 else more}"


def order(name, names):
    return names.index(name) if name in names else len(names)


def slopes(doc, run):
    return {(s["level"], s["record"]): s for s in doc["runs"].get(run, {}).get("slopes", [])}


# ---- tables: each takes the files of one machine -------------------------------------------------


def machine(doc):
    m = doc["machine"]
    lines = [f"{m['cpu']}, {m['processors']} processors, levels {m['caps']}; caches {m['l1_bytes'] >> 10} KiB, "
             f"{m['l2_bytes'] >> 10} KiB, {m['l3_bytes'] >> 20} MiB; {m['memory_bytes'] / 2**30:.1f} GiB; "
             f"{m['compiler']} {m['build']}; commit {doc['commit']}, {doc['date']}."]
    loads = [r["load_average"] for r in doc["runs"].values()]
    lines.append(f"Load average during the runs: {min(loads):.1f} to {max(loads):.1f}.")
    return "\n".join(lines)


def floors(doc):
    rows = []
    for run in ("slope", "slope_1"):
        r = doc["runs"].get(run)
        for p in r["peaks"] if r else []:
            rows.append([p["level"], r["threads"], number(p["read_gbs"]), number(p["f32_gops"]),
                         number(p["bf16_gops"]) if p["bf16_gops"] else "", number(p["int8_gops"]) if p["int8_gops"] else ""])
    return table(["level", "threads", "read, GB/s", "f32, GFLOP/s", "BF16 tiles, GFLOP/s", "integer products, Gop/s"], rows)


def slope(doc):
    rows = []
    for run in ("slope", "slope_1"):
        t = doc["runs"].get(run, {}).get("threads")
        for (level, record), s in sorted(slopes(doc, run).items(),
                                         key=lambda k: (order(k[0][0], LEVELS), order(k[0][1], RECORDS))):
            rows.append([record, s["variant"], t, number(s["ns_per_token"]), number(s["best_ns_per_token"]),
                         number(s["floor_ns_per_token"]), f"{s['ns_per_token'] / s['floor_ns_per_token']:.1f}"])
    return table(["cache format", "variant", "threads", "ns", "best", "floor", "ns / floor"], rows)


def beside(rows, row, engine, field, better):
    """The best row of a peer for the same work: (text of its figure and cache type, nibble over it as a factor of speed)."""
    same = [r for r in rows if r["engine"] == engine and
            all(r.get(k) == row.get(k) for k in ("part", "level", "weights", "threads", "heads", "depth"))]
    if not same:
        return ["", ""]
    best = better(same, key=lambda r: r[field])
    ratio = row[field] / best[field] if better is max else best[field] / row[field]
    return [f"{number(best[field])} ({best['cache']})", f"{ratio:.2f}"]


def engines(which, name):
    """Tables of a result of bench/peer/compare.py: all engines in turns, losing rows included."""
    path = os.path.join(RESULTS, f"{name}.json")
    if not os.path.exists(path):
        return "Not measured yet."
    doc = load(path)
    rows = sorted(doc["rows"], key=lambda r: (r["level"] != "best", -r["threads"], r.get("heads", 0), order(r.get("ours", ""), ["int8", "q8_0", "q4_k_m"]),
                                              r["depth"], order(r["cache"], RECORDS)))
    if which == "machine":
        m, levels = doc["machine"], {r["level"] for r in doc["rates"]}
        rates = [r for r in doc["rates"] if r["level"] == ("best" if "best" in levels else "avx2")]
        commits = ", ".join(sorted({r["commit"] for r in rows if r.get("commit")}))
        return (f"{m['cpu']}, {m['processors']} processors, levels {m['caps']}; caches {m['l1_bytes'] >> 10} KiB, {m['l2_bytes'] >> 10} KiB, "
                f"{m['l3_bytes'] >> 20} MiB; {m['memory_bytes'] / 2**30:.1f} GiB; {m['compiler']} {m['build']}; commit {commits}.\n"
                f"Best rates in the rounds: {max(r['f32_gops'] for r in rates):,.0f} GFLOP/s in f32, {max(r['int8_gops'] for r in rates):,.0f} Gop/s in integers.")
    ours = [r for r in rows if r["engine"] == "nibble"]
    if which == "attention":
        return table(["cache format", "heads", "level", "threads", "nibble, ns", "ik_llama.cpp, ns", "times its speed"],
                     [[r["cache"], r["heads"], r["level"], r["threads"], number(r["ns_per_token"])] + beside(rows, r, "ik", "ns_per_token", min)
                      for r in ours if r["part"] == "attention"])
    return table(["weights", "level", "threads", "after", "nibble", "ik_llama.cpp", "times its speed", "llama.cpp", "times its speed"],
                 [[r["ours"], r["level"], r["threads"], f"{r['depth']:,}", f"{number(r[which])} ({r['cache']})"] +
                  beside(rows, r, "ik", which, max) + beside(rows, r, "llama", which, max) for r in ours if r["part"] == "steps"])


RUNS = ("heads128", "prefill", "decode", "gemm", "absorb", "codec", "small")


def kernels(doc):
    """Operations on cold data; one pair of columns per level.  Packing has no floor and is left out."""
    rows, levels = {}, []
    for run in RUNS:
        for r in doc["runs"].get(run, {}).get("results", []):
            if not r["cold"] or not r["floor_ns"]:
                continue
            shape = (f"{r['heads']} heads, {many(r['queries'], 'query', 'queries')}, {r['context']:,.0f} tokens" if r["context"]
                     else f"{r['rows']} x {r['cols']}, {many(r['tokens'], 'token', 'tokens')}")
            key = (f"{r['op']} {r['part']}".strip(), r["record"] or r["weight"] or "", shape)
            rows.setdefault(key, {})[r["variant"]] = f"{number(r['median_ns'] / 1e3)} ({r['median_ns'] / r['floor_ns']:.1f})"
            levels += [r["variant"]] if r["variant"] not in levels else []
    return table(["operation", "type", "shape"] + [f"{v}, us (times the floor)" for v in levels],
                 [[*key] + [t.get(v, "") for v in levels] for key, t in rows.items()])


def steps(doc):
    """Whole steps: a row per cache format, with the memory of the deepest point."""
    rows, depths = [], []
    for name, r in doc["runs"].items():
        if name.startswith("decode_") and r.get("decode"):
            depths = depths or [d["depth"] for d in r["decode"]]
            last = r["decode"][-1]
            rows.append([r["kv_cache_dtype"]] + [number(d["tokens_per_second"]) for d in r["decode"]] +
                        [number(x / 2**20) for x in (last["kv_bytes"], r["workspace_bytes"], last["peak_bytes"])])
    return table(["cache format"] + [f"tokens/s after {d:,}" for d in depths] + ["cache MiB", "workspace MiB", "peak MiB"], rows)


def crowd(doc):
    rows = []
    for r in doc["runs"].values():
        rows += [[f"{r['kv_cache_dtype']}, a prompt of {d['tokens']:,} tokens", f"{d['depth']:,}", number(d["tokens_per_second"])]
                 for d in r.get("prefill", [])]
    for name, r in doc["runs"].items():
        if name.startswith("batch_"):
            rows += [[f"{r['kv_cache_dtype']}, {many(d['sequences'], 'sequence', 'sequences')}", f"{d['depth']:,}",
                      number(d["tokens_per_second"])] for d in r.get("decode", [])]
    return table(["what", "cached tokens", "tokens/s"], rows)


def span(values, digits=3):
    return f"{number(min(values), digits)} to {number(max(values), digits)}"


def server():
    """What the three scripts of bench/serve have recorded."""
    o, idle, over = (load(os.path.join(RESULTS, f"serve_{n}.json"))["rows"] for n in ("overhead", "idle", "overload"))
    rows = [[f"{r['concurrency']} requests at once, through the engine alone",
             f"{number(r['engine_tok_per_s'])} tokens/s ({span(r['all_engine_tok_per_s'])})"] for r in o]
    rows += [["the same through the server", f"{number(r['server_tok_per_s'])} tokens/s ({span(r['all_server_tok_per_s'])})"] for r in o]
    rows += [["CPU time of the server's loop and the client", f"{r['server_loop_cpu_us_per_token'] + r['client_cpu_us_per_token']:.0f} us "
              f"per token, {r['loop_and_client_percent_of_engine']:.1f} % of the engine's"] for r in o]
    rows += [[f"memory of a streaming connection, {r['state']} ({r['connections']:,} connections)", f"{r['kib_per_connection']:.1f} KiB"] for r in idle]
    rows += [[f"{over[0]['requests']:,} requests at 10 times the capacity, {len(over)} runs",
              f"{span([r['completed'] for r in over])} answered, the others refused with 503, "
              f"{sum(r['outcomes']['lost'] for r in over)} lost; resident memory +"
              f"{max(r['resident_max_kib'] - r['resident_before_kib'] for r in over) / 1024:.2f} MiB at most"]]
    return table(["what", "measured"], rows)


TABLES = {"machine": machine, "floors": floors, "slope": slope, "kernels": kernels, "steps": steps, "crowd": crowd}


def render(path):
    text = open(path).read()

    def replace(match):
        name, level = match.group(1), match.group(2)
        if name == "server":
            return f"<!-- table {name} {level} -->\n{server()}\n<!-- end -->"
        if name.startswith("engines"): # engines: peer_cpu.json, engines_avx2: peer_cpu_avx2.json
            return f"<!-- table {name} {level} -->\n{engines(level, name.replace('engines', 'peer_cpu'))}\n<!-- end -->"
        ours = os.path.join(RESULTS, f"cpu_{level}.json")
        body = "Not measured yet."
        if os.path.exists(ours):
            body = TABLES[name](load(ours))
        return f"<!-- table {name} {level} -->\n{body}\n<!-- end -->"

    new = re.sub(r"<!-- table (\w+) (\w+) -->.*?<!-- end -->", replace, text, flags=re.S)
    with open(path, "w") as f:
        f.write(new)


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "collect":
        collect(sys.argv[2], sys.argv[3])
    elif len(sys.argv) == 3 and sys.argv[1] == "render":
        render(sys.argv[2])
    else:
        sys.exit(__doc__)


main()
