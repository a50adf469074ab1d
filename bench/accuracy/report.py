#!/usr/bin/env python3
"""Tables and plots of what run.py has measured.

    python3 bench/accuracy/report.py bench/results/accuracy.json [-o bench/accuracy]

Writes RESULTS.md (one table per question), kl.svg and thrift.svg.  Needs only Python's standard
library.  README.md of the same folder says what follows from the tables; it is written by hand.
"""
import argparse
import json
import math
import os

import svg

RANGE = "[{}, {}]"


def number(x, digits=3):
    if x is None or isinstance(x, float) and not math.isfinite(x):
        return "-"
    if x == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(x))))
    return f"{x:.{places}f}"


def interval(c, scale=1, digits=3):
    """{"value", "lo", "hi"} in as many places as its width deserves"""
    if not c or c.get("value") is None:
        return "-"
    v, lo, hi = (scale * c[k] if c[k] is not None else None for k in ("value", "lo", "hi"))
    if lo is None or hi is None or hi <= lo:
        return number(v, digits)
    places = max(0, 1 - math.floor(math.log10(hi - lo)))
    return f"{v:.{places}f} " + RANGE.format(f"{lo:.{places}f}", f"{hi:.{places}f}")


def table(heading, rows):
    if not rows:
        return "Not measured.\n\n"
    line = lambda row: "| " + " | ".join(str(x) for x in row) + " |\n"
    return line(heading) + line(["---"] + ["--:"] * (len(heading) - 1)) + "".join(map(line, rows)) + "\n"


def short(word):
    return word.replace(":calibration=CAL", "" if "transform=" in word else ":calibrated").replace(":transform=none", "")


def systems(model, kind="kl "):
    """{word: its figures} of all cells of a kind; the reference is the same in all"""
    out = {}
    for name, cell in model.items():
        if name.startswith(kind):
            for v in cell["result"]["variants"]:
                out.setdefault(v["name"], v)
    return out


def kl_table(models):
    """One row per variant: its KL on each model, marked where the paired interval excludes 0."""
    words = []
    for m in models.values():
        words += [w for w in m["systems"] if w not in words]

    def cell(v):
        if v is None:
            return ""
        d = v.get("kl_vs_first")
        mark = "" if not d else " lower" if d["hi"] < 0 else " higher" if d["lo"] > 0 else ""
        return number(1e3 * v["kl"]["mean"]["value"]) + mark
    rows = []
    for w in words:
        there = [m["systems"].get(w) for m in models.values()]
        bits = next(v for v in there if v)["bits_per_value"]
        rows.append([f"`{short(w)}`", number(bits, 4)] + [cell(v) for v in there])
    return table(["variant", "bits"] + list(models), rows)


def thrift_table(model):
    cell = model.get("thrift")
    rows = []
    for v in cell["result"]["variants"] if cell else []:
        rows.append([f"`{v['name']}`", interval(v["kl"]["mean"], 1e3), interval(v.get("kl_vs_first"), 1e3),
                     interval({k: x - 1 for k, x in v["perplexity_ratio"].items()}, 100)])
    return table(["variant", "KL, 1e-3 nats", "difference to nvfp4", "perplexity, +%"], rows)


def total(variant):
    return next(r for r in variant["results"] if r["task"] is None and r["length"] is None)


def ruler_table(models):
    rows = []
    for name, model in models.items():
        cell = model.get("ruler")
        if not cell:
            continue
        r = cell["result"]
        for i, v in enumerate([r["reference"]] + r["variants"]):
            t = total(v)
            d = t.get("difference", {})
            rows.append([name if i == 0 else "", f"`{short(v['name'])}`", t["n"], interval(t["match"], 100), interval(d.get("match"), 100),
                         f"{d['lost']} / {d['gained']}" if d else "", interval(d.get("logprob"), 1e3)])
    return table(["model", "variant", "prompts", "match, %", "difference to bf16", "lost / gained", "log-probability, difference, 1e-3"], rows)


def named(items, key="name"):
    return {x[key]: x for x in items}


def stress_tables(report):
    """Three tables, a column for each generated cache: error by format, recovery by selection, the paper's arithmetic."""
    sets = {name: cell["result"] for name, cell in report["stress"].items()}
    if not sets:
        return "Not measured.\n\n"
    first = next(iter(sets.values()))
    error = [[f"`{w}`", number(v["bits_per_value"], 4)] + [number(100 * named(r["variants"])[w]["rel_l2"]["median"]) for r in sets.values()]
             for w, v in named(first["variants"]).items()]
    out = "Error of the attention output, median, %:\n\n" + table(["format", "bits"] + list(sets), error)

    def recovered(method, fraction):
        f = next((f for f in method["fractions"] if abs(f["fraction"] - fraction) < 1e-9), None)
        return f"{100 * f['recovered']['value']:.1f}" if f and f["recovered"] else "-"
    pair = lambda r, name: " / ".join(recovered(named(r["methods"])[name], f) for f in (.005, .05, .25))
    rows = [[m] + [pair(r, m) for r in sets.values()] for m in named(first["methods"])]
    out += f"Share of the gap from `{first['base']}` to bf16 that refining 0.5 / 5 / 25 % of the tokens recovers, %.\n"
    out += "Blocks have 64 tokens, so a block selection refines at least 1.6 %.\n\n" + table(["selection"] + list(sets), rows)
    paper = {name: r["paper"] for name, r in sets.items() if r.get("paper")}
    if paper:
        one = next(iter(paper.values()))
        rows = [[m] + [f"{100 * named(p['modes'])[m]['recovered'] + 0:.1f}".replace("-0.0", "0.0") for p in paper.values()] for m in named(one["modes"])]
        out += f"The same share with the paper's arithmetic and block selection, {number(100 * one['refined'], 2)} % of the tokens refined:\n\n"
        out += table(["arithmetic"] + list(paper), rows)
    return out


# ---- what was wanted ---------------------------------------------------------------

def wanted_of(m):
    """[what was wanted, measured, held] of one model"""
    s, rows = m["systems"], []
    if "ruler" in m:
        d = total(named(m["ruler"]["result"]["variants"])["nvfp4"])["difference"]["match"]
        base = total(m["ruler"]["result"]["reference"])["match"]["value"]
        rows.append(["nvfp4 loses at most 1 % of the retrieval score", f"{interval(d, 100 / base if base else 0)} %", d["value"] >= -.01 * base])
    p = s["nvfp4"]["perplexity_ratio"]
    rows.append(["nvfp4 has at most 1 % more perplexity", f"{interval({k: x - 1 for k, x in p.items()}, 100)} %", p["value"] <= 1.01])
    for word, what, held in (("mxfp4", "mxfp4 has more KL than nvfp4", lambda d: d["lo"] > 0), ("if4", "if4 has at most nvfp4's KL", lambda d: d["value"] <= 0),
                             ("nvfp4:calibration=CAL", "a calibration lowers nvfp4's KL", lambda d: d["hi"] < 0)):
        if word in s:
            d = s[word]["kl_vs_first"]
            rows.append([what, interval(d, 1e3), held(d)])
    return rows


def wanted(models):
    rows = {}
    for name, m in models.items():
        for what, came, held in wanted_of(m):
            rows.setdefault(what, {})[name] = f"{'yes' if held else 'no'}: {came}"
    return table(["wanted (KL differences in 1e-3 nats)"] + list(models), [[what] + [r.get(name, "") for name in models] for what, r in rows.items()])


# ---- plots ---------------------------------------------------------------------------

def plots(report, models, out):
    words = []
    for m in models.values():
        words += [w for w in m["systems"] if w not in words]
    words = [w for w in words if sum(w in m["systems"] for m in models.values()) == len(models)] or words
    series = [(name, [m["systems"][w]["kl"]["mean"] if w in m["systems"] else None for w in words]) for name, m in models.items()]
    done = []
    if words:
        svg.dots(os.path.join(out, "kl.svg"), "KL from bf16, nats (95% intervals)", [short(w) for w in words], series)
        done.append("kl.svg")
    cell = next((c for n, c in report["stress"].items() if n.startswith("plain peaky")), None)
    if cell:
        lines = [(m["name"], [(f["refined"], f["recovered"]["value"]) for f in m["fractions"] if f["recovered"] and f["refined"] > 0]) for m in cell["result"]["methods"]]
        svg.lines(os.path.join(out, "thrift.svg"), "Gap recovered, peaky heads", "share of the tokens refined", lines)
        done.append("thrift.svg")
    return done


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("results")
    ap.add_argument("-o", "--out", default=os.path.dirname(os.path.abspath(__file__)), metavar="DIR")
    a = ap.parse_args()
    with open(a.results, encoding="utf-8") as f:
        report = json.load(f)
    models = report["models"]
    for m in models.values():
        m["systems"], m["variants"] = systems(m), report["variants"]
    first = next(iter(models.values()))
    drawn = plots(report, models, a.out)
    text = "# What each cache format costs: the ablation\n\n"
    text += f"`{report['size']}` set of `run.py`; {report['machine']}; load {report['load_average']} at the start; {report['seconds']:.0f} s.\n"
    text += "Written by `report.py` from `bench/results/accuracy.json`, which has more figures; [README.md](README.md) has the conclusions.\n"
    text += "Intervals are 95 %: a paired bootstrap over blocks of 64 positions, or over contexts.\n\n"
    if report["failed"]:
        text += "Cells that failed: " + "; ".join(report["failed"]) + "\n\n"
    text += "## KL of each variant\n\nMean KL from bf16 in 1e-3 nats.\n"
    text += "\"lower\" and \"higher\": the 95 % interval of the paired difference to `nvfp4` excludes 0.\n\n" + kl_table(models)
    text += "".join(f"![{n}]({n})\n\n" for n in drawn)
    if "thrift" in first:
        text += "## Thrift mode\n\nnibble-tiny, token by token as in generation.\n\n" + thrift_table(first)
    text += "## Retrieval\n\n" + ruler_table(models)
    text += "## What was wanted\n\n" + wanted(models)
    text += "## Generated tensors\n\n" + stress_tables(report)
    with open(os.path.join(a.out, "RESULTS.md"), "w", encoding="utf-8") as f:
        f.write(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
