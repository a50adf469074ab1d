"""_convert.py - reads what `nibble convert` wrote, by the formats' formulas and with the standard library only.

  _convert.py check FORM SOURCE_DIR MADE_DIR OUT_DIR
      Every tensor has the type and sizes of its form and lies in the shard that the index names; config.json
      names exactly the matrices that stayed; the relative error of each is within the form's bound, and not above that
      of scales without a search.  OUT_DIR: the same values as F32.
  _convert.py same DIR_A DIR_B          the same tensors to the byte (other shards, other number of threads)
  _convert.py bytes MADE.gguf PLAN.json  `nibble plan --json` counts the bytes of the tensors, to 1 %
  _convert.py splice OUT.gguf BASE.gguf WORD OTHER.gguf ...
      BASE with the tensors of OTHER whose names have WORD
  _convert.py gguf LIB F32.gguf MADE.gguf OUT.gguf [THEIRS.gguf]
      MADE has the tensors of F32.gguf, as floats by llama.cpp's library in OUT; THEIRS was made from F32 by
      llama.cpp: the same types everywhere, and no tensor of MADE has more squared error.  Prints the ratio of the sums.
"""
import array
import ctypes
import json
import math
import os
import struct
import sys

from _gguf import TYPES, Gguf
from _weight_forms import E2M1, E4M3, bf16_value, e4m3, floats, read, write

EXACT = 2.0 ** -23


def folder(path):
    """name -> (dtype, shape, bytes), with what the index says."""
    out, files = {}, sorted(n for n in os.listdir(path) if n.endswith(".safetensors"))
    index = os.path.join(path, "model.safetensors.index.json")
    named = json.load(open(index, encoding="utf-8"))["weight_map"] if os.path.exists(index) else None
    for n in files:
        t = read(os.path.join(path, n))
        out.update(t)
        if named:
            assert all(named[k] == n for k in t), n + ": the index names another shard"
    if named:
        assert set(named) == set(out), "the index and the shards differ"
    else:
        assert files == ["model.safetensors"], files
    return out


def signed_e4m3(c):
    return -E4M3[c & 127] if c & 128 else E4M3[c]


E4M3_ALL = [signed_e4m3(c) if c & 127 != 127 else math.nan for c in range(256)]
NIBBLE = [E2M1[c & 7] * (-1 if c & 8 else 1) for c in range(16)]


def codes4(raw):
    """Nibbles of bytes, the low one first."""
    out = bytearray(2 * len(raw))
    out[0::2] = bytes(b & 15 for b in raw)
    out[1::2] = bytes(b >> 4 for b in raw)
    return out


def int4(t, m, n, k, g):
    assert t[m + ".weight_packed"][:2] == ("I32", [n, k // 8]) and t[m + ".weight_scale"][:2] == ("BF16", [n, k // g])
    assert t[m + ".weight_shape"] == ("I64", [2], struct.pack("<2q", n, k))
    s = floats("BF16", t[m + ".weight_scale"][2])
    assert all(x > 0 and math.isfinite(x) for x in s)
    return [(c - 8) * s[i // g] for i, c in enumerate(codes4(t[m + ".weight_packed"][2]))]


def nvfp4(t, m, n, k, g):
    assert t[m + ".weight_packed"][:2] == ("U8", [n, k // 2]) and t[m + ".weight_scale"][:2] == ("F8_E4M3", [n, k // 16])
    assert t[m + ".weight_global_scale"][:2] == ("F32", [1])
    outer = 1 / struct.unpack("<f", t[m + ".weight_global_scale"][2])[0]
    s = [E4M3_ALL[c] * outer for c in t[m + ".weight_scale"][2]]
    assert all(x > 0 for x in s)
    return [NIBBLE[c] * s[i // 16] for i, c in enumerate(codes4(t[m + ".weight_packed"][2]))]


def mxfp4(t, m, n, k, g):
    assert t[m + ".weight_packed"][:2] == ("U8", [n, k // 2]) and t[m + ".weight_scale"][:2] == ("U8", [n, k // 32])
    s = [2.0 ** (e - 127) for e in t[m + ".weight_scale"][2]]
    return [NIBBLE[c] * s[i // 32] for i, c in enumerate(codes4(t[m + ".weight_packed"][2]))]


def fp8(t, m, n, k, g):
    assert t[m + ".weight"][:2] == ("F8_E4M3", [n, k]) and t[m + ".weight_scale"][:2] == ("F32", [n, 1])
    s = floats("F32", t[m + ".weight_scale"][2])
    return [E4M3_ALL[c] * s[i // k] for i, c in enumerate(t[m + ".weight"][2])]


def fp8_block(t, m, n, k, g):
    shape = [-(-n // 128), -(-k // 128)]
    assert t[m + ".weight"][:2] == ("F8_E4M3", [n, k]) and t[m + ".weight_scale_inv"][:2] == ("F32", shape)
    s = floats("F32", t[m + ".weight_scale_inv"][2])
    return [E4M3_ALL[c] * s[i // k // 128 * shape[1] + i % k // 128] for i, c in enumerate(t[m + ".weight"][2])]


def mo_nvfp4(t, m, n, k, g):
    assert t[m + ".weight"][:2] == ("U8", [n, k // 2]) and t[m + ".weight_scale"][:2] == ("F8_E4M3", [n, k // 16])
    assert t[m + ".weight_scale_2"][:2] == ("F32", [])
    outer = struct.unpack("<f", t[m + ".weight_scale_2"][2])[0]
    s = [E4M3_ALL[c] * outer for c in t[m + ".weight_scale"][2]]
    assert all(x > 0 for x in s)
    return [NIBBLE[c] * s[i // 16] for i, c in enumerate(codes4(t[m + ".weight"][2]))]


def mo_fp8(t, m, n, k, g):
    assert t[m + ".weight_scale"][:2] == ("F32", [n])
    return fp8({**t, m + ".weight_scale": ("F32", [n, 1], t[m + ".weight_scale"][2])}, m, n, k, g)


# name: reader, group, tensors of a module, bound of the relative error (root of the sums of squares), codes of the largest
FORMS = {"int4-g32": (int4, 32, ("weight_packed", "weight_scale", "weight_shape"), 0.10, 7),
         "int4-g128": (int4, 128, ("weight_packed", "weight_scale", "weight_shape"), 0.13, 7),
         "nvfp4": (nvfp4, 16, ("weight_packed", "weight_scale", "weight_global_scale"), 0.10, 6),
         "mxfp4": (mxfp4, 32, ("weight_packed", "weight_scale"), 0.13, 6),
         "fp8": (fp8, 1, ("weight", "weight_scale"), 0.03, 0),
         "modelopt-nvfp4": (mo_nvfp4, 16, ("weight", "weight_scale", "weight_scale_2"), 0.10, 6),
         "modelopt-fp8": (mo_fp8, 1, ("weight", "weight_scale"), 0.03, 0),
         "fp8-block": (fp8_block, 1, ("weight", "weight_scale_inv"), 0.03, 0)}


def plain_error(form, w, g):
    """Squared error where each scale takes the largest magnitude to the last code; None: there is no search."""
    top = FORMS[form][4]
    if not top:
        return None
    e = 0.0
    for i in range(0, len(w), g):
        b = w[i:i + g]
        a = max(map(abs, b))
        if form == "mxfp4":
            s = 2.0 ** math.ceil(math.log2(a / 6)) if a else 1
        else:
            s = a / top or 1
        for x in b:
            y = abs(x) / s
            q = min(7, round(y)) if top == 7 else min(E2M1, key=lambda v: abs(v - y))
            e += (abs(x) - q * s) ** 2
    return e


def check(form, source, made, out):
    reader, g, suffixes, bound, _ = FORMS[form]
    a, b, plain = folder(source), folder(made), {}
    with open(os.path.join(made, "config.json"), encoding="utf-8") as f:
        quant = json.load(f)["quantization_config"]
    kept = quant.get("ignore", quant.get("modules_to_not_convert"))
    beside = os.path.join(made, "hf_quant_config.json")
    assert os.path.exists(beside) == form.startswith("modelopt"), "hf_quant_config.json"
    if os.path.exists(beside):
        with open(beside, encoding="utf-8") as f:
            q = json.load(f)["quantization"]
        assert q["exclude_modules"] == kept and q["quant_algo"] == quant["quant_algo"] and q["kv_cache_quant_algo"] is None
        assert q.get("group_size") == (g if form == "modelopt-nvfp4" else None)
    worst, total, searched, size, used = 0, 0.0, 0.0, 0.0, set()
    for name, (dtype, shape, raw) in a.items():
        m = name[:-len(".weight")] if name.endswith(".weight") else None
        module = m and "model.layers." in m and (m.endswith("_proj") or m.endswith("_with_mqa"))
        if not module or m in kept:
            assert b[name] == (dtype, shape, raw), name + " has changed"
            assert not module or shape[1] % g, m + " need not stay"
            plain[name] = (dtype, shape, raw)
            used.add(name)
            continue
        n, k = shape
        used.update(m + "." + s for s in suffixes)
        y, w = reader(b, m, n, k, g), floats(dtype, raw)
        e, s = sum((p - q) ** 2 for p, q in zip(w, y)), sum(p * p for p in w)
        assert len(y) == len(w) and e <= (bound ** 2) * s, "%s: error %.3f" % (m, math.sqrt(e / s))
        if size < 2e6 * 1e-2 and len(w) <= 32768: # the slow comparison, on some
            p = plain_error(form, w, g)
            if p is not None:
                assert e <= p, "%s: the search made it worse: %g, %g" % (m, e, p)
                searched += p
                total += e
                size += 1
        worst = max(worst, math.sqrt(e / s))
        plain[name] = ("F32", shape, struct.pack("<%df" % len(y), *y))
    assert used == set(b), "tensors that nobody asked for: %s" % sorted(set(b) - used)[:3]
    print("%s: worst matrix %.4f%s" % (form, worst, ", squared error %.3f of that without a search" % (total / searched) if searched else ""))
    os.makedirs(out, exist_ok=True)
    write(os.path.join(out, "model.safetensors"), plain)
    with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
        config = f.read()
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as f:
        f.write(config)


# ---- GGUF ----

def gguf(path):
    """Keys, and name -> (type, sizes, bytes), of a file with any types."""
    with open(path, "rb") as f:
        raw = f.read()
    at, by_number = 8, {v[0]: (k, v[1], v[2]) for k, v in TYPES.items()}

    def take(fmt):
        nonlocal at
        v = struct.unpack_from(fmt, raw, at)
        at += struct.calcsize(fmt)
        return v if len(v) > 1 else v[0]

    def text():
        nonlocal at
        n = take("<Q")
        at += n
        return raw[at - n:at]

    def skip(kind):
        nonlocal at
        if kind == 8:
            text()
        elif kind == 9:
            k, n = take("<IQ")
            for _ in range(n):
                skip(k)
        else:
            at += (1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8)[kind]

    assert raw[:8] == b"GGUF\3\0\0\0"
    n_tensor, n_kv = take("<qq")
    kv, info = [], []
    for _ in range(n_kv):
        k, begin = text().decode(), at
        skip(take("<I"))
        kv.append((k, raw[begin:at]))
    for _ in range(n_tensor):
        name = text().decode()
        ne = [take("<q") for _ in range(take("<I"))]
        info.append((name, ne) + take("<IQ"))
    assert len(dict(kv)) == n_kv and len({i[0] for i in info}) == n_tensor, "a key or a name twice"
    at += -at % 32
    out, end = {}, 0
    for name, ne, number, offset in info:
        kind, block, size = by_number[number]
        n = size * ne[0] // block
        for d in ne[1:]:
            n *= d
        assert offset == end and ne[0] % block == 0 and len(name) < 64, name
        out[name] = (kind, ne, raw[at + offset:at + offset + n])
        end = offset + n + -n % 32
    assert len(raw) == at + end, "the file's length"
    return kv, out


def values(lib, kind, data):
    from _gguf_oracle import dequantise
    if kind == "F32":
        return data
    if kind == "F16":
        n = len(data) // 2
        return struct.pack("<%df" % n, *struct.unpack("<%de" % n, data))
    if kind == "BF16":
        return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    return dequantise(lib, kind, data)


def squared(a, b):
    a, b = array.array("f", a), array.array("f", b)
    assert len(a) == len(b)
    return sum((x - y) ** 2 for x, y in zip(a, b))


def compare_gguf(path, f32, made, out, theirs=None):
    lib = ctypes.CDLL(path)
    _, want = gguf(f32)
    kv, got = gguf(made)
    other = gguf(theirs)[1] if theirs else {}
    assert list(want) == list(got), "other tensors"
    g, ours, his = Gguf(), 0.0, 0.0
    g.kv = kv
    for name, (kind, ne, data) in got.items():
        assert ne == want[name][1], name
        floats32 = values(lib, kind, data)
        g.tensor(name, "F32", ne, floats32)
        if not theirs or kind == "F32":
            continue
        assert other[name][0] == kind, "%s: %s, llama.cpp has %s" % (name, kind, other[name][0])
        e, t = squared(floats32, want[name][2]), squared(values(lib, kind, other[name][2]), want[name][2])
        assert e <= t * 1.0001, "%s (%s): squared error %g, llama.cpp's %g" % (name, kind, e, t)
        ours += e
        his += t
    g.write(out)
    if theirs:
        print("%s: squared error %.4f of llama.cpp's" % (os.path.basename(made), ours / his))


def splice(out, base, *others):
    g = Gguf()
    g.kv, tensors = gguf(base)
    for word, other in zip(others[::2], others[1::2]):
        took = {name: t for name, t in gguf(other)[1].items() if word in name}
        assert took and set(took) <= set(tensors), word
        assert any(t[0] != tensors[name][0] for name, t in took.items()), word + ": the same type"
        tensors.update(took)
    for name, (kind, ne, data) in tensors.items():
        g.tensor(name, kind, ne, data)
    g.write(out)


if __name__ == "__main__":
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "check":
        check(*rest)
    elif what == "drop": # of ModelOpt's two descriptions one
        path = os.path.join(rest[0], "config.json" if rest[1] == "config" else "hf_quant_config.json")
        if rest[1] == "config":
            with open(path, encoding="utf-8") as f:
                c = json.load(f)
            del c["quantization_config"]
            with open(path, "w", encoding="utf-8") as f:
                json.dump(c, f)
        else:
            os.remove(path)
    elif what == "bytes":
        with open(rest[1], encoding="utf-8") as f:
            count = [t for t in json.load(f)["weights"]["types"] if t["dtype"] == "checkpoint"][0]["bytes"]
        there = sum(len(t[2]) for t in gguf(rest[0])[1].values())
        assert abs(count - there) < 0.01 * there, "plan counts %d bytes, the file has %d" % (count, there)
    elif what == "splice":
        splice(*rest)
    elif what == "same":
        assert folder(rest[0]) == folder(rest[1])
    else:
        compare_gguf(*rest)
