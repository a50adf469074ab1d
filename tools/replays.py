#!/usr/bin/env python3
"""replays.py - bench/results/replay.json, and the tables of the documents that are made of it.

    tools/replays.py run NIBBLE --sessions DIR --mooncake DIR [--only NAME]...   plays its commands, or those named
    tools/replays.py take DIR [--only NAME]...                                   the same from outputs: "DIR/NAME.json"
    tools/replays.py tables                                                      writes the tables
    tools/replays.py check                                                       exit code 1 if a table is another

Traces are not part of the project: docs/trace-replay.md says whose they are.
"""
import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULT = os.path.join(ROOT, "bench", "results", "replay.json")
RECORDS = ("bf16", "fp8", "nvfp4")


def rows_of(name, got):
    """The rows of one command's points; name: "TRACE REPLAY"."""
    trace, replay = name.split()
    machine = got["trace"]["machine"]
    for p in got["points"]:
        row = {"trace": trace, "replay": replay, "policy": p["policy"]}
        if machine:
            row["layout"] = f"tp{machine['tensor_parallel']}" if machine["data_parallel"] == 1 else f"dp{machine['data_parallel']}"
        row |= {"record": p["record"], "cache_gb": round(p["cache_bytes"] / 1e9), "hit_rate": round(p["hit_rate"], 6)}
        if got["trace"]["seeds"] > 1:
            row |= {k: round(p[k], 6) for k in ("hit_rate_min", "hit_rate_max")}
        row |= {"uncached_tokens": p["uncached_tokens"], "requests": p["requests"]}
        ttft = p.get("ttft_s") or p.get("ttft_alone_s")
        if ttft:
            row |= {"ttft_mean_s": round(ttft["mean"], 6), "median_s": round(ttft["p50"], 6)}
        if "ttft_s" in p:
            row["ttft_p99_s"] = round(ttft["p99"], 6)
        yield row


def write(result):
    """A row a line."""
    head = json.dumps({k: v for k, v in result.items() if k != "rows"}, indent=1)
    lines = ",\n".join("  " + json.dumps(r) for r in result["rows"])
    with open(RESULT, "w", encoding="utf-8") as f:
        f.write(head[:-2] + ',\n "rows": [\n' + lines + "\n ]\n}\n")


def renew(names, output_of):
    """Plays commands again and puts their rows in the place of the old ones."""
    with open(RESULT, encoding="utf-8") as f:
        result = json.load(f)
    for name in names or result["commands"]:
        new = list(rows_of(name, output_of(name, result["commands"][name])))
        old = [i for i, r in enumerate(result["rows"]) if f"{r['trace']} {r['replay']}" == name]
        rest = [r for i, r in enumerate(result["rows"]) if i not in old]
        at = old[0] if old else len(rest)
        result["rows"] = rest[:at] + new + rest[at:]
        print(f"{name}: {len(new)} rows")
    result["date"] = datetime.date.today().isoformat()
    result["commit"] = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    write(result)


def play(nibble, sessions, mooncake):
    def output(_, command):
        words = [sessions if w == "SESSIONS/" else os.path.join(mooncake, w) if w.endswith(".jsonl") else w for w in shlex.split(command)]
        return json.loads(subprocess.run([nibble, *words[1:]], capture_output=True, text=True, check=True).stdout)
    return output


def taken(folder):
    def output(name, _):
        with open(os.path.join(folder, name + ".json"), encoding="utf-8") as f:
            return json.load(f)
    return output


# ---- tables ----

class Rows:
    def __init__(self):
        with open(RESULT, encoding="utf-8") as f:
            self.rows = json.load(f)["rows"]

    def at(self, trace, replay, gb):
        """[row of bf16, fp8, nvfp4]"""
        of = {r["record"]: r for r in self.rows if (r["trace"], r["replay"], r["cache_gb"]) == (trace, replay, gb)}
        return [of[r] for r in RECORDS]

    def sizes(self, trace, replay):
        return sorted({r["cache_gb"] for r in self.rows if (r["trace"], r["replay"]) == (trace, replay)})


def seconds(x):
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def hits(rows):
    return [f"{r['hit_rate']:.3f}"[1:] if r["hit_rate"] < 1 else "1" for r in rows]


def gain(rows, digits):
    return f"{rows[1]['ttft_mean_s'] / rows[2]['ttft_mean_s']:.{digits}f}x"


def lines(trace, replay, digits):
    """For each size: hits, mean times to the first token, fp8's over nvfp4's, medians of these two."""
    def make(rows):
        for gb in rows.sizes(trace, replay):
            r = rows.at(trace, replay, gb)
            yield [gb, *hits(r), *(seconds(x["ttft_mean_s"]) for x in r), gain(r, digits), *(seconds(x["median_s"]) for x in r[1:])]
    return make


def knee(rows):
    sizes = rows.sizes("agentic", "cache")
    for i, record in enumerate(RECORDS):
        yield [f"found of the prompt tokens, {record}", *(f"{100 * rows.at('agentic', 'cache', gb)[i]['hit_rate']:.0f} %" for gb in sizes)]
    for i, record in list(enumerate(RECORDS))[1:]:
        yield [f"mean time to the first token in a queue, {record}", *(f"{rows.at('agentic', 'serve', gb)[i]['ttft_mean_s']:.1f} s" for gb in sizes)]


# File, how the table's head begins, what makes its lines.
TABLES = (
    ("docs/trace-replay.md", "| GB, assumed rates |", lines("agentic", "serve", 1)),
    ("docs/trace-replay.md", "| GB, conversation |", lines("conversation", "alone", 2)),
    ("docs/trace-replay.md", "| GB, synthetic |", lines("synthetic", "alone", 2)),
    ("docs/trace-replay.md", "| GB, sessions alone |", lines("agentic", "alone", 1)),
    ("docs/trace-replay.md", "| GB, sessions in a queue |", lines("agentic", "queue", 1)),
    ("docs/capacity.md", "| 16 agent sessions, V3's bytes |", knee),
)


def with_table(text, head, lines):
    """text with other lines under the head and its rule."""
    at = text.find("\n" + head)
    if at < 0 or text.find("\n" + head, at + 1) >= 0:
        sys.exit(f"replays: expected one table that begins with {head}")
    start = text.index("\n", text.index("\n", at + 1) + 1) + 1
    end = text.index("\n\n", start - 1) + 1
    return text[:start] + "".join("| " + " | ".join(map(str, x)) + " |\n" for x in lines) + text[end:]


def tables(check):
    rows, bad = Rows(), []
    for name, head, make in TABLES:
        path = os.path.join(ROOT, name)
        with open(path, encoding="utf-8") as f:
            old = f.read()
        new = with_table(old, head, make(rows))
        if new == old:
            continue
        bad.append(f"{name}: {head}")
        if not check:
            with open(path, "w", encoding="utf-8") as f:
                f.write(new)
    if check and bad:
        sys.exit("replays: tables that are not of replay.json (tools/replays.py tables): " + "; ".join(bad))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = args.add_subparsers(dest="what", required=True)
    run = sub.add_parser("run")
    run.add_argument("nibble")
    run.add_argument("--sessions", required=True)
    run.add_argument("--mooncake", required=True)
    take = sub.add_parser("take")
    take.add_argument("folder")
    for p in (run, take):
        p.add_argument("--only", action="append", metavar="NAME")
    sub.add_parser("tables")
    sub.add_parser("check")
    a = args.parse_args()
    if a.what == "run":
        renew(a.only, play(a.nibble, a.sessions, a.mooncake))
    elif a.what == "take":
        renew(a.only, taken(a.folder))
    else:
        tables(a.what == "check")


if __name__ == "__main__":
    main()
