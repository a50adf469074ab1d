#!/usr/bin/env python3
"""report.py - from the runs of run_cpu.sh to one file, and from the files to docs/performance.md.

    report.py collect FOLDER OUT        FOLDER/k/*.json, FOLDER/t/*.json into one
    report.py render docs/performance.md  replaces what stands between <!-- table NAME --> and <!-- end -->
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
LEVELS = ["c", "avx2", "avx512", "amx"]


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


def order(name, names):
    return names.index(name) if name in names else len(names)


def slopes(doc, run):
    return {(s["level"], s["record"]): s for s in doc["runs"].get(run, {}).get("slopes", [])}


# ---- tables: each takes the files of one machine -------------------------------------------------


def machine(doc, peer):
    m = doc["machine"]
    lines = [f"{m['cpu']}, {m['processors']} processors, levels {m['caps']}; caches {m['l1_bytes'] >> 10} KiB, "
             f"{m['l2_bytes'] >> 10} KiB, {m['l3_bytes'] >> 20} MiB; {m['memory_bytes'] / 2**30:.1f} GiB; "
             f"governor {m['governor'] or 'not told'}; {m['compiler']} {m['build']}; commit {doc['commit']}, {doc['date']}."]
    loads = [r["load_average"] for r in doc["runs"].values()]
    lines.append(f"Load average during the runs: {min(loads):.1f} to {max(loads):.1f}.")
    if peer:
        lines.append(f"Peer: {peer['peer']}.")
    return "\n\n".join(lines)


def floors(doc, _):
    rows = []
    for run in ("slope", "slope_1"):
        r = doc["runs"].get(run)
        for p in r["peaks"] if r else []:
            rows.append([f"{p['level']}, {r['threads']} threads", number(p["read_gbs"]), number(p["f32_gops"]),
                         number(p["bf16_gops"]) if p["bf16_gops"] else "", number(p["int8_gops"]) if p["int8_gops"] else ""])
    return table(["level", "read, GB/s", "f32, GFLOP/s", "bf16 tiles, GFLOP/s", "integer products, Gop/s"], rows)


def peer_slope(peer, kind, threads):
    for s in peer["attention"] if peer else []:
        if s["type"] == kind and s["threads"] == threads:
            return s["ns_per_token"]
    return None


PEER_TYPE = {"nvfp4": "q4_0", "if4": "q4_0", "mxfp4": "q4_0", "int4": "q4_0", "fp8": "q8_0", "fp8_ds_mla": "q8_0",
             "bf16": "f16"}


def slope(doc, peer):
    rows = []
    for run in ("slope", "slope_1"):
        t = doc["runs"].get(run, {}).get("threads")
        for (level, record), s in sorted(slopes(doc, run).items(),
                                         key=lambda k: (order(k[0][0], LEVELS), order(k[0][1], RECORDS))):
            theirs = peer_slope(peer, PEER_TYPE.get(record), t)
            rows.append([f"{record}, {s['variant']}", t, number(s["ns_per_token"]), number(s["best_ns_per_token"]),
                         number(s["floor_ns_per_token"]), f"{s['ns_per_token'] / s['floor_ns_per_token']:.1f}",
                         f"{number(theirs)} ({PEER_TYPE[record]})" if theirs else "",
                         f"{theirs / s['ns_per_token']:.2f}" if theirs else ""])
    return table(["record, variant", "threads", "ns", "best", "floor", "over floor", "peer", "peer / nibble"], rows)


def kernels(doc, _):
    rows = []
    for run in ("heads128", "prefill", "decode", "gemm", "absorb", "codec", "small"):
        for r in doc["runs"].get(run, {}).get("results", []):
            shape = (f"{r['heads']} heads, {r['queries']} q, {r['context']:.0f}" if r["context"]
                     else f"{r['rows']} x {r['cols']}, {r['tokens']} tok")
            rows.append([f"{r['op']} {r['part']}".strip(), r["variant"], r["record"] or r["weight"] or "", shape,
                         "cold" if r["cold"] else "warm", number(r["median_ns"] / 1e3),
                         number(r["bytes"] / r["median_ns"]) if r["bytes"] else "",
                         number(r["ops"] / r["median_ns"]) if r["ops"] else "", number(r["floor_ns"] / 1e3) if r["floor_ns"] else "",
                         f"{r['median_ns'] / r['floor_ns']:.1f}" if r["floor_ns"] else ""])
    return table(["operation", "variant", "type", "shape", "data", "us", "GB/s", "GFLOP/s", "floor us", "over floor"], rows)


def decode(doc, peer):
    rows, theirs = [], {}
    for d in peer["whole"] if peer else []:
        theirs[(d["type"], d["depth"])] = d
    for name, r in doc["runs"].items():
        if not name.startswith("decode_"):
            continue
        record = name[7:]
        for d in r.get("decode", []):
            p = theirs.get((PEER_TYPE.get(record), d["depth"]), {}).get("decode_tokens_per_second")
            rows.append([f"{record}, {r['weights']}", d["depth"], number(d["tokens_per_second"]), number(d["median_ms"]),
                         number(p) if p else "", f"{d['tokens_per_second'] / p:.2f}" if p else ""])
    return table(["record, weights", "depth", "tokens/s", "ms a token", "peer", "nibble / peer"], rows)


def prefill(doc, peer):
    rows, theirs = [], {}
    for d in peer["whole"] if peer else []:
        theirs[(d["type"], d["depth"])] = d
    for name, r in doc["runs"].items():
        for d in r.get("prefill", []):
            p = theirs.get(("q8_0", d["depth"]), {}).get("prefill_tokens_per_second")
            rows.append([f"{r['kv_cache_dtype']}, {d['tokens']} tokens", d["depth"], number(d["tokens_per_second"]),
                         number(p) if p else ""])
    return table(["record, chunk", "depth", "tokens/s", "peer, q8_0"], rows)


def batch(doc, _):
    rows = []
    for name, r in doc["runs"].items():
        for d in r.get("decode", []) if name.startswith("batch_") else []:
            rows.append([r["kv_cache_dtype"], d["depth"], d["sequences"], number(d["tokens_per_second"]),
                         f"{d['over_one']:.2f}"])
    return table(["record", "depth", "sequences", "tokens/s", "over one"], rows)


def memory(doc, peer):
    rows = []
    for name, r in doc["runs"].items():
        if not name.startswith("decode_") or not r.get("decode"):
            continue
        d = r["decode"][-1]
        rows.append([f"nibble {r['kv_cache_dtype']}", d["depth"], number(r["weight_bytes"] / 2**20), number(d["kv_bytes"] / 2**20),
                     number(r["workspace_bytes"] / 2**20), number(d["peak_bytes"] / 2**20)])
    for d in peer["whole"] if peer else []:
        if d.get("peak_mib"):
            rows.append([f"peer {d['type']}", d["depth"], "", "", "", number(d["peak_mib"])])
    return table(["engine, record", "depth", "weights MiB", "cache MiB", "workspace MiB", "peak MiB"], rows)


TABLES = {"machine": machine, "floors": floors, "slope": slope, "kernels": kernels, "decode": decode, "prefill": prefill,
          "batch": batch, "memory": memory}


def render(path):
    text = open(path).read()

    def replace(match):
        name, level = match.group(1), match.group(2)
        ours = os.path.join(RESULTS, f"cpu_{level}.json")
        peer = os.path.join(RESULTS, f"peer_cpu_{level}.json")
        body = "Not measured yet."
        if os.path.exists(ours):
            body = TABLES[name](load(ours), load(peer) if os.path.exists(peer) else None)
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
