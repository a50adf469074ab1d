#!/usr/bin/env python3
"""_replay_check.py - replays a trace on its own: a plain LRU over prefixes, with nothing of nibble.

  _replay_check.py FILE.jsonl|FILE.json|FOLDER --capacity N[,N...] [--block 64] [--sessions N --max-gap S
                   --requests N --seed N] [--max-prompt N]

Capacities are in blocks.  Prints JSON: input tokens, and hit tokens for each capacity.  A block is named
by what comes before it: the names of a prompt up to its own and its place within the last of them.
"""
import argparse
import heapq
import json
import os
from collections import OrderedDict

M64 = (1 << 64) - 1


def mix64(x):
    """SplitMix64's finaliser, as src/base/rng.h says it."""
    x = (x + 0x9e3779b97f4a7c15) & M64
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & M64
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & M64
    return x ^ (x >> 31)


def draw(seed, index):
    return mix64(mix64(seed) ^ (index * 0xda942042e4dd58b5 & M64))


def order_of(seed, n_round, n):
    """The order in which sessions are drawn: Fisher and Yates from the end."""
    at = list(range(n))
    for i in range(n, 1, -1):
        k = draw((seed + 0x9e3779b97f4a7c15 * n_round) & M64, i) % i
        at[i - 1], at[k] = at[k], at[i - 1]
    return at


class Prefixes:
    """Numbers for texts: (number of what comes before, name) -> number."""

    def __init__(self):
        self.number = {}

    def path(self, start, names):
        out = []
        for name in names:
            start = self.number.setdefault((start, name), len(self.number))
            out.append(start)
        return out


def blocks_of(names, name_tokens, n_in, block):
    """Names of the full blocks of a prompt, as far as the trace names them."""
    n_full = min(n_in, len(names) * name_tokens) // block
    if block <= name_tokens:
        per = name_tokens // block
        return [(names[i // per], i % per) for i in range(n_full)]
    per = block // name_tokens
    return [tuple(names[i * per:(i + 1) * per]) for i in range(n_full)]


class Cache:
    def __init__(self, capacity):
        self.capacity = capacity
        self.at = OrderedDict()
        self.hit_blocks = 0

    def play(self, path, n_find):
        n = 0
        while n < min(n_find, len(path)) and path[n] in self.at:
            n += 1
        self.hit_blocks += n
        for x in reversed(path): # the last block of a text is the oldest of it
            self.at[x] = None
            self.at.move_to_end(x)
        while len(self.at) > self.capacity:
            self.at.popitem(last=False)


def stream(path, args):
    n = 0
    with open(path, encoding="utf-8") as f:
        for line in f:
            r = json.loads(line)
            if args.max_prompt and r["input_length"] > args.max_prompt:
                continue
            if args.requests and n == args.requests:
                return
            n += 1
            yield 0, r["input_length"], r["hash_ids"], 512


def session_requests(path):
    with open(path, encoding="utf-8") as f:
        session = json.load(f)
    flat = []

    def walk(requests, since):
        """A subagent's own clock begins when its parent called it: `duration_ms` before the time it is listed at."""
        for r in requests:
            if "requests" in r:
                walk(r["requests"], since + max(r["t"] - (r.get("duration_ms") or 0) / 1000, 0))
            else:
                flat.append({**r, "t": since + r["t"]})

    walk(session["requests"], 0)
    return sorted(flat, key=lambda r: r["t"]), session["block_size"]


def sessions(trace, args):
    """N sessions are open until no other is left to take the place of one that ended."""
    folder, name = (trace, None) if os.path.isdir(trace) else os.path.split(trace)
    files = [name] if name else sorted(f for f in os.listdir(folder) if f.endswith(".json"))
    state = {"drawn": 0, "order": []}
    heap = []

    def fits(r):
        return r["in"] > 0 and (not args.max_prompt or r["in"] <= args.max_prompt)

    def open_next(time):
        for _ in files:
            i = state["drawn"] % len(files)
            if i == 0 and state["drawn"] and not args.requests:
                return
            if i == 0:
                state["order"] = order_of(args.seed, state["drawn"] // len(files), len(files))
            number = state["drawn"]
            state["drawn"] += 1
            requests, block = session_requests(os.path.join(folder, files[state["order"][i]]))
            requests = [r for r in requests if fits(r)]
            if requests:
                heapq.heappush(heap, (time, number, 0, requests, block))
                return

    for _ in range(args.sessions):
        open_next(0.0)
    n = 0
    while heap and (not args.requests or n < args.requests):
        time, number, at, requests, block = heapq.heappop(heap)
        r = requests[at]
        yield number + 1, r["in"], r["hash_ids"], block
        n += 1
        if at + 1 < len(requests):
            gap = min(max(requests[at + 1]["t"] - r["t"], 0), args.max_gap)
            heapq.heappush(heap, (time + gap, number, at + 1, requests, block))
        else:
            open_next(time)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("trace")
    p.add_argument("--capacity", required=True)
    p.add_argument("--block", type=int, default=64)
    p.add_argument("--sessions", type=int, default=16)
    p.add_argument("--max-gap", type=float, default=600)
    p.add_argument("--requests", type=int, default=0)
    p.add_argument("--max-prompt", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    caches = [Cache(int(c)) for c in args.capacity.split(",")]
    prefixes, n_tokens = Prefixes(), 0
    many = os.path.isdir(args.trace) or args.trace.endswith(".json")
    source = sessions(args.trace, args) if many else stream(args.trace, args)
    for tenant, n_in, names, name_tokens in source:
        n_tokens += n_in
        path = prefixes.path(-1 - tenant, blocks_of(names, name_tokens, n_in, args.block))
        for c in caches:
            c.play(path, (n_in - 1) // args.block)
    print(json.dumps({"input_tokens": n_tokens, "hit_tokens": [c.hit_blocks * args.block for c in caches]}))


if __name__ == "__main__":
    main()
