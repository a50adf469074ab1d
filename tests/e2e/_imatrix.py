"""_imatrix.py - importance matrices as llama.cpp's tools write them, with the standard library.

  _imatrix.py FORM OUT [--seed N] NAME:MATRICES:COLUMNS...
FORM: gguf, dat (the older one).  Values are squares of random sums, counts 512; --flat: all values alike;
--few M: matrix M of each entry has 3 inputs.
"""
import argparse
import random
import struct


def values(rng, n, flat):
    return [1.0 if flat else rng.gammavariate(0.5, 2.0) for _ in range(n)]


def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def gguf(entries):
    kv = [string("general.type") + struct.pack("<i", 8) + string("imatrix"),
          string("imatrix.datasets") + struct.pack("<iiQ", 9, 8, 1) + string("text"),
          string("imatrix.chunk_count") + struct.pack("<iI", 4, 1),
          string("imatrix.chunk_size") + struct.pack("<iI", 4, 512)]
    tensors = []
    for name, n_mat, n_col, data, counts in entries:
        tensors.append((name + ".in_sum2", (n_col, n_mat), data))
        tensors.append((name + ".counts", (1, n_mat), counts))
    head, body = b"", b""
    for name, dims, data in tensors:
        head += string(name) + struct.pack("<I", 2) + struct.pack("<2Q", *dims) + struct.pack("<iQ", 0, len(body))
        body += struct.pack("<%df" % len(data), *data)
        body += bytes(-len(body) % 32)
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kv)) + b"".join(kv) + head
    return out + bytes(-len(out) % 32) + body


def dat(entries):
    out = struct.pack("<i", len(entries))
    for name, _, _, data, _ in entries:
        b = name.encode()
        out += struct.pack("<i", len(b)) + b + struct.pack("<ii", 1, len(data)) + struct.pack("<%df" % len(data), *data)
    return out + struct.pack("<ii", 1, 4) + b"text"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("form", choices=["gguf", "dat"])
    p.add_argument("out")
    p.add_argument("entries", nargs="+")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--flat", action="store_true")
    p.add_argument("--few", type=int, default=-1)
    a = p.parse_args()
    rng, entries = random.Random(a.seed), []
    for e in a.entries:
        name, n_mat, n_col = e.rsplit(":", 2)
        n_mat, n_col = int(n_mat), int(n_col)
        data = values(rng, n_mat * n_col, a.flat)
        entries.append((name, n_mat, n_col, data, [3.0 if i == a.few else 512.0 for i in range(n_mat)]))
    with open(a.out, "wb") as f:
        f.write((gguf if a.form == "gguf" else dat)(entries))


main()
