#!/usr/bin/env python3
"""_expected.py - reads the vectors of tests/parity (expected.safetensors), standard library only.

    _expected.py FILE list NAME               a tensor of integers as a JSON array
    _expected.py FILE logits ROWS.f32         compares raw rows with the tensor logits
    _expected.py FILE row_numbers             the positions of those rows, as --rows takes them
"""
import array
import json
import struct
import sys

TOLERANCE = 0.05 # the parity bound on logits


def tensor(path, name):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:8 + n])[name]
    begin, end = entry["data_offsets"]
    values = array.array({"I32": "i", "F32": "f"}[entry["dtype"]])
    values.frombytes(data[8 + n + begin:8 + n + end])
    if sys.byteorder == "big":
        values.byteswap()
    return values


def compare(path, rows):
    want = tensor(path, "logits")
    got = array.array("f")
    with open(rows, "rb") as f:
        got.frombytes(f.read())
    if sys.byteorder == "big":
        got.byteswap()
    if len(got) != len(want):
        sys.exit(f"{len(got)} values, expected {len(want)}")
    worst = max(abs(a - b) for a, b in zip(got, want))
    if not worst <= TOLERANCE:
        sys.exit(f"largest difference {worst}, at most {TOLERANCE} expected")


def main(argv):
    path, what = argv[:2]
    if what == "list":
        print(json.dumps(list(tensor(path, argv[2])), separators=(",", ":")))
    elif what == "row_numbers":
        print(",".join(str(v) for v in tensor(path, "rows")))
    else:
        compare(path, argv[2])


main(sys.argv[1:])
