#!/usr/bin/env python3
"""idle.py - resident memory of the server per streaming connection.

    bench/serve/idle.py [NIBBLE] [--connections N] [--runs N]

queued    streams that wait because another request has the only slot
running   streams that all receive tokens, with as many slots
finished  connections that stay open after their stream
Wanted: at most 64 KiB for each connection that does nothing.
"""
import argparse
import json
import os
import resource
import socket
import time

import _lib


def connect(port, body):
    s = socket.create_connection(("127.0.0.1", port))
    data = json.dumps(body).encode()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
              b"Content-Length: %d\r\n\r\n" % len(data) + data)
    return s


def request(i, max_tokens):
    return {"prompt": f"Story {i}", "stream": True,
            "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0}


def wait_for(what, seconds=120):
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            raise SystemExit("idle: the state that is to be measured did not come")
        time.sleep(0.1)


def warm(server):
    """Touches what the first requests and the first large step allocate, which no connection pays for."""
    for i in range(3):
        server.ask("/v1/completions", request(i, 4))
    server.ask("/v1/completions", {"prompt": [300] * 4000, "max_tokens": 1})


def queued(nibble, n):
    with _lib.Server(nibble, "--max-num-seqs", "1", "--max-connections", str(n + 10)) as server:
        warm(server)
        # One long request after another occupies the only slot.
        holders = [connect(server.port, request(-i, 3000)) for i in range(4)]
        wait_for(lambda: server.metric("vllm:num_requests_running") == 1)
        before = server.resident()
        links = [connect(server.port, request(i, 16)) for i in range(n)]
        wait_for(lambda: server.metric("vllm:num_requests_waiting") >= n)
        after = server.resident()
        for s in links + holders:
            s.close()
        wait_for(lambda: server.metric("vllm:num_requests_waiting") == 0)
        return before, after


def running(nibble, n):
    with _lib.Server(nibble, "--max-num-seqs", str(n), "--max-num-batched-tokens", str(4 * n),
                     "--max-connections", str(n + 10), "--kv-cache-memory-bytes", "4G") as server:
        warm(server)
        before = server.resident()
        links = [connect(server.port, request(i, 200)) for i in range(n)]
        wait_for(lambda: server.metric("vllm:num_requests_running") >= n, 400)
        for s in links: # wait for the first token of each
            s.settimeout(120)
            if not s.recv(1):
                raise SystemExit("idle: a stream ended before its first token")
        after = server.resident()
        for s in links:
            s.close()
        wait_for(lambda: server.metric("vllm:num_requests_running") == 0)
        return before, after


def finished(nibble, n):
    with _lib.Server(nibble, "--max-connections", str(n + 10)) as server:
        warm(server)
        before = server.resident()
        links = []
        for i in range(n):
            links.append(connect(server.port, request(i, 1)))
            if i % 50 == 49 or i == n - 1:
                wait_for(lambda: server.metric("nibble:http_requests_in_flight") == 1)
        for s in links:
            s.settimeout(60)
            got = b""
            while b"[DONE]" not in got:
                got += s.recv(65536)
        after = server.resident()
        for s in links:
            s.close()
        return before, after


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("nibble", nargs="?", default=os.path.join(_lib.SOURCE, "build/release/nibble"))
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    n = args.connections
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    rows = []
    print(f"{'state':<10} {'connections':>11} {'before KiB':>11} {'after KiB':>10} {'KiB each':>9}")
    for name, measure in (("queued", queued), ("running", running), ("finished", finished)):
        runs = [measure(args.nibble, n) for _ in range(args.runs)]
        each = [(after - before) / n for before, after in runs]
        before, after = runs[each.index(sorted(each)[len(each) // 2])]
        rows.append({"state": name, "connections": n, "runs": args.runs, "before_kib": before, "after_kib": after,
                     "kib_per_connection": _lib.median(each), "all_kib_per_connection": each})
        print(f"{name:<10} {n:11d} {before:11d} {after:10d} {_lib.median(each):9.2f}", flush=True)
    _lib.save("serve_idle", args.nibble, "resident memory of the server per streaming connection", {"rows": rows})


main()
