#!/usr/bin/env python3
"""overload.py - sends far more requests than the server can answer; each must get 200 or 503.

    bench/serve/overload.py [NIBBLE] [--requests N] [--times X] [--runs N]

It measures the capacity with as many clients as there are slots, then sends N requests at X times that
rate.  Wanted: each is answered with 200 or 503, and memory stays flat.
"""
import argparse
import os
import threading
import time

import _lib

SEQS, QUEUED = 16, 32
SHAPE = ["--random-input-len", "32", "--random-output-len", "16", "--ignore-eos", "--temperature", "0"]


class Watch(threading.Thread):
    """Samples the resident memory until stopped."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.samples, self.stop = server, [], threading.Event()

    def run(self):
        while not self.stop.wait(0.05):
            self.samples.append(self.server.resident())


def one(args, seed):
    with _lib.Server(args.nibble, "--max-num-seqs", str(SEQS), "--max-num-queued-reqs", str(QUEUED),
                     "--no-log-requests") as server:
        where = ["serve", "--port", str(server.port), "--tokenizer", _lib.MODEL, *SHAPE]
        calm = _lib.bench(args.nibble, *where, "--num-prompts", str(6 * SEQS), "--max-concurrency", str(SEQS),
                          "--num-warmups", str(SEQS), "--seed", str(seed))
        rate = calm["request_throughput"] * args.times
        server.ask("/reset_prefix_cache", method="POST")
        before = server.resident()
        watch = Watch(server)
        watch.start()
        hot = _lib.bench(args.nibble, *where, "--num-prompts", str(args.requests), "--request-rate", f"{rate:.3f}",
                         "--seed", str(seed + 1000))
        watch.stop.set()
        watch.join()
        time.sleep(0.3)
        left = server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting")
        held = server.metric("nibble:kv_pool_bytes", 'use="held"')
        out = hot["outcomes"]
        half = watch.samples[len(watch.samples) // 2:]
        return {"capacity_req_per_s": calm["request_throughput"], "offered_req_per_s": rate,
                "requests": args.requests, "completed": out["completed"], "refused_503": out["refused_503"],
                "anything_else": args.requests - out["completed"] - out["refused_503"], "outcomes": out,
                "completed_req_per_s": hot["request_throughput"], "p99_ttft_ms": hot["p99_ttft_ms"],
                "resident_before_kib": before, "resident_max_kib": max(watch.samples),
                "resident_growth_in_second_half_kib": max(half) - half[0],
                "left_running_or_waiting": left, "left_held_bytes": held}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("nibble", nargs="?", default=os.path.join(_lib.SOURCE, "build/release/nibble"))
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--times", type=float, default=10)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    rows = []
    print(f"{'capacity/s':>10} {'offered/s':>10} {'200':>6} {'503':>6} {'other':>6} {'done/s':>8} {'KiB before':>11} "
          f"{'KiB most':>9} {'late growth':>12} {'left':>5}")
    for run in range(args.runs):
        r = one(args, run)
        rows.append(r)
        print(f"{r['capacity_req_per_s']:10.1f} {r['offered_req_per_s']:10.1f} {r['completed']:6d} "
              f"{r['refused_503']:6d} {r['anything_else']:6d} {r['completed_req_per_s']:8.1f} "
              f"{r['resident_before_kib']:11d} {r['resident_max_kib']:9d} "
              f"{r['resident_growth_in_second_half_kib']:12d} {r['left_running_or_waiting']:5.0f}", flush=True)
    _lib.save("serve_overload", args.nibble, f"{args.requests} requests at {args.times:g} times the capacity, "
              f"{SEQS} places, at most {QUEUED} requests in the server", {"rows": rows})


main()
