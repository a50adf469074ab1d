#!/usr/bin/env python3
"""flashmla_table.py - the table of docs/gpu.md from what `flashmla --json FILE` wrote.

    bench/peer/flashmla_table.py bench/results/flashmla_h100.json
"""
import json
import sys

RECORDS = ("bf16", "fp8", "nvfp4", "if4")
PEERS = (("dense", "FlashMLA bf16"), ("dense+plan", "with its plan"), ("sparse", "its fp8"))


def cell(us, its, dense):
    """Microseconds, and how many times as fast as FlashMLA's BF16 kernel."""
    if us is None:
        return ""
    return f"{us:.0f}" if its else f"{us:.0f} ({dense / us:.2f})"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    with open(sys.argv[1], encoding="utf-8") as f:
        result = json.load(f)
    shapes = {}
    for r in result["rows"]:
        column = r["row"] if r["who"] == "flashmla" else r["record"]
        shape = shapes.setdefault((r["heads"], r["batch"], r["context"]), {})
        shape[column] = r["median_us"]
    print(f"{result['device']}; copy {result['copy_gbs']:,} GB/s, BF16 product "
          f"{result['gemm_tflops']:.0f} TFLOP/s; medians of {result['rounds']} rounds in turns\n")
    print("| heads | sequences | cached tokens of each |", *(f"{name} |" for _, name in PEERS),
          *(f"nibble {record} |" for record in RECORDS))
    print("|" + "---|" * (3 + len(PEERS) + len(RECORDS)))
    for (heads, batch, context), us in shapes.items():
        cells = [cell(us.get(row), True, 0) for row, _ in PEERS]
        cells += [cell(us.get(record), False, us["dense"]) for record in RECORDS]
        print(f"| {heads} | {batch} | {context:,} |", *(f"{c} |" for c in cells))


if __name__ == "__main__":
    main()
