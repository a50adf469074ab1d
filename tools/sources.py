#!/usr/bin/env python3
"""sources.py - docs/sources.md: claims of four published documents beside our figures.

    tools/sources.py NIBBLE             writes it
    tools/sources.py NIBBLE --check     exit code 1 if it is out of date; --root DIR: of another tree

Our figures come from `nibble plan --json` and from bench/results; they are computed here, and the text with them.
sources_rows.py has the list: what is claimed, how ours is computed, why they differ.
"""
import functools
import json
import os
import re
import sys

import doc_plan
import sources_rows
from doc_plan import Plan, cell, only

K32, K128, M1 = 32 << 10, 128 << 10, 1 << 20


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
        return doc_plan.result(self.root, name)

    def training(self):
        with open(os.path.join(self.root, "train", "results.json"), encoding="utf-8") as f:
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

    users = staticmethod(lambda plan, dtype, context=K128: doc_plan.users(plan, dtype, context))

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


HEAD = """# Published figures, recomputed

Four documents shaped nibble's goals: an article, a provider's guide, a vendor's article and a lesson.
This page puts their claims beside what nibble computes with `nibble plan`, or has measured (`bench/results`).
Claims that repeat others, that are plain arithmetic or that cannot be checked here are left out, so the verdicts are no statistic.

    python3 tools/sources.py build/release/nibble      # writes this page; tests/e2e/sources.sh compares it

How to read the tables:

- k is 1,024 tokens, 1M is 2^20, GB is 10^9 bytes, GiB is 2^30.
- TP8 means that eight GPUs compute each token together. DP8 means eight replicas of the attention with users of their own, and experts dealt over all.
- "At most" is a bound from the data sheet: one token per sequence and step, and only reads and BF16 arithmetic take time.
  An engine that multiplies in FP8 can be up to twice as fast where arithmetic binds.
- "Modelled" has the shares of the data sheet that nibble reached on one H100 ([roofline](../src/capacity/README.md)).
- Nothing here was run on several H200 or on a B200, nor with these models' weights.
- Accuracy is that of nibble-tiny (15 M parameters) and of generated tensors: it ranks formats, it does not predict a large model.
"""


def render(facts):
    documents = sources_rows.documents(facts)
    rows = {r.id: r for d in documents for r in d.rows}
    for r in rows.values():
        gone = set(re.findall(r"\b[A-D]\d{1,2}\b", f"{r.ours} {r.why}")) - set(rows)
        if gone:
            sys.exit(f"sources: {r.id} refers to {' '.join(gone)}, which are not there")
    out = [HEAD]
    listed = {rid for rid, _, _ in sources_rows.LARGEST}
    least = min(rows[rid].factor for rid in listed)
    missed = [r.id for r in rows.values() if r.factor and r.factor > least and r.id not in listed and r.id not in sources_rows.SAME]
    if missed:
        sys.exit(f"sources: larger than the least of the ten, and not among them: {' '.join(missed)} (LARGEST, SAME of sources_rows.py)")
    out.append("## Which errors are largest?\n\nThe factor is between the claim and our figure; a range counts by its middle.\nClaims that repeat one of these are left out.\n")
    out.append("| | claim | ours | factor |\n|---|---|---|--:|")
    worst = sorted(sources_rows.LARGEST, key=lambda x: -rows[x[0]].factor)
    for rid, claim, what in worst:
        r = rows[rid]
        out.append(f"| {rid} | {cell(claim)} | {cell(what(facts))} | {r.factor:.1f} |")
    out.append("\n" + sources_rows.lessons(facts))
    for d in documents:
        out.append(f"\n## {d.letter}. {d.title}\n\n{d.about}\n\n| | claim | ours | verdict | why |\n|---|---|---|---|---|")
        out += [f"| {r.id} | {cell(r.claim)} | {cell(r.ours)} | {cell(r.verdict)} | {cell(r.why)} |" for r in d.rows]
    out.append("\n## Which commands give these figures?\n")
    out += ["    nibble plan " + " ".join(a) + " --json" for a in facts.plan.done]
    out.append("\nMeasurements: `bench/results/accuracy.json`, `flashmla_h100.json`, `gpu_h100.json`, `replay.json`.")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    doc_plan.main(__doc__, lambda root, nibble, _: {"docs/sources.md": render(Facts(root, nibble))})
