#!/usr/bin/env python3
"""report.py - from the runs of run_gpu.sh to files of bench/results, and from these to docs/gpu.md.

    report.py collect FOLDER FILE COMMIT     FOLDER/PART.json into FILE, beside the parts that it has
    report.py gpu FOLDER FILE COMMIT         kernel, steps_nvfp4, steps_bf16 into FILE (gpu_h100.json)
    report.py w8a8 TEXT FILE COMMIT          what w8a8 printed
    report.py render docs/gpu.md             replaces what stands between <!-- table NAME --> and <!-- end -->
"""
import datetime
import glob
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "..", "results")
RECORDS = ["nvfp4", "if4", "fp8", "bf16"]


def load(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def store(path, doc):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(doc, f, indent=1)
        f.write("\n")
    print(f"{path}: written")


def commands():
    """The command line of each part, as run_gpu.sh lists them."""
    text = subprocess.run(["bench/gpu/run_gpu.sh"], cwd=os.path.join(HERE, "..", ".."), capture_output=True, text=True,
                          check=True).stdout
    return dict(line.replace("bench/gpu/../../", "").split(None, 1) for line in text.splitlines())


def device_of(doc):
    d = doc["device"]
    return d["name"] if isinstance(d, dict) else d


def day(doc):
    return datetime.datetime.strptime(doc["date"][:8], "%Y%m%d").date().isoformat()


def collect(folder, out, commit):
    doc = load(out) if os.path.exists(out) else {"runs": {}}
    line = commands()
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        part, run = os.path.basename(path)[:-5], load(path)
        if doc.setdefault("device", device_of(run)) != device_of(run):
            sys.exit(f"{path}: of another device than {out}")
        doc.setdefault("machine", {k: v for k, v in run["machine"].items() if k != "load_average"})
        run["load_average"] = run.pop("machine")["load_average"]
        run["command"], run["commit"] = line[part], commit
        doc["runs"][part] = run
    if not doc["runs"]:
        sys.exit(f"{folder}: no run")
    last = max(doc["runs"].values(), key=lambda r: r["date"])
    doc = {"machine": doc["machine"], "device": doc["device"], "date": day(last), "commit": last["commit"],
           "runs": dict(sorted(doc["runs"].items()))}
    store(out, doc)


def gpu(folder, out, commit):
    old = load(out)
    kernel, *steps = (load(os.path.join(folder, f"{p}.json")) for p in ("kernel", "steps_nvfp4", "steps_bf16"))
    if device_of(kernel) != old["device"].split(",")[0]:
        sys.exit(f"{folder}: of another device than {out}")
    line = commands()
    rows = [{"operation": r["op"], "row": r["variant"], "record": r["record"], "heads": r["heads"], "queries": r["queries"],
             "batch": r["batch"], "context": r["context"], "median_us": round(r["median_ns"] / 1e3, 2),
             "best_us": round(r["best_ns"] / 1e3, 2), "tflops": round(r["ops"] / r["median_ns"] / 1e3, 1),
             "gbs": round(r["bytes"] / r["median_ns"]), "floor_us": round(r["floor_ns"] / 1e3, 2)} for r in kernel["results"]]
    points = []
    for s in steps:
        for kind, key in (("decode", "sequences"), ("prefill", "tokens")):
            points += [{"record": s["kv_cache_dtype"], "kind": kind, "depth": r["depth"], "sequences_or_tokens": r[key],
                        "tokens_per_s": round(r["tokens_per_second"], 2), "median_ms": round(r["median_ms"], 3),
                        "best_ms": round(r["best_ms"], 3)} for r in s[kind]]
    m = kernel["machine"]
    store(out, {"machine": f"{m['cpu']}, {m['processors']} processors, {m['memory_bytes'] / 2**30:.1f} GiB",
                "device": old["device"], "date": day(kernel), "commit": commit,
                "roofline": {"copy_gbs": round(kernel["device"]["copy_gbs"]),
                             "bf16_tflops": round(kernel["device"]["gemm_gflops"] / 1e3, 1)},
                "kernel": {"command": f"nibble {line['kernel'].removeprefix('nibble ')}", "rows": rows},
                "steps": {"command": line["steps_nvfp4"] + " (bf16: --depth 4k,32k --depth-batch 1,8,32)", "rows": points}})


W8A8 = re.compile(r"(\d+) x (\d+) tokens (\d+) W8A8 ([\d.]+) us ([\d.]+) \S+ .* ([\d.]+) us; BF16 ([\d.]+) us ([\d.]+), two parts "
                  r"([\d.]+) us; off by (\S+), of what was rounded (\S+)")


def w8a8(path, out, commit):
    with open(path, encoding="utf-8") as f:
        text = re.sub(r" +", " ", f.read())
    rows = []
    for m in W8A8.finditer(text):
        v = m.groups()
        case = {"rows": int(v[0]), "cols": int(v[1]), "tokens": int(v[2])}
        rows += [{"what": "W8A8", **case, "median_us": float(v[3]), "distance": float(v[9]), "distance_of_rounded": float(v[10])},
                 {"what": "W8A8, rounding included", **case, "median_us": float(v[5])},
                 {"what": "BF16", **case, "median_us": float(v[6])},
                 {"what": "BF16, two parts", **case, "median_us": float(v[8])}]
    device = re.search(r"^(NVIDIA [^,\n]+), cuBLASLt (\d+)", text, re.M)
    if not rows or not device:
        sys.exit(f"{path}: no lines of w8a8")
    store(out, {"device": device[1], "cublaslt": int(device[2]), "date": datetime.date.today().isoformat(), "commit": commit,
                "command": "bench/gpu/w8a8.cu", "rows": rows})


# ---- tables --------------------------------------------------------------------------------------------


def row(cells):
    return "| " + " | ".join(str(c) for c in cells) + " |"


def table(head, rows):
    return "\n".join([row(head), row(["---"] * len(head))] + [row(r) for r in rows])


def number(x):
    if x is None:
        return ""
    return f"{x:,.0f}" if x >= 99.5 else f"{x:.3g}"


def runs(name="gpu_h100_runs.json"):
    path = os.path.join(RESULTS, name)
    return load(path)["runs"] if os.path.exists(path) else {}


def attention():
    by = {}
    for r in load(os.path.join(RESULTS, "gpu_h100.json"))["kernel"]["rows"]:
        by.setdefault((r["heads"], r["batch"], r["context"]), {})[r["record"]] = r
    rows = []
    for (heads, batch, context), t in by.items():
        n = t["nvfp4"]
        rows.append([heads, batch, f"{context:,}", f"`{n['row']}`", number(n["median_us"]), f"{n['gbs']:,.0f}", number(n["tflops"]),
                     number(n["floor_us"]), f"{n['floor_us'] / n['median_us']:.2f}"] +
                    [number(t[r]["median_us"]) if r in t else "" for r in RECORDS[1:]])
    return table(["heads", "sequences", "cached tokens of each", "row", "nvfp4 us", "GB/s", "TFLOP/s", "floor us", "floor / time",
                  "if4 us", "fp8 us", "bf16 us"], rows)


def decode_rows(doc):
    return {(r["depth"], r["sequences"]): r for r in doc.get("decode", [])}


def steps():
    rows = [[r["record"], f"{r['depth']:,}", r["sequences_or_tokens"], number(r["tokens_per_s"]), number(r["median_ms"])]
            for r in load(os.path.join(RESULTS, "gpu_h100.json"))["steps"]["rows"] if r["kind"] == "decode"]
    rows.sort(key=lambda r: (RECORDS.index(r[0]), int(r[1].replace(",", "")), r[2]))
    return table(["cache", "cached tokens", "sequences", "tokens/s", "ms a step"], rows)


def fp8():
    bf16 = {(r["depth"], r["sequences_or_tokens"], r["kind"]): r for r in load(os.path.join(RESULTS, "gpu_h100.json"))["steps"]["rows"]
            if r["record"] == "nvfp4"}
    rows = []
    for kind, key in (("decode", "sequences"), ("prefill", "tokens")):
        for r in runs()["fp8"][kind]:
            b = bf16.get((r["depth"], r[key], kind))
            what = f"{r[key]} sequence{'s' if r[key] > 1 else ''}" if kind == "decode" else f"a prompt of {r[key]:,}"
            rows.append([what, f"{r['depth']:,}", number(r["tokens_per_second"]), number(r["median_ms"]),
                         number(b and b["tokens_per_s"]), f"{r['tokens_per_second'] / b['tokens_per_s']:.2f}" if b else ""])
    return table(["", "cached tokens", "FP8 weights, tokens/s", "ms", "BF16 weights, tokens/s", "FP8 / BF16"], rows)


def matrix():
    cells, contexts, users = {}, [], []
    for record in RECORDS:
        for c in runs().get(f"matrix_{record}", {}).get("cells", []):
            cells[record, c["context"], c["concurrency"]] = c
            contexts += [c["context"]] if c["context"] not in contexts else []
            users += [c["concurrency"]] if c["concurrency"] not in users else []
    there = [r for r in RECORDS if any(k[0] == r for k in cells)]

    def cell(c):
        if not c:
            return ""
        if c["tokens_per_second"] is None:
            return f"needs {c['bytes_needed'] / 2**30:.0f} GiB" if c["bytes_needed"] else c["state"]
        return f"{number(c['tokens_per_second'])} ({number(c['step_ms'])})"
    rows = [[f"{n:,}", u] + [cell(cells.get((r, n, u))) for r in there] +
            ([f"{cells[there[0], n, u]['prefill_tokens_per_second']:,.0f}"] if u == users[0] else [""]) for n in contexts for u in users]
    return table(["cached tokens", "users"] + [f"{r}: tokens/s (ms a step)" for r in there] +
                 ["prompt tokens/s at that depth, " + there[0]], rows)


def users():
    rows = []
    for record in RECORDS:
        for c in runs().get(f"users_{record}", {}).get("cells", []):
            fits = c["tokens_per_second"] is not None
            rows.append([record, c["concurrency"], f"{c['bytes_needed'] / 2**30:.1f}" if c["bytes_needed"] else "",
                         number(c["tokens_per_second"]) if fits else "does not fit",
                         number(c["tokens_per_second"] / c["concurrency"]) if fits else "", number(c["step_ms"])])
    return table(["cache", "users of 131,072 tokens", "GiB needed", "tokens/s", "of each", "ms a step"], rows)


def beside(names, titles):
    """Decode points of several runs, side by side."""
    docs = [runs().get(n, {}) for n in names]
    rows = []
    for key in decode_rows(docs[0]):
        t = [decode_rows(d).get(key) for d in docs]
        rows.append([f"{key[0]:,}", key[1]] + [f"{number(x['tokens_per_second'])} ({number(x['median_ms'])})" if x else "" for x in t])
    return table(["cached tokens", "sequences"] + titles, rows)


def gqa():
    return beside(["gqa_nvfp4", "gqa_bf16"], ["nvfp4: tokens/s (ms a step)", "bf16"])


def thrift():
    return beside(["thrift_off", "thrift_token"], ["without: tokens/s (ms a step)", "--kv-thrift token"])


def large():
    rows = []
    for record in RECORDS:
        for r in runs("gpu_h200.json").get(f"large_{record}", {}).get("decode", []):
            rows.append([record, f"{r['depth']:,}", r["sequences"], number(r["tokens_per_second"]), number(r["median_ms"])])
    return table(["cache", "cached tokens", "sequences", "tokens/s", "ms a step"], rows)


def rounded():
    path = os.path.join(RESULTS, "w8a8_h100.json")
    by = {}
    for r in load(path)["rows"]:
        by.setdefault((r["rows"], r["cols"], r["tokens"]), {})[r["what"]] = r
    rows = []
    for (n, k, tok), t in by.items():
        a, b, two = (t[w] for w in ("W8A8, rounding included", "BF16", "BF16, two parts"))
        rows.append([f"{n:,} x {k:,}", f"{tok:,}", number(t["W8A8"]["median_us"]), number(a["median_us"]), number(b["median_us"]),
                     number(two["median_us"]), f"{two['median_us'] / a['median_us']:.2f}", f"{t['W8A8']['distance']:.1e}"])
    return table(["matrix", "tokens", "W8A8 us", "and rounding", "BF16 us", "BF16 in two parts us", "two parts / W8A8", "W8A8's distance"],
                 rows)


TABLES = {f.__name__: f for f in (attention, steps, fp8, matrix, users, gqa, thrift, large, rounded)}
PLACE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.S)


def render(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    new = PLACE.sub(lambda m: m[1] + TABLES[m[2]]() + "\n" + m[3], text)
    with open(path, "w", encoding="utf-8") as f:
        f.write(new)
    print(f"{path}: {len(PLACE.findall(text))} tables")


def main():
    todo = {"collect": (collect, 3), "gpu": (gpu, 3), "w8a8": (w8a8, 3), "render": (render, 1)}
    f, n = todo.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
    if not f or len(sys.argv) != n + 2:
        sys.exit(__doc__.strip())
    f(*sys.argv[2:])


if __name__ == "__main__":
    main()
