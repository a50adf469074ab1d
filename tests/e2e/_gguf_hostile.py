"""_gguf_hostile.py: damaged GGUF files, each with what the error has to say.

  list                           NAME WORDS of every case
  make NAME BASE.gguf OUT_DIR    BASE: a small llama in F32; OUT_DIR/model.gguf, or its shards
"""
import os
import struct
import sys

from _gguf import ARR, F32, I32, STR, U16, U32, U64, Gguf
from _gguf_oracle import read


def replace(g, key, kind, v):
    g.kv = [(k, b) for k, b in g.kv if k != key]
    g.add(key, kind, v)


def number(key, v, kind=U32):
    return lambda g: replace(g, "llama." + key, kind, v)


def drop(name):
    def change(g):
        g.tensors = [t for t in g.tensors if t[0] != name]
    return change


def shape(name, ne):
    """Other sizes, with as many bytes as they take."""
    def change(g):
        n = 4
        for d in ne:
            n *= d
        g.tensors = [(a, k, ne, bytes(n)) if a == name else (a, k, old, data) for a, k, old, data in g.tensors]
    return change


def values(name, v):
    return lambda g: (drop(name)(g), g.tensor(name, "F32", [len(v)], struct.pack("<%df" % len(v), *v)))


def kind_of(name, number_, size):
    """Another type; size: bytes of a row's 64 values."""
    def change(g):
        g.tensors = [(a, number_, ne, b"\x01" * (size * (ne[1] if len(ne) > 1 else 1))) if a == name else (a, k, ne, data)
                     for a, k, ne, data in g.tensors]
    return change


def raw_list(key, kind, n):
    return lambda g: g.kv.append((key, struct.pack("<IIQ", ARR, kind, n)))


def many(*changes):
    def change(g):
        for c in changes:
            c(g)
    return change


def bytes_at(find, at, new):
    """After it is written: new bytes at a distance from the first place of find."""
    def change(raw):
        i = raw.index(find) + at
        return raw[:i] + new + raw[i + len(new):]
    return change


def info(name, at, new):
    """at: 0 the number of dimensions, 4 the first one."""
    return bytes_at(struct.pack("<Q", len(name)) + name.encode(), 8 + len(name) + at, new)


def offset(name, n_dim, v):
    return info(name, 4 + 8 * n_dim + 4, struct.pack("<Q", v))


BIG = 1 << 60
# name: what happens to the Gguf, what to its bytes, words of the line
CASES = {
    "list-of-2^60": (raw_list("llama.x", U32, BIG), None, "items do not fit"),
    "strings-2^60": (raw_list("tokenizer.ggml.tokens", STR, BIG), None, "items do not fit"),
    "string-2^60": (lambda g: g.kv.append(("a", struct.pack("<IQ", STR, BIG))), None, "but only"),
    "keys-2^60": (None, lambda r: r[:16] + struct.pack("<q", BIG) + r[24:], "keys of metadata do not fit"),
    "tensors-2^60": (None, lambda r: r[:8] + struct.pack("<q", BIG) + r[16:], "tensors do not fit"),
    "tensors-negative": (None, lambda r: r[:8] + b"\xff" * 8 + r[16:], "tensors do not fit"),
    "overlap": (None, offset("blk.1.attn_q.weight", 2, 64), "tensors follow each other"),
    "offset-2^63": (None, offset("blk.1.attn_q.weight", 2, 1 << 63), "tensors follow each other"),
    "dims-2^62": (None, info("blk.1.attn_q.weight", 4, struct.pack("<qq", 1 << 62, 1 << 40)), "addressed"),
    "dims-negative": (None, info("blk.1.attn_q.weight", 4, b"\xff" * 8), "negative"),
    "dims-7": (None, info("blk.1.attn_q.weight", 0, b"\x07\0\0\0"), "7 dimensions"),
    "cut": (None, lambda r: r[:-4096], "truncated"),
    "cut-header": (None, lambda r: r[:700], "tensors do not fit"),
    "layers-0": (number("block_count", 0), None, "nextn_predict_layers"),
    "layers-2^32": (number("block_count", 0xffffffff), None, "num_hidden_layers"),
    "layers-float": (number("block_count", 2.5, F32), None, "llama.block_count expected an integer"),
    "layers-2^60": (number("block_count", BIG, U64), None, "llama.block_count"),
    "hidden-0": (number("embedding_length", 0), None, "hidden_size"),
    "hidden-2^31": (number("embedding_length", 1 << 31), None, "hidden_size"),
    "heads-0": (number("attention.head_count", 0), None, "attn_q per head"),
    "heads-odd": (number("attention.head_count", 7), None, "attn_"),
    "kv-heads-0": (number("attention.head_count_kv", 0), None, "attn_k"),
    "key-huge": (many(number("attention.key_length", 1 << 20), number("attention.value_length", 1 << 20),
                      number("rope.dimension_count", 1 << 20)), None, "head"),
    "eps-nan": (number("attention.layer_norm_rms_epsilon", float("nan"), F32), None, "epsilon not finite"),
    "theta-inf": (number("rope.freq_base", float("inf"), F32), None, "freq_base not finite"),
    "theta-0": (number("rope.freq_base", 0.0, F32), None, "rope_theta"),
    "experts": (number("expert_count", 0xffffffff), None, "experts"),
    "no-embed": (drop("token_embd.weight"), None, "token_embd.weight missing"),
    "no-matrix": (drop("blk.1.ffn_up.weight"), None, "missing"),
    "no-norm": (drop("output_norm.weight"), None, "missing"),
    "wrong-rows": (shape("blk.1.ffn_up.weight", [64, 8]), None, "mlp.up_proj expected"),
    "wrong-columns": (shape("blk.1.attn_v.weight", [32, 32]), None, "v_proj expected"),
    "wrong-norm": (shape("blk.1.attn_norm.weight", [65]), None, "layernorm expected"),
    "packed-norm": (kind_of("output_norm.weight", 8, 68), None, "model.norm.weight"),
    "integers": (kind_of("blk.1.attn_v.weight", 26, 256), None, "type I32 not supported"),
    "ik-type": (None, info("blk.1.attn_v.weight", 20, struct.pack("<I", 139)), "ik_llama.cpp"),
    "unknown-type": (None, info("blk.1.attn_v.weight", 20, struct.pack("<I", 99)), "unknown type 99"),
    "rope-nan": (values("rope_freqs.weight", [float("nan")] * 8), None, "rope_freqs finite"),
    "rope-short": (values("rope_freqs.weight", [1, 1]), None, "factor"),
    "shards-count": ("split", lambda g: replace(g, "split.count", U16, 3), "split.count 3"),
    "shards-no": ("split", lambda g: replace(g, "split.no", U16, 0), "split.no 0"),
    "shards-tensors": ("split", lambda g: g.tensors.pop(), "split.tensors.count"),
    "shards-twice": ("split", lambda g: (g.tensors.pop(), g.tensor("blk.0.attn_k.weight", "F32", [1], bytes(4))), "twice"),
    "shards-gone": ("split", None, "model-00002-of-00002.gguf missing"),
}


def make(name, base, out):
    change, after, _ = CASES[name]
    g = read(base)
    if change == "split":
        halves = []
        for i in range(2):
            part = Gguf()
            part.kv = list(g.kv) if i == 0 else []
            part.add("split.no", U16, i)
            part.add("split.count", U16, 2)
            part.add("split.tensors.count", I32, len(g.tensors))
            part.tensors = g.tensors[len(g.tensors) * i // 2:len(g.tensors) * (i + 1) // 2]
            halves.append(part)
        if after:
            after(halves[1])
            halves[1].write(os.path.join(out, "model-00002-of-00002.gguf"))
        halves[0].write(os.path.join(out, "model-00001-of-00002.gguf"))
        return
    if change:
        change(g)
    raw = g.bytes()
    with open(os.path.join(out, "model.gguf"), "wb") as f:
        f.write(after(raw) if after else raw)


if __name__ == "__main__":
    if sys.argv[1] == "list":
        for case, row in CASES.items():
            print(case, row[2])
    else:
        make(*sys.argv[2:5])
