#!/usr/bin/env python3
"""flashmla_table.py - the table of docs/gpu.md from what `flashmla --json FILE` wrote.

    bench/peer/flashmla_table.py bench/results/flashmla_h100.json                 prints it
    bench/peer/flashmla_table.py bench/results/flashmla_h100.json docs/gpu.md     writes it there
"""
import json
import sys

FROM, TO = "<!-- flashmla_table.py: from here -->\n", "<!-- flashmla_table.py: to here -->\n"

RECORDS = ("bf16", "fp8", "nvfp4", "if4")
PEERS = (("dense", "FlashMLA bf16"), ("dense+plan", "with its plan"), ("sparse", "its fp8"))


def cell(us, its, dense):
    """Microseconds, and how many times as fast as FlashMLA's BF16 kernel."""
    if us is None:
        return ""
    return f"{us:,.0f}" if its else f"{us:,.0f} ({dense / us:.2f})"


def table(result):
    shapes = {}
    for r in result["rows"]:
        column = r["row"] if r["who"] == "flashmla" else r["record"]
        shape = shapes.setdefault((r["heads"], r["batch"], r["context"]), {})
        shape[column] = r["median_us"]
    names = [name for _, name in PEERS] + [f"nibble {record}" for record in RECORDS]
    lines = [f"{result['device']}, {result['date']}, commit {result['commit']}; copy "
             f"{result['copy_gbs']:,} GB/s, BF16 product {result['gemm_tflops']:.0f} TFLOP/s; "
             f"medians of rounds in turns: {result['rounds']}.", "",
             "| heads | sequences | cached tokens of each | " + " | ".join(names) + " |",
             "|" + "---|" * (3 + len(names))]
    for (heads, batch, context), us in shapes.items():
        cells = [cell(us.get(row), True, 0) for row, _ in PEERS]
        cells += [cell(us.get(record), False, us["dense"]) for record in RECORDS]
        lines.append(f"| {heads} | {batch} | {context:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.strip())
    with open(sys.argv[1], encoding="utf-8") as f:
        text = table(json.load(f))
    if len(sys.argv) == 2:
        print(text, end="")
        return
    with open(sys.argv[2], encoding="utf-8") as f:
        doc = f.read()
    before, found, rest = doc.partition(FROM)
    _, ended, after = rest.partition(TO)
    if not found or not ended:
        sys.exit(f"{sys.argv[2]}: no lines {FROM.strip()} and {TO.strip()}")
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write(before + FROM + text + TO + after)


if __name__ == "__main__":
    main()
