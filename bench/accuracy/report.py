#!/usr/bin/env python3
"""Tables and plots of what run.py has measured.

    python3 bench/accuracy/report.py bench/results/accuracy.json [-o bench/accuracy]

Writes RESULTS.md (tables with 95% intervals, the predictions beside the outcome, the rule for
defaults), kl.svg and thrift.svg.  reading.md in the same folder, written by hand, is put in front of
the tables.  Only Python's standard library.
"""
import argparse
import json
import math
import os

import cells
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


def kl_table(model):
    factor = dict(map(tuple, model["variants"]))
    rows = []
    for word, v in model["systems"].items():
        rows.append([f"`{short(word)}`", factor.get(word, "default"), number(v["bits_per_value"], 4), interval(v["kl"]["mean"], 1e3),
                     interval(v["kl"]["p99"], 1e3), interval(v["kl_vs_first"], 1e3) if "kl_vs_first" in v else "", interval(v["top1"], 100),
                     interval({k: x - 1 for k, x in v["perplexity_ratio"].items()}, 100)])
    return table(["variant", "factor", "bits", "KL, 1e-3 nats", "99th percentile", "less nvfp4's", "same best, %", "perplexity, +%"], rows)


def thrift_table(model):
    cell = model.get("thrift")
    rows = []
    for v in cell["result"]["variants"] if cell else []:
        rows.append([f"`{v['name']}`", interval(v["kl"]["mean"], 1e3), interval(v.get("kl_vs_first"), 1e3),
                     interval({k: x - 1 for k, x in v["perplexity_ratio"].items()}, 100)])
    return table(["variant, decoding", "KL, 1e-3 nats", "less nvfp4's", "perplexity, +%"], rows)


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
                         f"{d['lost']} / {d['gained']}" if d else "", number(d["p"], 2) if d else "", interval(d.get("logprob"), 1e3)])
    return table(["model", "variant", "prompts", "match, %", "less bf16's", "lost / gained", "McNemar p", "log-probability, 1e-3"], rows)


def stress_tables(report):
    out = ""
    for name, cell in report["stress"].items():
        r = cell["result"]
        out += f"### {name}\n\n"
        out += table(["variant", "bits", "rel-L2 median, %", "mean", "95th percentile", "KL, nats"],
                     [[f"`{v['name']}`", number(v["bits_per_value"], 4)] + [number(100 * v["rel_l2"][k]) for k in ("median", "mean", "p95")] +
                      [number(v["kl"]["mean"])] for v in r["variants"]])
        fractions = [f["fraction"] for f in r["methods"][0]["fractions"]] if r["methods"] else []
        out += "Share of the gap of " + f"`{r['base']}` to bf16 that a selection recovers, %; in brackets tokens refined, %\n\n"
        out += table(["selection"] + [f"at {100 * f:g} %" for f in fractions],
                     [[m["name"]] + [f"{number(100 * f['recovered']['value']) if f['recovered'] else '-'} ({number(100 * f['refined'], 2)})"
                                     for f in m["fractions"]] for m in r["methods"]])
        if r.get("paper"):
            out += f"The paper's arithmetic, {number(100 * r['paper']['refined'], 2)} % of the tokens refined\n\n"
            out += table(["arithmetic", "rel-L2 mean, %", "refined", "recovered, %"],
                         [[m["name"], number(100 * m["rel_l2"]), number(100 * m["refined_rel_l2"]), number(100 * m["recovered"])] for m in r["paper"]["modes"]])
    return out


# ---- what was predicted, what was wanted ---------------------------------------------

def verdict(ok):
    return "not measured" if ok is None else "yes" if ok else "no"


def stress_of(report, name):
    """{word: figures}, the selections, of the first seed"""
    cell = next((c for n, c in report["stress"].items() if n.startswith(name + ",")), None)
    if not cell:
        return {}, {}
    return ({v["name"]: v for v in cell["result"]["variants"]},
            {m["name"]: {f["fraction"]: f for f in m["fractions"]} for m in cell["result"]["methods"]})


WORDS = ["fp8", "nvfp4:mode=basic", "nvfp4", "if4"]
PREDICTED = [  # name, of which cell, predictions of fp8, plain nvfp4, 4/6, if4 and of the token selection
    ("output rel-L2, peaky head, %", "plain peaky", [2.9, 10.6, 9.4, 8.4, .8]),
    ("output rel-L2, diffuse head, %", "plain diffuse", [1.2, 4.0, 3.6, 3.2, 2.9]),
]


def predictions(report, first):
    rows = []
    for name, cell, said in PREDICTED:
        v, m = stress_of(report, cell)
        came = [100 * v[w]["rel_l2"]["median"] if w in v else None for w in WORDS]
        came.append(100 * m["token"][.005]["rel_l2"] if .005 in m.get("token", {}) else None)
        rows.append([name] + [f"{number(s, 2)} / {number(c)}" for s, c in zip(said, came)])
    v, _ = stress_of(report, "plain diffuse")
    rows.append(["KL of a head, deviation 1, nats"] + [f"{s} / {number(v[w]['kl']['mean'] if w in v else None)}" for s, w in zip([.0003, .0044, .0033, .0029], WORDS)] + [".0023 / -"])
    s = first["systems"]
    over = lambda w: s[w]["kl"]["mean"]["value"] - s["fp8"]["kl"]["mean"]["value"] if w in s and "fp8" in s else None
    rows.append(["model's KL over fp8's, nats"] + [f"{x} / {number(over(w))}" for x, w in zip(["0", ".008 to .013", ".007", ".005 to .006"], WORDS)] + [".003 / -"])
    r = {v["name"]: total(v) for v in first["ruler"]["result"]["variants"]} if "ruler" in first else {}
    lost = lambda w: interval(r[w]["difference"]["match"], 100) if w in r else "-"
    rows.append(["retrieval less bf16's, points"] + [f"{x} / {lost(w)}" for x, w in zip([-.1, -1.0, -.7, -.5], WORDS)] + ["within noise / -"])
    return table(["predicted / came out", "fp8", "nvfp4 basic", "nvfp4 4/6", "if4", "with Thrift (token)"], rows)


def wanted(report, models):
    rows = []
    for name, m in models.items():
        s = m["systems"]
        r = {v["name"]: v for v in m["ruler"]["result"]["variants"]} if "ruler" in m else {}
        ref = total(m["ruler"]["result"]["reference"]) if "ruler" in m else None
        if "nvfp4" in r:
            d, base = total(r["nvfp4"])["difference"]["match"], ref["match"]["value"]
            rows.append([name, "nvfp4 loses at most 1 % of the retrieval score", f"{interval(d, 100 / base if base else 0)} %", verdict(d["value"] >= -.01 * base)])
        for word in ("nvfp4", "nvfp4:transform=center+equalize:calibration=CAL", "nvfp4:calibration=CAL"):
            if word in s:
                p = s[word]["perplexity_ratio"]
                rows.append([name, f"`{short(word)}`: at most 1 % perplexity", f"{interval({k: x - 1 for k, x in p.items()}, 100)} %", verdict(p["value"] <= 1.01)])
        for word, what in (("mxfp4", "nvfp4 beats mxfp4"), ("if4", "if4 at most nvfp4's KL")):
            if word in s:
                d = s[word]["kl_vs_first"]
                ok = d["lo"] > 0 if word == "mxfp4" else d["value"] <= 0
                rows.append([name, what, f"{word} less nvfp4: {interval(d, 1e3)} 1e-3 nats", verdict(ok)])
        word = "nvfp4:calibration=CAL"
        if word in s:
            d = s[word]["kl_vs_first"]
            rows.append([name, "calibrated beats uncalibrated", f"{interval(d, 1e3)} 1e-3 nats", verdict(d["hi"] < 0)])
    for name, cell in report["stress"].items():
        if not name.startswith("plain peaky") and not name.startswith("hard peaky"):
            continue
        for m in cell["result"]["methods"]:
            f = next((f for f in m["fractions"] if abs(f["fraction"] - .005) < 1e-9), None)
            if m["name"] == "token" and f and f["recovered"]:
                rows.append([name, "Thrift recovers 89.1 % at 0.5 % of the tokens", f"{interval(f['recovered'], 100)} % at {number(100 * f['refined'], 2)} %",
                             verdict(f["recovered"]["value"] >= .891 and f["refined"] <= .005)])
    return table(["where", "wanted", "came out", "held"], rows)


def rule(models):
    """On how many models a variant's KL is below or above the default's, intervals apart from 0"""
    rows = []
    words = []
    for m in models.values():
        words += [w for w in m["systems"] if w not in words and w != cells.BASE]
    for w in words:
        d = [m["systems"][w]["kl_vs_first"] for m in models.values() if w in m["systems"] and "kl_vs_first" in m["systems"][w]]
        better, worse = sum(x["hi"] < 0 for x in d), sum(x["lo"] > 0 for x in d)
        bits = next(m["systems"][w]["bits_per_value"] for m in models.values() if w in m["systems"])
        rows.append([f"`{short(w)}`", number(bits, 4), len(d), better, worse])
    return table(["variant", "bits", "models", "better than nvfp4", "worse"], rows)


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
    reading = os.path.join(a.out, "reading.md")
    text = "# The ablation\n\n" + f"`{report['size']}` set of `run.py`; {report['machine']}; load {report['load_average']} at the start; {report['seconds']:.0f} s.\n"
    text += "Made by `report.py`. Intervals are 95%: paired bootstrap over blocks of 64 positions, or over contexts.\n\n"
    if report["failed"]:
        text += "Cells that failed: " + "; ".join(report["failed"]) + "\n\n"
    if os.path.exists(reading):
        with open(reading, encoding="utf-8") as f:
            text += f.read().strip() + "\n\n"
    text += "## Wanted\n\n" + wanted(report, models)
    text += "## Predictions\n\n" + predictions(report, first)
    text += "## The rule for defaults\n\nA default changes when its KL is lower on at least two models, the interval of the paired difference apart from 0.\n\n" + rule(models)
    text += "".join(f"![{n}]({n})\n\n" for n in drawn)
    for name, m in models.items():
        text += f"## {name}\n\n" + kl_table(m)
        if "thrift" in m:
            text += thrift_table(m)
    text += "## Retrieval\n\n" + ruler_table(models)
    text += "## Generated tensors\n\n" + stress_tables(report)
    with open(os.path.join(a.out, "RESULTS.md"), "w", encoding="utf-8") as f:
        f.write(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
