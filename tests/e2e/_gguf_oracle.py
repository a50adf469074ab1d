"""_gguf_oracle.py - llama.cpp's library as the judge of nibble's GGUF types.

  _gguf_oracle.py vectors LIB OUT              block bytes and their floats, of every type (tests/data/ggml_blocks.bin)
  _gguf_oracle.py quantise LIB IN.gguf TYPE OUT.gguf FLOATS.gguf
                                               IN (F32) with its matrices in TYPE, and the same weights as floats again
LIB is libggml-base.so of llama.cpp, as the npm package @node-llama-cpp/linux-x64 has it.
"""
import ctypes
import random
import struct
import sys

from _gguf import ARR, STR, PACK, TYPES, Gguf

NAMES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
         "NVFP4", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M"]
# What llama.cpp takes where the columns are no multiple of 256.
FALLBACK = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "IQ4_XS": "IQ4_NL",
            "NVFP4": "MXFP4", "IQ2_XXS": "IQ4_NL", "IQ2_XS": "IQ4_NL", "IQ2_S": "IQ4_NL", "IQ3_XXS": "IQ4_NL",
            "IQ3_S": "IQ4_NL", "IQ1_S": "IQ4_NL", "IQ1_M": "IQ4_NL"}
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0],
          "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0]}


def dequantise(lib, kind, data):
    _, block, size = TYPES[kind]
    n = len(data) // size * block
    out = (ctypes.c_float * n)()
    name = kind.lower().replace("_k", "_K")
    getattr(lib, "dequantize_row_" + name)(ctypes.c_char_p(data), out, ctypes.c_int64(n))
    return bytes(out)


def quantise(lib, kind, data, rows, cols):
    number, block, size = TYPES[kind]
    out = ctypes.create_string_buffer(rows * cols // block * size)
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    src = (ctypes.c_float * (rows * cols)).from_buffer_copy(data)
    even = (ctypes.c_float * cols)(*[1.0] * cols) # some types want the columns' importance
    n = lib.ggml_quantize_chunk(number, src, out, ctypes.c_int64(0), ctypes.c_int64(rows), ctypes.c_int64(cols),
                                even if kind[:2] == "IQ" else None)
    assert n == len(out.raw), (kind, n, len(out.raw))
    return out.raw


def vectors(lib, path):
    rng, out = random.Random(7), b""
    for kind in NAMES:
        number, _, size = TYPES[kind]
        blocks = b""
        for i in range(3):
            b = bytearray(rng.randrange(256) for _ in range(size))
            for at in HALVES.get(kind, []):
                b[at:at + 2] = struct.pack("<e", rng.choice((-1, 1)) * rng.uniform(0.001, 2) * 2.0 ** -rng.randrange(12))
            if kind == "IQ1_M":
                b[55] = rng.choice((0x20, 0xa0)) | b[55] & 15
            blocks += bytes(b)
        out += struct.pack("<II", number, 3) + blocks + dequantise(lib, kind, blocks)
    with open(path, "wb") as f:
        f.write(out)


def read(path):
    """Metadata (raw) and tensors of a GGUF that _gguf.py wrote."""
    with open(path, "rb") as f:
        raw = f.read()
    at = 8

    def take(fmt):
        nonlocal at
        v = struct.unpack_from(fmt, raw, at)
        at += struct.calcsize(fmt)
        return v if len(v) > 1 else v[0]

    def text():
        nonlocal at
        n = take("<Q")
        at += n
        return raw[at - n:at].decode()

    def skip(kind):
        nonlocal at
        if kind == STR:
            text()
        elif kind == ARR:
            k, n = take("<IQ")
            for _ in range(n):
                skip(k)
        else:
            at += struct.calcsize(PACK[kind])

    n_tensor, n_kv = take("<qq")
    g, info = Gguf(), []
    for _ in range(n_kv):
        key, begin = text(), at
        skip(take("<I"))
        g.kv.append((key, raw[begin:at]))
    for _ in range(n_tensor):
        name, n = text(), take("<I")
        ne = [take("<q") for _ in range(n)]
        info.append((name, ne) + take("<IQ"))
    at += -at % 32
    for name, ne, number, offset in info:
        assert number == 0, "expected F32"
        n = 4
        for d in ne:
            n *= d
        g.tensors.append((name, number, ne, raw[at + offset:at + offset + n]))
    return g


def convert(lib, path, kind, out, floats):
    g, q, f = read(path), Gguf(), Gguf()
    q.kv, f.kv = g.kv, g.kv
    for name, _, ne, data in g.tensors:
        use = "F32" if len(ne) == 1 or "ffn_gate_inp" in name else kind
        while use != "F32" and ne[0] % TYPES[use][1]:
            use = FALLBACK.get(use, "F32")
        if use != "F32":
            rows = len(data) // 4 // ne[0]
            packed = quantise(lib, use, data, rows, ne[0])
            data = dequantise(lib, use, packed)
        q.tensor(name, use, ne, data if use == "F32" else packed)
        f.tensor(name, "F32", ne, data)
    q.write(out)
    f.write(floats)


if __name__ == "__main__":
    library = ctypes.CDLL(sys.argv[2])
    if sys.argv[1] == "vectors":
        vectors(library, sys.argv[3])
    else:
        convert(library, *sys.argv[3:7])
