#!/usr/bin/env python3
"""report.py - collects the runs of run_gpu.sh in bench/results, and writes the tables of docs/gpu.md.

    report.py collect FOLDER FILE COMMIT     adds FOLDER/PART.json to FILE, keeping its other parts
    report.py gpu FOLDER FILE COMMIT         writes kernel, steps_nvfp4 and steps_bf16 to FILE (gpu_h100.json)
    report.py w8a8 TEXT FILE COMMIT          writes what w8a8 printed to FILE
    report.py render docs/gpu.md             (and docs/several-gpus.md) fills the places between <!-- table NAME --> and <!-- end -->
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
        # the same model on the machine's CPU is beside the others
        if doc.setdefault("device", device_of(run)) != device_of(run) and not part.endswith("_cpu"):
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


def recorded(name):
    return load(os.path.join(RESULTS, name))


def attention():
    by = {}
    for r in recorded("gpu_h100.json")["kernel"]["rows"]:
        by.setdefault((r["heads"], r["batch"], r["context"]), {})[r["record"]] = r
    rows = []
    for (heads, batch, context), t in by.items():
        n = t["nvfp4"]
        rows.append([heads, batch, f"{context:,}", f"`{n['row']}`"] + [number(t[r]["median_us"]) if r in t else "" for r in RECORDS] +
                    [number(n["floor_us"]), f"{n['median_us'] / n['floor_us']:.1f}"])
    return table(["heads", "sequences", "cached tokens of each", "kernel"] + [f"{r}, us" for r in RECORDS] + ["floor of nvfp4, us", "times the floor"], rows)


def flashmla():
    """FlashMLA's BF16 kernel beside nibble's, of one process in turns; in brackets how many times as fast as FlashMLA."""
    result, shapes = recorded("flashmla_h100.json"), {}
    for r in result["rows"]:
        shapes.setdefault((r["heads"], r["batch"], r["context"]), {})[r["row"] if r["who"] == "flashmla" else r["record"]] = r["median_us"]
    records = ("bf16", "fp8", "nvfp4", "if4")
    rows = [[heads, batch, f"{context:,}", number(us["dense"]), number(us.get("sparse"))] + [f"{us[r]:,.0f} ({us['dense'] / us[r]:.2f})" for r in records]
            for (heads, batch, context), us in shapes.items()]
    plan = [us["dense+plan"] - us["dense"] for us in shapes.values()]
    return (f"{result['device']}, {result['date']}, commit {result['commit']}; copy {result['copy_gbs']:,} GB/s, BF16 product "
            f"{result['gemm_tflops']:.0f} TFLOP/s; medians of {result['rounds']} rounds in turns.\n"
            f"FlashMLA's planning kernel, which a server runs once per step, takes another {min(plan):.0f} to {max(plan):.0f} us and is not included; nibble has none.\n\n" +
            table(["heads", "sequences", "cached tokens of each", "FlashMLA bf16, us", "its fp8"] + [f"nibble {r}" for r in records], rows))


def decode_rows(doc):
    return {(r["depth"], r["sequences"]): r for r in doc.get("decode", [])}


def rate(tokens_per_second, ms):
    return f"{number(tokens_per_second)} ({number(ms)})"


def cell_of(c):
    """A cell of bench matrix: its rate, or what it would need."""
    if c["tokens_per_second"] is None:
        return f"needs {c['bytes_needed'] / 2**30:.0f} GiB" if c["bytes_needed"] else c["state"]
    return rate(c["tokens_per_second"], c["step_ms"])


def rates():
    """Generated tokens per second by context, sequences and cache format: points of the steps first, then cells of the matrix."""
    at = {}
    for r in ("nvfp4", "fp8", "bf16"):
        for c in runs().get(f"matrix_{r}", {}).get("cells", []):
            at[c["context"], c["concurrency"], r] = cell_of(c)
    for r in recorded("gpu_h100.json")["steps"]["rows"]:
        if r["kind"] == "decode":
            at[r["depth"], r["sequences_or_tokens"], r["record"]] = rate(r["tokens_per_s"], r["median_ms"])
    for (depth, n), r in decode_rows(runs().get("fp8", {})).items():
        at[depth, n, "weights"] = rate(r["tokens_per_second"], r["median_ms"])
    columns = ("nvfp4", "fp8", "bf16", "weights")
    rows = [[f"{depth:,}", n] + [at.get((depth, n, c), "") for c in columns] for depth, n in sorted({k[:2] for k in at})]
    return table(["cached tokens of each", "sequences", "nvfp4: tokens/s (ms per step)", "fp8", "bf16", "nvfp4, FP8 weights"], rows)


def prompts():
    """Prompt tokens per second: 8,192 at once by the weights' type, the last 2,048 of a context by the cache's."""
    at = {}
    for r in recorded("gpu_h100.json")["steps"]["rows"]:
        if r["kind"] == "prefill":
            at[r["depth"], "bf16 weights"] = r["tokens_per_s"]
    for r in runs().get("fp8", {}).get("prefill", []):
        at[r["depth"], "fp8 weights"] = r["tokens_per_second"]
    for record in ("nvfp4", "bf16"):
        for c in runs().get(f"matrix_{record}", {}).get("cells", []):
            if c["prefill_tokens_per_second"]:
                at[c["context"], record] = c["prefill_tokens_per_second"]
    columns = ("bf16 weights", "fp8 weights", "nvfp4", "bf16")
    rows = [[f"{depth:,}"] + [number(at.get((depth, c))) for c in columns] for depth in sorted({k[0] for k in at})]
    return table(["context", "8,192 tokens after it, BF16 weights", "the same, FP8 weights", "its last 2,048 tokens, nvfp4 cache", "the same, bf16 cache"], rows)


def users_of(part, context):
    rows = []
    for record in RECORDS:
        for c in runs().get(f"{part}_{record}", {}).get("cells", []):
            fits = c["tokens_per_second"] is not None
            rows.append([record, c["concurrency"], f"{c['bytes_needed'] / 2**30:.1f}" if c["bytes_needed"] else "",
                         number(c["tokens_per_second"]) if fits else "does not fit",
                         number(c["tokens_per_second"] / c["concurrency"]) if fits else "", number(c["step_ms"])])
    if not rows:
        return "Not recorded yet."
    return table(["cache", f"users of {context} tokens", "GiB needed", "tokens/s", "of each", "ms per step"], rows)


def users():
    return users_of("users", "131,072")


def million():
    return users_of("million", "1,040,000")


def beside(names, titles):
    """Decode points of several runs, side by side."""
    docs = [runs().get(n, {}) for n in names]
    rows = []
    for key in decode_rows(docs[0]):
        t = [decode_rows(d).get(key) for d in docs]
        rows.append([f"{key[0]:,}", key[1]] + [rate(x["tokens_per_second"], x["median_ms"]) if x else "" for x in t])
    return table(["cached tokens", "sequences"] + titles, rows)


def gqa():
    out = beside(["gqa_nvfp4", "gqa_bf16"], ["nvfp4: tokens/s (ms per step)", "bf16"])
    for r in runs().get("gqa_nvfp4", {}).get("prefill", []):
        b = next((x for x in runs()["gqa_bf16"]["prefill"] if x["depth"] == r["depth"]), None)
        out += "\n" + row([f"{r['depth']:,}", f"a prompt of {r['tokens']:,}", number(r["tokens_per_second"]), number(b and b["tokens_per_second"])])
    return out


def thrift():
    return beside(["thrift_off", "thrift_token"], ["without: tokens/s (ms per step)", "--kv-thrift token"])


def experts():
    """Experts in host memory: each run beside its bound and the runs that have all on one side."""
    doc, rows = recorded("experts_h100.json"), []
    for model in doc["models"]:
        part = doc["runs"][model["part"]]
        for (_, n), r in decode_rows(part).items():
            b = next(x for x in model["bounds"] if x["sequences"] == n)
            gpu, cpu = (next((x["median_ms"] for x in doc["runs"].get(f"{model['part']}_{w}", {}).get("decode", []) if x["sequences"] == n), None)
                        for w in ("gpu", "cpu"))
            rows.append([model["name"], f"{n} generated", number(r["median_ms"]), number(b["ms"]), f"{r['median_ms'] / b['ms']:.2f}", number(gpu), number(cpu)])
        p = part["prefill"][0]
        gpu, cpu = (next((x["median_ms"] for x in doc["runs"].get(f"{model['part']}_{w}", {}).get("prefill", [])), None) for w in ("gpu", "cpu"))
        b = model["prompt_ms"]
        rows.append([model["name"], f"a prompt of {p['tokens']:,}", number(p["median_ms"]), number(b), f"{p['median_ms'] / b:.2f}" if b else "", number(gpu), number(cpu)])
    return table(["model", "tokens", "experts in host memory, ms", "bound, ms", "times the bound", "all on the GPU, ms", "all on the CPU, ms"], rows)


PACKED = {"bf16": "BF16", "int4": "INT4 experts, BF16 rest", "nvfp4": "NVFP4 experts, BF16 rest", "int8": "BF16, `--weight-dtype int8`",
          "fp8": "BF16, `--weight-dtype fp8`", "int4_int8": "INT4 experts, `--weight-dtype int8`",
          "int4_fp8": "INT4 experts, `--weight-dtype fp8`"}


def packed():
    """Whole steps by the type of the weights; in brackets, how many times BF16's tokens per second."""
    done, rows = runs("gpu_h100_packed.json"), []
    for name, title in PACKED.items():
        r, base = done.get(f"packed_{name}"), done.get("packed_bf16")
        if not r or not base:
            continue
        pairs = [(x["tokens_per_second"], y["tokens_per_second"]) for k in ("decode", "prefill") for x, y in zip(r[k], base[k])]
        rows.append([title] + [f"{number(x)} ({x / y:.2f})" for x, y in pairs])
    return table(["weights", "1 sequence: tokens/s (times BF16)", "8", "64", "a prompt of 8,192"], rows)


def packed_kernels():
    """Products by the type of the weights, us; in brackets, the share of the floor."""
    out = []
    for part, tokens in (("packed_kernels", "1 token"), ("packed_kernels_prompt", "8,192 tokens")):
        by, done = {}, runs("gpu_h100_packed.json").get(part)
        if not done:
            continue
        for r in done["results"]:
            what = "experts, 6 of 64" if r["op"] == "experts" else f"{r['rows']:,} x {r['cols']:,}" + (" x 16 heads" if r["products"] > 1 else "")
            by.setdefault(what, {})[r["weight"]] = r
        kinds = ("bf16", "fp8", "int8", "int4", "fp4")
        out.append(table([tokens] + [f"{k}, us" for k in kinds],
                         [[what] + [f"{number(t[k]['median_ns'] / 1e3)} ({t[k]['floor_ns'] / t[k]['median_ns']:.0%})" if k in t else ""
                                    for k in kinds] for what, t in by.items()]))
    return "\n\n".join(out)


def large():
    rows = []
    for record in RECORDS:
        for r in runs("gpu_h200.json").get(f"large_{record}", {}).get("decode", []):
            rows.append([record, f"{r['depth']:,}", r["sequences"], number(r["tokens_per_second"]), number(r["median_ms"])])
    return table(["cache", "cached tokens", "sequences", "tokens/s", "ms per step"], rows)


def rounded():
    by = {}
    for r in recorded("w8a8_h100.json")["rows"]:
        by.setdefault((r["rows"], r["cols"]), {}).setdefault(r["tokens"], {})[r["what"]] = r
    rows = []
    for (n, k), tokens in by.items():
        few, many = ({w: r["median_us"] for w, r in tokens[t].items()} for t in (64, 8192))
        w, two = "W8A8, rounding included", "BF16, two parts"
        rows.append([f"{n:,} x {k:,}", number(few[w]), number(few["BF16"]), number(few[two]), number(many[w]), number(many["BF16"]),
                     number(many[two]), f"{many[w] / many[two]:.2f}", f"{max(t['W8A8']['distance'] for t in tokens.values()):.1e}"])
    return table(["matrix", "64 tokens: W8A8 us", "BF16", "BF16 in two parts", "8,192 tokens: W8A8 us", "BF16", "BF16 in two parts",
                  "W8A8 / two parts", "largest error of W8A8"], rows)


def data_ranks():
    """Data-parallel GPUs beside one; the last row is the slope between the two depths of the model."""
    done, rows, last = runs("gpu2_h100.json"), [], {}
    for part in ("three", "six"):
        one, two = done[f"{part}_1"], done[f"{part}_d2"]
        n = one["layers"]
        for kind in ("decode", "prefill"):
            for a, b in zip(one[kind], two[kind]):
                n_seq = a.get("sequences")
                what = f"{n_seq} user{'s' if n_seq > 1 else ''}," if n_seq else f"prompt of {a['tokens']:,} behind"
                last.setdefault(what, []).append((n, a["median_ms"], b["median_ms"]))
                rows.append([f"1 + {n - 1}", f"{what} {a['depth']:,}", number(a["median_ms"]), number(b["median_ms"]),
                             f"{a['median_ms'] / b['median_ms']:.2f}"])
    for what, x in last.items():
        if len(x) == 2:
            (n, a, b), (m, c, d) = x
            rows.append(["one more with experts", f"{what} 32,768", number((c - a) / (m - n)), number((d - b) / (m - n)), f"{(c - a) / (d - b):.2f}"])
    return table(["layers: dense + with experts", "step", "one GPU, ms", "two, ms", "times as fast"], rows)


TABLES = {f.__name__: f for f in (attention, flashmla, rates, prompts, users, million, gqa, thrift, experts, large, rounded, packed, packed_kernels, data_ranks)}
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
