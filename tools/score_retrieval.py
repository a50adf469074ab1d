#!/usr/bin/env python3
"""score_retrieval.py - exact match on retrieval prompts, with `nibble run`.

    python3 train/retrieval_eval.py --length 2048 --n 200 --seed 1 -o prompts.json
    python3 tools/score_retrieval.py build/release/nibble models/nibble-tiny prompts.json \\
        --kv-cache-dtype nvfp4

Prompts are [{"prompt", "answer", "kind"}, ...]; the answer counts when the first line of the greedy
continuation, without blanks around it, is the expected one.  Prints one JSON object: exact match in
per cent, overall and per kind, each with the number of prompts.  Options it does not know are handed
to `nibble run` (--threads 2, --mla absorbed, ...).
"""
import argparse
import concurrent.futures
import json
import subprocess
import sys
import time


def ask(command, prompt):
    run = subprocess.run(command, input=prompt.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         check=False)
    if run.returncode != 0:
        raise SystemExit(f"score_retrieval: {' '.join(command)}: exit code {run.returncode}: "
                         f"{run.stderr.decode(errors='replace').strip()}")
    return json.loads(run.stdout)["text"].split("\n")[0].strip()


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("nibble")
    ap.add_argument("model")
    ap.add_argument("prompts")
    ap.add_argument("--kv-cache-dtype", default="auto")
    ap.add_argument("--max-tokens", type=int, default=40, help="longest answer (default 40)")
    ap.add_argument("--limit", type=int, help="only the first N prompts")
    ap.add_argument("--jobs", type=int, default=1, help="processes at a time")
    ap.add_argument("--wrong", action="store_true", help="show wrong answers on standard error")
    a, more = ap.parse_known_args()
    with open(a.prompts, encoding="utf-8") as f:
        prompts = json.load(f)[:a.limit]
    if not prompts:
        sys.exit(f"score_retrieval: {a.prompts} has no prompts")
    command = [a.nibble, "run", a.model, "-p", "-", "-n", str(a.max_tokens), "--temperature", "0",
               "--stop", "\n", "--json", "--kv-cache-dtype", a.kv_cache_dtype, *more]
    kinds, right, start = {}, 0, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        answers = pool.map(lambda p: ask(command, p["prompt"]), prompts)
        for i, (p, got) in enumerate(zip(prompts, answers)):
            ok = got == p["answer"].strip()
            right += ok
            of_kind = kinds.setdefault(p["kind"], [0, 0])
            of_kind[0] += ok
            of_kind[1] += 1
            if a.wrong and not ok:
                print(f"{i} {p['kind']}: {got!r}, expected {p['answer']!r}", file=sys.stderr)
    print(json.dumps({
        "model": a.model, "prompts": a.prompts, "kv_cache_dtype": a.kv_cache_dtype, "n": len(prompts),
        "exact_match": round(100 * right / len(prompts), 2),
        "kinds": {k: {"exact_match": round(100 * r / n, 2), "n": n} for k, (r, n) in sorted(kinds.items())},
        "seconds": round(time.monotonic() - start, 1)}))


main()
