#!/usr/bin/env python3
"""compare.py - ik_llama.cpp and nibble on the same random weights, in turns, on this machine.

    compare.py --nibble PATH --peer DIR --out FILE [--model DIR] [--depth N] [--rounds N] [--quick]

DIR is a source tree of ik_llama.cpp with a build in DIR/build (targets ggml and llama-sweep-bench).  The
engines take turns in each round, so that other load on the machine disturbs both; the result has the medians
over the rounds:

  attention  attn_peer.c against `nibble bench kernel --op attn_pages`: slope of a decode step's attention
             between 512 and 32,768 tokens, 16 heads, on one thread and on all
  whole      llama-sweep-bench (computes the prompt up to --depth, repacked weights) against `nibble bench
             throughput --weight-dtype int8`, on ds4l from make_model.py; skipped without llama-sweep-bench

The weights are written once to --model (default build/peer).
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = [("q8_0", "fp8"), ("q4_0", "nvfp4"), ("f16", "bf16"), ("q6_0", None), ("iq4_nl", None)]


def run(cmd, timeout=900):
    """Standard output of a command, or None with a note."""
    try:
        r = subprocess.run(cmd, capture_output=True, text=True, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired) as e:
        sys.stderr.write(f"{cmd[0]}: {e}\n")
        return None
    if r.returncode != 0:
        sys.stderr.write(f"{' '.join(cmd)}: exit code {r.returncode}: {r.stderr.strip().splitlines()[-1:]}\n")
        return None
    return r.stdout


def peer_attention(a, kind, threads, contexts):
    """{context: ns of a layer} or None."""
    out = run([os.path.join(a.peer, "build", "attn_peer"), kind, "16", str(threads)] + [str(c) for c in contexts])
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")] if out else []
    return {r["context"]: (r["median_ns"], r["cpu_ns"]) for r in rows} if rows else None


def our_attention(a, record, threads, contexts):
    out = run([a.nibble, "bench", "kernel", "--op", "attn_pages", "--record", record, "--cache", "cold", "-t", str(threads),
               "--context", ",".join(str(c) for c in contexts), "--json"])
    return {int(r["context"]): (r["median_ns"], r["cpu_ns"]) for r in json.loads(out)["results"]} if out else None


def slope(points, i):
    lo, hi = min(points), max(points)
    return (points[hi][i] - points[lo][i]) / (hi - lo)


def attention(a):
    contexts = [512, 2048] if a.quick else [512, 32768]
    n_core = os.cpu_count() or 1
    theirs, ours = [], []
    for threads in sorted({1, n_core}):
        for kind, record in TYPES:
            got, mine = [], []
            for _ in range(a.rounds): # in turns
                p = peer_attention(a, kind, threads, contexts)
                if p:
                    got.append(p)
                m = our_attention(a, record, threads, contexts) if record else None
                if m:
                    mine.append(m)
            for name, points, to in ((kind, got, theirs), (record, mine, ours)):
                if points:
                    to.append({"type": name, "threads": threads, "from": contexts[0], "to": contexts[-1],
                               "ns_per_token": statistics.median(slope(p, 0) for p in points),
                               "cpu_ns_per_token": statistics.median(slope(p, 1) for p in points), "rounds": len(points)})
    return theirs, ours


def sweep(a, gguf, kind):
    """[(depth, prefill tok/s, decode tok/s)], peak MiB of llama-sweep-bench."""
    depth = 1024 if a.quick else a.depth
    cmd = [os.path.join(a.peer, "build", "bin", "llama-sweep-bench"), "-m", gguf, "-c", str(depth + 512), "-ub", "512", "-b",
           "2048", "-fa", "on", "-mla", "3", "-rtr", "-ctk", kind, "-t", str(os.cpu_count()), "-n", "32",
           "--output-format", "jsonl", "--sweep-memory"]
    out = run(cmd, 1200)
    rows, peak = [], None
    for line in (out or "").splitlines():
        m = re.search(r"\{.*\}", line)
        if not m:
            continue
        try:
            j = json.loads(m.group(0))
        except ValueError:
            continue
        if "speed_tg" in j:
            rows.append((j["n_kv"], j.get("speed_pp"), j["speed_tg"]))
            peak = j.get("rss_hwm_mib", peak)
    return rows, peak


def whole(a):
    if not os.path.exists(os.path.join(a.peer, "build", "bin", "llama-sweep-bench")):
        sys.stderr.write("no llama-sweep-bench: whole steps are left out\n")
        return [], []
    gguf, hf = os.path.join(a.model, "ds4l.gguf"), os.path.join(a.model, "ds4l")
    if not os.path.exists(gguf) or not os.path.exists(os.path.join(hf, "config.json")):
        os.makedirs(a.model, exist_ok=True)
        if run([sys.executable, os.path.join(HERE, "make_model.py"), "--shape", "ds4l", "--gguf", gguf, "--hf", hf]) is None:
            return [], []
    text = run([a.nibble, "bench", "throughput", "--help"]) or ""
    weight = ["--weight-dtype", "int8"] if "--weight-dtype" in text else []
    theirs, ours = {}, {}
    for _ in range(a.rounds):
        for kind, record in TYPES[:3]:
            rows, peak = sweep(a, gguf, kind)
            for depth, pp, tg in rows:
                theirs.setdefault((kind, depth), []).append((pp, tg, peak))
            depths = sorted({d for k, d in theirs if k == kind and d >= 512} & {512, 1024, 4096, 16384, 32768})
            if not depths:
                continue
            common = [a.nibble, "bench", "throughput", hf] + weight + ["--kv-cache-dtype", record, "--depth",
                                                                       ",".join(map(str, depths)), "--json"]
            out = run(common + ["--mla", "absorbed", "--depth-tokens", "32"])
            for d in json.loads(out)["decode"] if out else []:
                ours.setdefault((record, d["depth"]), []).append((None, d["tokens_per_second"], d["peak_bytes"] / 2**20))
            out = run(common + ["--depth-tokens", "0", "--depth-prefill", "512", "--depth-repeat", "1"])
            for d in json.loads(out)["prefill"] if out else []:
                ours.setdefault((record, d["depth"]), []).append((d["tokens_per_second"], None, d["peak_bytes"] / 2**20))
    return flat(theirs), flat(ours)


def flat(table):
    def middle(values, i):
        v = [x[i] for x in values if x[i] is not None]
        return statistics.median(v) if v else None

    return [{"type": kind, "depth": depth, "prefill_tokens_per_second": middle(v, 0),
             "decode_tokens_per_second": middle(v, 1), "peak_mib": middle(v, 2)} for (kind, depth), v in sorted(table.items())]


def ratios(theirs, ours):
    record = dict(TYPES)
    mine = {(s["type"], s["threads"]): s["ns_per_token"] for s in ours}
    return [{"peer": s["type"], "nibble": record[s["type"]], "threads": s["threads"],
             "peer_over_nibble": s["ns_per_token"] / mine[(record[s["type"]], s["threads"])]}
            for s in theirs if s["ns_per_token"] > 0 and mine.get((record.get(s["type"]), s["threads"]), 0) > 0]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nibble", required=True)
    p.add_argument("--peer", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--model", default=os.path.join(HERE, "..", "..", "build", "peer"))
    p.add_argument("--depth", type=int, default=4096, help="context of whole steps; the peer computes all of it")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--quick", action="store_true")
    a = p.parse_args()
    if a.quick:
        a.rounds = 1
    exe = os.path.join(a.peer, "build", "attn_peer")
    if not os.path.exists(exe) and run([os.path.join(HERE, "build_attn.sh"), a.peer]) is None:
        sys.exit("attn_peer could not be built")
    head = run([a.nibble, "bench", "kernel", "--op", "rope", "--json", "--repeat", "1", "--sample-ms", "0", "--set", "1"])
    version = run(["git", "-C", a.peer, "rev-parse", "--short", "HEAD"]) or "unknown"
    ours_at = run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"]) or "unknown"
    theirs, ours = attention(a)
    w_theirs, w_ours = whole(a)
    doc = {"machine": json.loads(head)["machine"] if head else {}, "commit": ours_at.strip(),
           "peer": f"ik_llama.cpp {version.strip()}, Release, GGML_NATIVE, -mla 3 -fa, repacked weights",
           "rounds": a.rounds, "attention": theirs, "nibble_attention": ours, "ratios": ratios(theirs, ours),
           "whole": w_theirs, "nibble_whole": w_ours}
    with open(a.out, "w") as f:
        json.dump(doc, f, indent=1)
        f.write("\n")
    for r in doc["ratios"]:
        print(f"{r['threads']} threads: peer {r['peer']} / nibble {r['nibble']}: {r['peer_over_nibble']:.2f}")


main()
