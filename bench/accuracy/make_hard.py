#!/usr/bin/env python3
"""Makes a checkpoint that computes the same function from a cache that is harder to keep in few bits.

    python3 bench/accuracy/make_hard.py models/nibble-tiny OUT --outliers 4:16
    python3 bench/accuracy/make_hard.py models/nibble-tiny OUT --spread 1 --permute --rope 2:5 --seed 3

For models with multi-head latent attention in BF16 or F32.  A small trained model has tame latents;
large ones have channels 10 to 20 times as wide as the others.  Here

    c -> P D c,  D diagonal, powers of two, P a permutation, another one in each layer

is applied to the latent through the gain of its norm (and the rows of its projection), and undone in
the columns of kv_b; the rotated key's pairs are scaled by powers of two, undone in the queries' rows.
Only exponents and places of numbers change, so the model's results are the same: bit for bit without a
permutation, up to the order of sums with one.  Needs only Python's standard library.
"""
import argparse
import array
import json
import math
import os
import random
import shutil
import struct
import sys

WIDTH = {"BF16": 2, "F32": 4}
MANTISSA = {"BF16": 7, "F32": 23}  # below the 8 bits of the exponent


def fail(text):
    raise SystemExit("make_hard: " + text)


class Checkpoint:
    """The safetensors files of a folder, in memory; tensors are changed in place."""

    def __init__(self, path):
        self.path, self.files, self.where = path, {}, {}
        names = sorted(n for n in os.listdir(path) if n.endswith(".safetensors"))
        if not names:
            fail(f"{path}: no .safetensors file")
        for name in names:
            with open(os.path.join(path, name), "rb") as f:
                data = bytearray(f.read())
            size = struct.unpack_from("<Q", data)[0] if len(data) >= 8 else 0
            if not 2 <= size <= len(data) - 8:
                fail(f"{name}: not a safetensors file")
            header = json.loads(data[8:8 + size].decode())
            for key, value in header.items():
                if key != "__metadata__":
                    self.where[key] = (name, 8 + size, value)
            self.files[name] = data

    def shape(self, key):
        if key not in self.where:
            fail(f"{self.path}: tensor {key} is missing: only multi-head latent attention is supported")
        return self.where[key][2]["shape"]

    def get(self, key):
        """-> codes of the numbers, their type"""
        self.shape(key)
        name, base, t = self.where[key]
        if t["dtype"] not in WIDTH:
            fail(f"{key}: {t['dtype']}: expected BF16 or F32")
        if sys.byteorder != "little":
            fail("this needs a little-endian machine")
        begin, end = t["data_offsets"]
        codes = array.array("H" if t["dtype"] == "BF16" else "I")
        assert codes.itemsize == WIDTH[t["dtype"]]
        codes.frombytes(self.files[name][base + begin:base + end])
        return codes, t["dtype"]

    def put(self, key, codes):
        name, base, t = self.where[key]
        begin, end = t["data_offsets"]
        data = codes.tobytes()
        assert len(data) == end - begin
        self.files[name][base + begin:base + end] = data

    def write(self, out):
        for name in os.listdir(self.path):
            if name not in self.files and name.endswith((".json", ".model", ".txt", ".jinja")):
                shutil.copyfile(os.path.join(self.path, name), os.path.join(out, name))
        for name, data in self.files.items():
            with open(os.path.join(out, name), "wb") as f:
                f.write(data)


def scaled(codes, dtype, log2, key):
    """Numbers times 2^log2, exactly."""
    if log2 == 0:
        return codes
    low = MANTISSA[dtype]
    known = {}
    for c in set(codes):
        e = c >> low & 255
        if c & ((1 << low + 8) - 1) == 0:
            known[c] = c  # zero
        elif 0 < e < 255 and 0 < e + log2 < 255:
            known[c] = c + (log2 << low)
        else:
            fail(f"{key}: a number times 2^{log2} leaves the range of {dtype}")
    return array.array(codes.typecode, map(known.__getitem__, codes))


def scale_rows(ckpt, key, log2_of_row):
    codes, dtype = ckpt.get(key)
    n = len(codes) // ckpt.shape(key)[0]
    for row, k in log2_of_row.items():
        codes[row * n:(row + 1) * n] = scaled(codes[row * n:(row + 1) * n], dtype, k, key)
    ckpt.put(key, codes)


def change_columns(ckpt, key, log2, place):
    """Column j becomes column place[j] times 2^-log2[place[j]]."""
    codes, dtype = ckpt.get(key)
    n = len(log2)
    new = array.array(codes.typecode, codes)
    for j, c in enumerate(place):
        new[j::n] = scaled(codes[c::n], dtype, -log2[c], key)
    ckpt.put(key, new)


def change_rows(ckpt, key, log2, place):
    """Row j, of the first len(place), becomes row place[j] times 2^log2[place[j]]."""
    codes, dtype = ckpt.get(key)
    n = len(codes) // ckpt.shape(key)[0]
    new = array.array(codes.typecode, codes)
    for j, c in enumerate(place):
        new[j * n:(j + 1) * n] = scaled(codes[c * n:(c + 1) * n], dtype, log2[c], key)
    ckpt.put(key, new)


def draw_latent(a, r, n):
    """-> exponents of D, places of P"""
    log2 = [0] * n
    order = [r.random() for _ in range(n)]
    if a.spread:
        log2 = [round(r.gauss(0, a.spread) / math.log(2)) for _ in range(n)]
    if a.outliers:
        count, factor = a.outliers
        if count > n:
            fail(f"{count} outliers, but the latent has {n} channels")
        for c in sorted(range(n), key=order.__getitem__)[:count]:
            log2[c] += factor
    again = [r.random() for _ in range(n)]
    return log2, sorted(range(n), key=again.__getitem__) if a.permute else list(range(n))


def change_layer(ckpt, config, i, a, r):
    p = f"model.layers.{i}.self_attn."
    rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    width = config["qk_nope_head_dim"] + rope
    for name in ("kv_a_proj_with_mqa", "q_b_proj", "q_proj"):
        if p + name + ".bias" in ckpt.where:
            fail(f"{p}{name}.bias: projections with a bias are not supported")
    log2, place = draw_latent(a, r, rank)
    change_rows(ckpt, p + "kv_a_layernorm.weight", log2, place)
    change_rows(ckpt, p + "kv_a_proj_with_mqa.weight", [0] * rank, place)
    change_columns(ckpt, p + "kv_b_proj.weight", log2, place)
    if not a.rope:
        return
    count, factor = a.rope
    if count > rope // 2:
        fail(f"{count} pairs, but the rotated key has {rope // 2}")
    lowest = range(rope // 2 - count, rope // 2)  # frequencies fall with the pair's number
    apart = (2, 1) if config.get("rope_interleave", True) else (1, rope // 2)
    rows = {apart[0] * k + side * apart[1]: factor for k in lowest for side in (0, 1)}
    scale_rows(ckpt, p + "kv_a_proj_with_mqa.weight", {rank + k: f for k, f in rows.items()})
    q = p + ("q_b_proj" if config.get("q_lora_rank") else "q_proj") + ".weight"
    scale_rows(ckpt, q, {h * width + width - rope + k: -f
                         for h in range(config["num_attention_heads"]) for k, f in rows.items()})


def counted(text):
    """N:FACTOR, the factor a power of two -> N, log2 of it"""
    n, _, factor = text.partition(":")
    value = float(factor or 16)
    if int(n) < 0 or value <= 0 or math.frexp(value)[0] != 0.5:
        raise argparse.ArgumentTypeError(f"{text}: expected N:FACTOR, the factor a power of two")
    return (int(n), math.frexp(value)[1] - 1) if int(n) else None


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("model")
    ap.add_argument("out", help="folder to write")
    ap.add_argument("--outliers", type=counted, metavar="N:FACTOR", help="make N channels FACTOR times as wide")
    ap.add_argument("--spread", type=float, default=0, metavar="SIGMA",
                    help="scale each channel by the power of two nearest to exp of a normal variable of this deviation")
    ap.add_argument("--permute", action="store_true", help="reorder the channels")
    ap.add_argument("--rope", type=counted, metavar="N:FACTOR", help="scale the N pairs of lowest frequency by FACTOR")
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    if not 0 <= a.spread <= 3:
        fail(f"--spread {a.spread}: expected 0..3")
    with open(os.path.join(a.model, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    for key in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "num_hidden_layers"):
        if not isinstance(config.get(key), int):
            fail(f"{a.model}: config.json has no {key}: only multi-head latent attention is supported")
    if os.path.exists(a.out) and os.path.samefile(a.model, a.out):
        fail("the model would be overwritten")
    ckpt = Checkpoint(a.model)
    for i in range(config["num_hidden_layers"]):
        change_layer(ckpt, config, i, a, random.Random(a.seed * 1000003 + i))
    os.makedirs(a.out, exist_ok=True)
    ckpt.write(a.out)


if __name__ == "__main__":
    main()
