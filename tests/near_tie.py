#!/usr/bin/env python3
"""near_tie.py BOUND A.json B.json - two greedy runs of one prompt whose tokens differ: is it a tie?

The files are from `nibble run --json --logprobs 20`.  Exit code 0: up to the first token that differs the
log-probabilities agree within BOUND, and there each run has both tokens within BOUND of each other; what
follows has another prefix and says nothing.  1: no tie, or no difference any more.  2: the files are not such runs.
"""
import json
import sys


def gap(step, other):
    """How far `other` is behind the token that this run chose; None: it is not among the best."""
    behind = [t["logprob"] for t in step["top"] if t["id"] == other]
    return step["logprob"] - behind[0] if behind else None


def main():
    bound, a, b = float(sys.argv[1]), *(json.load(open(p, encoding="utf-8")) for p in sys.argv[2:4])
    steps = list(zip(a["logprobs"], b["logprobs"]))
    at = next((i for i, (x, y) in enumerate(steps) if x["id"] != y["id"]), None)
    off = max((abs(x["logprob"] - y["logprob"]) for x, y in steps[:at]), default=0.0)
    if at is None:
        print(f"the same {len(steps)} tokens now, log-probabilities within {off:.4f}: they differ from run to run")
        return 1
    x, y = steps[at]
    gaps = gap(x, y["id"]), gap(y, x["id"])
    print(f"token {at}: {x['id']} or {y['id']}, ahead by {gaps[0]} or {gaps[1]}; before it log-probabilities differ by {off:.4f}; "
          f"{bound} is a tie")
    return 0 if None not in gaps and max(*gaps, off) <= bound else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError, KeyError, TypeError, IndexError) as e:
        print(f"near_tie.py: {type(e).__name__}: {e}", file=sys.stderr)
        sys.exit(2)
