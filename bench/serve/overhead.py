#!/usr/bin/env python3
"""overhead.py - what the server costs per token: `nibble bench serve` against `nibble bench
throughput`, which runs the same requests through the engine without HTTP.

    bench/serve/overhead.py [NIBBLE] [--runs N] [--concurrency 1,8,32]

Client, server and engine share the machine.  Runs of both kinds alternate; medians are compared, and
the fastest run of each.  CPU time is compared as well, because other programs disturb it less: server
and client against the engine's process, and in the column `of engine` the thread that serves
connections and the client.  Wanted: at most 10 % with 32 requests.
"""
import argparse
import os

import _lib


def workload(concurrency, seed):
    prompts = max(4, 2 * concurrency)
    return ["--num-prompts", str(prompts), "--max-concurrency", str(concurrency),
            "--random-input-len", "64", "--random-output-len", "128", "--ignore-eos", "--temperature", "0",
            "--seed", str(seed)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("nibble", nargs="?", default=os.path.join(_lib.SOURCE, "build/release/nibble"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--concurrency", default="1,8,32")
    args = parser.parse_args()
    rows = []
    print(f"{'batch':>5} {'engine tok/s':>13} {'server tok/s':>13} {'overhead':>9} {'fastest':>8} {'per token':>10} "
          f"{'CPU time':>9} {'loop CPU':>11} {'client CPU':>11} {'of engine':>10} {'spread':>13}")
    with _lib.Server(args.nibble) as server:
        for concurrency in map(int, args.concurrency.split(",")):
            direct, served = [], []
            for run in range(args.runs):
                options = workload(concurrency, 100 * concurrency + run)
                direct.append(_lib.bench(args.nibble, "throughput", _lib.MODEL, *options))
                before, loop = server.cpu_s(), server.cpu_s(loop=True)
                served.append(_lib.bench(args.nibble, "serve", "--port", str(server.port), "--tokenizer",
                                         _lib.MODEL, *options))
                served[-1]["cpu_s"] = server.cpu_s() - before + served[-1]["client_cpu_s"]
                served[-1]["loop_cpu_s"] = server.cpu_s(loop=True) - loop
                for key in ("completed", "total_input_tokens", "total_output_tokens"):
                    if direct[-1][key] != served[-1][key]:
                        raise SystemExit(f"not the same work: {key} {direct[-1][key]}, {served[-1][key]}")
            a = [r["output_throughput"] for r in direct]
            b = [r["output_throughput"] for r in served]
            cpu = _lib.median([r["client_cpu_s"] / r["total_output_tokens"] for r in served])
            loop = _lib.median([r["loop_cpu_s"] / r["total_output_tokens"] for r in served])
            cpu_a, cpu_b = (_lib.median([r["cpu_s"] / r["total_output_tokens"] for r in k]) for k in (direct, served))
            row = {"concurrency": concurrency, "runs": args.runs,
                   "engine_tok_per_s": _lib.median(a), "server_tok_per_s": _lib.median(b),
                   "overhead_percent": 100 * (_lib.median(a) / _lib.median(b) - 1),
                   "overhead_percent_of_fastest_runs": 100 * (max(a) / max(b) - 1),
                   "overhead_us_per_token": 1e6 * (1 / _lib.median(b) - 1 / _lib.median(a)),
                   "cpu_overhead_percent": 100 * (cpu_b / cpu_a - 1), "engine_cpu_us_per_token": 1e6 * cpu_a,
                   "server_and_client_cpu_us_per_token": 1e6 * cpu_b, "client_cpu_us_per_token": 1e6 * cpu,
                   "server_loop_cpu_us_per_token": 1e6 * loop,
                   "loop_and_client_percent_of_engine": 100 * (loop + cpu) / cpu_a, "all_engine_tok_per_s": a,
                   "all_server_tok_per_s": b, "load_average": _lib.load()}
            rows.append(row)
            print(f"{concurrency:5d} {row['engine_tok_per_s']:13.1f} {row['server_tok_per_s']:13.1f} "
                  f"{row['overhead_percent']:8.1f}% {row['overhead_percent_of_fastest_runs']:7.1f}% {row['overhead_us_per_token']:7.0f} us "
                  f"{row['cpu_overhead_percent']:8.1f}% "
                  f"{row['server_loop_cpu_us_per_token']:8.1f} us {row['client_cpu_us_per_token']:8.1f} us "
                  f"{row['loop_and_client_percent_of_engine']:9.1f}%  {100 * _lib.spread(a):4.1f}% {100 * _lib.spread(b):4.1f}%",
                  flush=True)
    _lib.save("serve_overhead", args.nibble, "output tokens per second of the bundled model, 64 prompt and 128 "
              "generated tokens, through the engine and through the server", {"rows": rows})


main()
