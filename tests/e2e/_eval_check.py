"""Computes what `nibble eval kl --detailed --json` says again, from the logits that `nibble logits`
writes: standard library only, by the definitions.

  _eval_check.py NIBBLE MODEL REPORT.json REFERENCE VARIANT...
"""
import array
import json
import math
import os
import subprocess
import sys
import tempfile


def logits(nibble, model, ids, kv):
    """Rows of floats, one for each id."""
    with tempfile.TemporaryDirectory() as tmp:
        tokens, out = os.path.join(tmp, "t.json"), os.path.join(tmp, "l.f32")
        with open(tokens, "w") as f:
            json.dump(ids, f)
        subprocess.run([nibble, "logits", model, "--tokens", tokens, "--rows", "all", "--output", out,
                        "--kv-cache-dtype", kv], check=True)
        flat = array.array("f")
        with open(out, "rb") as f:
            flat.frombytes(f.read())
    if sys.byteorder == "big":
        flat.byteswap()
    n = len(flat) // len(ids)
    return [flat[i * n:(i + 1) * n] for i in range(len(ids))]


def log_probs(row):
    top = max(row)
    lse = top + math.log(math.fsum(math.exp(x - top) for x in row))
    return [x - lse for x in row]


def main():
    nibble, model, report, reference, *variants = sys.argv[1:]
    j = json.load(open(report))
    bad = 0

    def near(what, got, want, tol=1e-6):
        nonlocal bad
        if not abs(got - want) <= tol * max(1, abs(want)):
            print(f"{what}: {got}, expected {want}")
            bad += 1

    kl = {v: [] for v in variants}
    nll = {v: [] for v in variants}
    same = {v: [] for v in variants}
    nll_ref, place = [], []
    for w, window in enumerate(j["windows"]):
        ids = window["ids"]
        assert len(ids) == window["n_tok"]
        first = max(window["skip"], 1) - 1
        rows = {name: logits(nibble, model, ids, name) for name in {reference, *variants}}
        for p in range(first, len(ids) - 1):
            ref, nxt = log_probs(rows[reference][p]), ids[p + 1]
            nll_ref.append(-ref[nxt])
            place.append((w, p, nxt))
            for v in variants:
                var = log_probs(rows[v][p])
                kl[v].append(math.fsum(math.exp(a) * (a - b) for a, b in zip(ref, var)))
                nll[v].append(-var[nxt])
                same[v].append(ref.index(max(ref)) == var.index(max(var)))
    d = j["reference"]["detail"]
    assert j["n_scored"] == len(place), (j["n_scored"], len(place))
    assert list(zip(d["window"], d["position"], d["next"])) == place, "other rows"
    n = len(place)
    near("reference perplexity", j["reference"]["perplexity"]["value"], math.exp(math.fsum(nll_ref) / n))
    for i in range(n):
        near(f"nll_ref {i}", d["nll"][i], nll_ref[i])
    assert [v["name"] for v in j["variants"]] == variants
    for got in j["variants"]:
        v, e = got["name"], got["detail"]
        for i in range(n):
            near(f"{v}: kl {i}", e["kl"][i], kl[v][i])
            near(f"{v}: nll {i}", e["nll"][i], nll[v][i])
            near(f"{v}: top1 {i}", e["top1"][i], same[v][i])
        near(f"{v}: mean kl", got["kl"]["mean"]["value"], math.fsum(kl[v]) / n)
        near(f"{v}: max kl", got["kl"]["max"], max(kl[v]))
        half = sorted(kl[v])
        near(f"{v}: median kl", got["kl"]["median"]["value"], (half[(n - 1) // 2] + half[n // 2]) / 2)
        near(f"{v}: perplexity", got["perplexity"]["value"], math.exp(math.fsum(nll[v]) / n))
        near(f"{v}: dnll", got["dnll"]["value"], (math.fsum(nll[v]) - math.fsum(nll_ref)) / n)
        near(f"{v}: top1", got["top1"]["value"], sum(same[v]) / n)
        assert sum(p["n"] for p in got["positions"]) == n
        if v == reference:
            assert max(e["kl"]) == 0 and got["kl"]["max"] == 0
        else:
            assert max(kl[v]) > 0, "a variant that is no variant"
    f = j["floor"]
    assert f["kl"]["max"] == 0 and max(f["detail"]["kl"]) == 0 and f["detail"]["nll"] == d["nll"]
    sys.exit(1 if bad else 0)


main()
