#!/usr/bin/env python3
"""sources.py - docs/sources.md: each figure of the four documents that nibble was asked for with, beside ours.

    tools/sources.py NIBBLE [--root DIR] [--output FILE]      writes it (default: docs/sources.md)
    tools/sources.py NIBBLE --check                           exit code 1 if the file is another

Our figures come from `nibble plan --json` and from bench/results; they are computed here, and the text with them.
sources_rows.py has the list: what is claimed, how ours is computed, why they differ.
"""
import argparse
import difflib
import functools
import json
import os
import subprocess
import sys

import sources_rows

K32, K128, M1 = 32 << 10, 128 << 10, 1 << 20


class Plan:
    """Calls of `nibble plan`, each once."""

    def __init__(self, nibble):
        self.nibble, self.done = nibble, {}

    def __call__(self, *args):
        if args not in self.done:
            out = subprocess.run([self.nibble, "plan", *args, "--json"], capture_output=True, text=True, check=False)
            if out.returncode:
                sys.exit(f"sources: nibble plan {' '.join(args)}: {out.stderr.strip()}")
            self.done[args] = json.loads(out.stdout)
        return self.done[args]


def only(rows, **want):
    """The one row of a list that has these values."""
    found = [r for r in rows if all(r.get(k) == v for k, v in want.items())]
    if len(found) != 1:
        sys.exit(f"sources: {len(found)} rows with {want}: expected 1")
    return found[0]


class Facts:
    """What the rows are computed from."""

    def __init__(self, root, nibble):
        self.root, self.plan = root, Plan(nibble)
        self.v3 = self.plan("deepseek-v3", "--context", "4k,32k,128k")
        self.lite = self.plan("deepseek-v2-lite", "--context", "128k")
        self.llama = self.plan("llama-3.1-70b", "--context", "128k")
        self.layers = self.v3["model"]["n_layer"]
        self.replay = self.result("replay")["rows"]

    @functools.lru_cache(maxsize=None)
    def result(self, name):
        with open(os.path.join(self.root, "bench", "results", name + ".json"), encoding="utf-8") as f:
            return json.load(f)

    # Bytes.

    def record(self, dtype, model=None):
        rows = (model or self.v3)["cache"]["records"]
        return next(r for r in rows if r["dtype"] == dtype and r["default_rope"]
                    or r["dtype"] == dtype and not any(x["dtype"] == dtype and x["default_rope"] for x in rows))

    def each(self, dtype, model=None):
        """Bytes of a token and layer."""
        return self.record(dtype, model)["bytes_per_token_layer"]

    def other(self, name, model=None):
        """The same for the model with other attention, BF16."""
        return only((model or self.v3)["cache"]["equivalents"], name=name)["bytes_per_token_layer"]

    def user(self, per_layer, n_tok=K128):
        """Bytes of all layers for the tokens of one user."""
        return per_layer * self.layers * n_tok

    # Machines.

    def on(self, gpu, gpus, tp, model="deepseek-v3", **options):
        args = [model, "--gpu", gpu, "--gpus", str(gpus), "--tp", str(tp), "--context", "4k,32k,128k", "--concurrency", "1,8,16"]
        if tp == 1 and gpus > 1 and model == "deepseek-v3":
            args += ["--ep", str(gpus)]
        for name, value in options.items():
            args += ["--" + name.replace("_", "-"), value]
        return self.plan(*args)

    @staticmethod
    def users(plan, dtype, context=K128):
        return only(only(plan["capacity"], dtype=dtype)["contexts"], context=context)["users"]

    @staticmethod
    def step(plan, dtype, context, sequences):
        """The row of decode for so many sequences; the largest number that fits for fewer."""
        rows = [d for d in plan["decode"] if d["dtype"] == dtype and d["context"] == context]
        fit = [d for d in rows if d["concurrency"] <= sequences]
        return max(fit or rows, key=lambda d: d["concurrency"] if fit else -d["concurrency"])

    @staticmethod
    def filled(plan, dtype, context):
        return only(plan["decode"], dtype=dtype, context=context, all_that_fit=True)

    @staticmethod
    def prompt(plan, context):
        return only(plan["prefill"], prompt=context)

    # Measurements.

    def kl(self, model, variant):
        """Mean KL, 1e-3 nats, and the ratio of perplexities."""
        runs = self.result("accuracy")["models"][model]
        v = only(runs["kl 0"]["result"]["variants"], name=variant)
        return v["kl"]["mean"]["value"] * 1e3, v["perplexity_ratio"]["value"]

    def models(self, *variants):
        """The models on which all of these were measured."""
        runs = self.result("accuracy")["models"]
        return [m for m, r in runs.items() if set(variants) <= {v["name"] for v in r["kl 0"]["result"]["variants"]}]

    def thrift(self, variant):
        runs = self.result("accuracy")["models"]["nibble-tiny"]["thrift"]["result"]["variants"]
        return only(runs, name=variant)["kl"]["mean"]["value"] * 1e3

    def recovered(self, method, fraction):
        """Share of the gap between 4 bits and BF16 that a selection recovers, by set of generated tensors."""
        out = []
        for run in self.result("accuracy")["stress"].values():
            f = only(only(run["result"]["methods"], name=method)["fractions"], fraction=fraction)
            if f["recovered"]:
                out.append(f["recovered"]["value"])
        return out

    def errors(self, one, other):
        """Median error of the attention output on generated tensors, as a share of another record's."""
        out = []
        for run in self.result("accuracy")["stress"].values():
            a, b = (only(run["result"]["variants"], name=n)["rel_l2"]["median"] for n in (one, other))
            out.append((a["value"] if isinstance(a, dict) else a) / (b["value"] if isinstance(b, dict) else b))
        return out

    def retrieval(self, variant):
        """Difference to bf16 in points."""
        runs = self.result("accuracy")["models"]["nibble-tiny"]["ruler"]["result"]
        r = only(only(runs["variants"], name=variant)["results"], task=None, length=None)
        return runs, r["difference"]["match"]

    def kernel(self, who, record, heads, batch, context):
        rows = [r for r in self.result("flashmla_h100")["rows"] if (r["who"], r["record"], r["heads"], r["batch"], r["context"])
                == (who, record, heads, batch, context) and not r["row"].endswith("+plan")]
        if len(rows) != 1:
            sys.exit(f"sources: {len(rows)} times of {who} {record} {heads} x {batch} x {context}")
        return rows[0]

    def whole(self, record, depth, sequences):
        return only(self.result("gpu_h100")["steps"]["rows"], record=record, kind="decode", depth=depth,
                    sequences_or_tokens=sequences)["tokens_per_s"]

    def played(self, trace, replay, record, gb):
        return only(self.replay, trace=trace, replay=replay, record=record, cache_gb=gb)


HEAD = """# The sources, recomputed

nibble was asked for with four documents. Each figure of theirs stands here beside what nibble computes
(`nibble plan --json`, from the functions that allocate) or has measured (`bench/results`), with the reason
where they differ. Made by `tools/sources.py`, never edited by hand; `tests/e2e/sources.sh` compares.

    python3 tools/sources.py build/release/nibble

Of theirs a few words are quoted. k is 1,024 tokens and 1M 2^20 (A14, B30), GB 10^9 bytes, GiB 2^30. TP8: eight GPUs compute each token together; DP8: eight
replicas of the attention with users of their own, experts dealt over all.
"At most" is a bound from the data sheet: every sequence gets one token per step, and nothing takes time but
reading and BF16 arithmetic (an engine that multiplies in FP8 can be up to twice as fast where arithmetic binds). "Modelled" has the
shares of the data sheet that nibble reached on one H100 ([roofline](../src/capacity/README.md)). Nothing here was run on an H200 or a B200, nor with these models' weights.
Accuracy is of nibble-tiny (15 M parameters) and of generated tensors: it ranks, it does not predict a large model.
"""


def cell(s):
    return str(s).replace("|", "\\|").replace("\n", " ")


def render(facts):
    documents = sources_rows.documents(facts)
    rows = {r.id: r for d in documents for r in d.rows}
    out = [HEAD]
    counts = sum(len(d.rows) for d in documents)
    right = sum(r.verdict == "right" for r in rows.values())
    partly = sum(r.verdict.startswith("right ") for r in rows.values())
    unseen = sum(r.verdict.startswith(sources_rows.NOT_HERE) for r in rows.values())
    out.append(f"{counts} figures and claims: {right} right, {partly} right with the condition that stands there, "
               f"{counts - right - partly - unseen} wrong, ambiguous or not reproduced, {unseen} not checkable here.\n")
    listed = {rid for rid, _, _ in sources_rows.LARGEST}
    least = min(rows[rid].factor for rid in listed)
    missed = [r.id for r in rows.values() if r.factor and r.factor > least and r.id not in listed and r.id not in sources_rows.SAME]
    if missed:
        sys.exit(f"sources: larger than the least of the ten, and not among them: {' '.join(missed)} (LARGEST, SAME of sources_rows.py)")
    out.append("## The ten largest errors\n\nBy factor between claim and ours, of a range (B12, B52) its middle; rows that repeat one of them are left out.\n")
    out.append("| | claim | ours | factor |\n|---|---|---|--:|")
    worst = sorted(sources_rows.LARGEST, key=lambda x: -rows[x[0]].factor)
    for rid, claim, what in worst:
        r = rows[rid]
        out.append(f"| {rid} | {cell(claim)} | {cell(what(facts))} | {r.factor:.1f} |")
    out.append("\n" + sources_rows.lessons(facts))
    for d in documents:
        out.append(f"\n## {d.letter}. {d.title}\n\n{d.about}\n\n| | claim | ours | verdict | why |\n|---|---|---|---|---|")
        out += [f"| {r.id} | {cell(r.claim)} | {cell(r.ours)} | {cell(r.verdict)} | {cell(r.why)} |" for r in d.rows]
    out.append("\n## Calls\n\nThe figures of sizes, users, rates and prices above come from these:\n")
    out += ["    nibble plan " + " ".join(a) + " --json" for a in facts.plan.done]
    out.append("\nMeasurements: `bench/results/accuracy.json`, `flashmla_h100.json`, `gpu_h100.json`, `replay.json`.")
    return "\n".join(out) + "\n"


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("nibble")
    args.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    args.add_argument("--output")
    args.add_argument("--check", action="store_true")
    a = args.parse_args()
    text = render(Facts(a.root, a.nibble))
    path = a.output or os.path.join(a.root, "docs", "sources.md")
    if not a.check:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return
    with open(path, encoding="utf-8") as f:
        old = f.read()
    if old != text:
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), text.splitlines(True), path, "computed", n=0))
        sys.exit(f"sources: {path} is not what is computed: tools/sources.py NIBBLE writes it; read the difference first")


if __name__ == "__main__":
    main()
