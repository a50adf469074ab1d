"""Writes a checkpoint in a published form of quantised weights, and the same weights as floats, from the
formulas of the formats; standard library only.

  _weight_forms.py FORM MODEL_DIR OUT_DIR
      OUT_DIR/q: the quantised checkpoint; OUT_DIR/f: the values of its codes in F32.
  _weight_forms.py compare A.f32 B.f32 FAR.f32
      A and B are logits that agree to 1e-4 of the largest; FAR differs from A by ten times that.
  _weight_forms.py list
  _weight_forms.py broken           NAME FORM WORDS of hostile variants
  _weight_forms.py spoil NAME OUT_DIR
"""
import array
import bisect
import json
import os
import random
import struct
import sys

E2M1 = [0, .5, 1, 1.5, 2, 3, 4, 6]


def e4m3_value(c):
    m, e = c & 7, c >> 3 & 15
    x = (8 + m) / 8 * 2.0 ** (e - 7) if e else m / 8 * 2.0 ** -6
    return -x if c & 128 else x


E4M3 = [e4m3_value(c) for c in range(127)]


def nearest(table, x):
    """Index of the value nearest to x >= 0; ties to the even index."""
    i = min(bisect.bisect_left(table, x), len(table) - 1)
    if i and (x - table[i - 1] < table[i] - x or (x - table[i - 1] == table[i] - x and i % 2)):
        i -= 1
    return i


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16(x):
    """The bits of x as BF16, to nearest even."""
    u = struct.unpack("<I", struct.pack("<f", x))[0]
    return (u + 0x7fff + (u >> 16 & 1)) >> 16


def bf16_value(b):
    return struct.unpack("<f", struct.pack("<I", b << 16))[0]


def f16(x):
    return struct.unpack("<H", struct.pack("<e", x))[0]


def f16_value(b):
    return struct.unpack("<e", struct.pack("<H", b))[0]


def words(code, values):
    return struct.pack("<%d%s" % (len(values), code), *values)


def e4m3(x):
    c = nearest(E4M3, min(abs(x), 448))
    return c | (128 if x < 0 else 0)


def e2m1(x):
    return nearest(E2M1, min(abs(x), 6)) | (8 if x < 0 else 0)


# ---- files ----

SIZE = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8, "U8": 1, "I8": 1, "F8_E4M3": 1}


def read(path):
    with open(path, "rb") as f:
        raw = f.read()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            out[name] = (t["dtype"], t["shape"], raw[8 + n + a:8 + n + b])
    return out


def write(path, tensors):
    head, data, at = {}, [], 0
    for name, (dtype, shape, raw) in tensors.items():
        n = SIZE[dtype]
        for d in shape:
            n *= d
        assert n == len(raw), (name, dtype, shape, len(raw))
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
        data.append(raw)
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def floats(dtype, raw):
    if dtype == "F32":
        return list(array.array("f", raw))
    if dtype == "BF16":
        return [bf16_value(b) for b in array.array("H", raw)]
    return [f16_value(b) for b in array.array("H", raw)]


# ---- forms: weights [n][k] -> tensors by suffix, and the values of the codes ----

def groups_of(k, g):
    return [(i, min(i + g, k)) for i in range(0, k, g)]


def integers(w, bits, g, sym, order, half=bf16, value=bf16_value):
    """Codes, zero points and scales of groups; order[i]: the column at place i of the groups."""
    lo, hi = 0, (1 << bits) - 1
    codes, zeros, scales = [], [], []
    for row in w:
        q, zs, ss = [0] * len(row), [], []
        for a, b in groups_of(len(row), g):
            cols = order[a:b]
            part = [row[c] for c in cols]
            if sym:
                z, s = 1 << (bits - 1), max(max(abs(x) for x in part) / ((1 << (bits - 1)) - .5), 1e-6)
            else:
                low, high = min(min(part), 0), max(max(part), 1e-6)
                s = (high - low) / hi
                z = min(max(round(-low / s), lo), hi)
            s = half(s)
            for c in cols:
                q[c] = min(max(round(row[c] / value(s)) + z, lo), hi)
            zs.append(z)
            ss.append(s)
        codes.append(q)
        zeros.append(zs)
        scales.append(ss)
    return codes, zeros, scales


def group_of(k, g, order):
    at = [0] * k
    for i, c in enumerate(order):
        at[c] = i // g
    return at


def values(codes, zeros, scales, at, value=bf16_value):
    return [[(q - z[at[c]]) * value(s[at[c]]) for c, q in enumerate(row)]
            for row, z, s in zip(codes, zeros, scales)]


def pack_rows(codes, bits):
    """Words of 32 bits, the first code lowest."""
    per, out = 32 // bits, []
    for row in codes:
        row = row + [0] * (-len(row) % per)
        out += [sum(q << bits * j for j, q in enumerate(row[i:i + per])) for i in range(0, len(row), per)]
    return out


def transposed(m):
    return [list(c) for c in zip(*m)]


def ct_int(bits, g, sym=True, act=False, shape="I64"):
    def form(w, rng):
        n, k = len(w), len(w[0])
        size = g or k
        order = list(range(k))
        if act:
            rng.shuffle(order)
        codes, zeros, scales = integers(w, bits, size, sym, order)
        ng = len(scales[0])
        t = {"weight_packed": ("I32", [n, -(-k * bits // 32)], words("I", pack_rows(codes, bits))),
             "weight_scale": ("BF16", [n, ng], words("H", sum(scales, []))),
             "weight_shape": (shape, [2], words("q" if shape == "I64" else "i", [n, k]))}
        if not sym:
            z = transposed(pack_columns(zeros, bits))
            t["weight_zero_point"] = ("I32", [len(z), ng], words("I", sum(z, [])))
        at = group_of(k, size, order)
        if act:
            t["weight_g_idx"] = ("I32", [k], words("i", at))
        return t, values(codes, zeros, scales, at)
    return form


def pack_columns(m, bits):
    """[rows][groups] -> [groups][words along the rows]."""
    flat = pack_rows(transposed(m), bits)
    per = len(flat) // len(m[0])
    return [flat[i:i + per] for i in range(0, len(flat), per)]


def nibbles(rows):
    return bytes(q for row in rows for q in (row[i] | row[i + 1] << 4 for i in range(0, len(row), 2)))


def fp4(names, g, e8m0, divides):
    def form(w, rng):
        n, k = len(w), len(w[0])
        if k % 8:
            return None
        amax = max(abs(x) for row in w for x in row)
        s2 = f32(448 * 6 / amax) if divides else f32(amax / (6 * 448))
        outer = 1 / s2 if divides else s2
        codes, scales, out = [], [], []
        for row in w:
            q, v = [], []
            for a, b in groups_of(k, g):
                m = max(abs(x) for x in row[a:b])
                if e8m0:
                    e = 127
                    while m / 6 > 2.0 ** (e - 127):
                        e += 1
                    while e > 1 and m / 6 <= 2.0 ** (e - 128):
                        e -= 1
                    s, real = e, 2.0 ** (e - 127)
                else:
                    s = max(e4m3(m / 6 / outer), 1)
                    real = e4m3_value(s) * outer
                scales.append(s)
                part = [e2m1(x / real) for x in row[a:b]]
                q += part
                v += [(-1 if c & 8 else 1) * E2M1[c & 7] * real for c in part]
            codes.append(q)
            out.append(v)
        t = {names[0]: ("U8", [n, k // 2], nibbles(codes)),
             "weight_scale": ("U8" if e8m0 else "F8_E4M3", [n, len(scales) // n], bytes(scales))}
        if not e8m0:
            t[names[1]] = ("F32", [1] if divides else [], words("f", [s2]))
            t[names[2]] = ("F32", [1] if divides else [], words("f", [3.0])) # of activations: not used
        return t, out
    return form


def fp8(kind, name="weight_scale"):
    """kind: tensor, channel, rows ([n]), block, flat (one element, no dimension), pb ([a, 1, b, 1])."""
    def form(w, rng):
        n, k = len(w), len(w[0])
        amax = max(abs(x) for row in w for x in row)
        nr, nc = -(-n // 128), -(-k // 128)
        if kind in ("channel", "rows"):
            s = [max(max(abs(x) for x in row) / 448, 1e-9) for row in w]
        elif kind in ("block", "pb"):
            s = [amax / 448 * (1 + i / 16) for i in range(nr * nc)]
        else:
            s = [amax / 448]
        dtype = "BF16" if kind in ("channel", "block") else "F32"
        s = [bf16_value(bf16(x)) if dtype == "BF16" else f32(x) for x in s]

        def scale(r, c):
            return s[r] if kind in ("channel", "rows") else \
                s[r // 128 * nc + c // 128] if kind in ("block", "pb") else s[0]
        codes = [[e4m3(x / scale(r, c)) for c, x in enumerate(row)] for r, row in enumerate(w)]
        out = [[e4m3_value(q) * scale(r, c) for c, q in enumerate(row)] for r, row in enumerate(codes)]
        shape = {"tensor": [1], "flat": [], "channel": [n, 1], "rows": [n], "block": [nr, nc],
                 "pb": [nr, 1, nc, 1]}[kind]
        raw = words("H", [bf16(x) for x in s]) if dtype == "BF16" else words("f", s)
        return {"weight": ("F8_E4M3", [n, k], bytes(q for row in codes for q in row)),
                name: (dtype, shape, raw), "input_scale": ("F32", [], words("f", [1.5]))}, out
    return form


def int8_channel(sym):
    def form(w, rng):
        n, k = len(w), len(w[0])
        if k % 8:
            return None
        codes, zeros, scales = integers(w, 8, k, sym, list(range(k)))
        t = {"weight": ("I8", [n, k], words("b", [q - 128 for row in codes for q in row])),
             "weight_scale": ("BF16", [n, 1], words("H", sum(scales, [])))}
        if not sym:
            t["weight_zero_point"] = ("I8", [n, 1], words("b", [z[0] - 128 for z in zeros]))
        return t, values(codes, zeros, scales, [0] * k)
    return form


def w4afp8(w, rng):
    n, k = len(w), len(w[0])
    if k % 16:
        return None
    codes, zeros, scales = integers(w, 4, 16, True, list(range(k)), f32, float)
    t = {"weight": ("I8", [n, k // 2], nibbles([[q ^ 8 for q in row] for row in codes])),
         "weight_scale_inv": ("F32", [n, k // 16], words("f", sum(scales, []))),
         "input_scale": ("F32", [], words("f", [1]))}
    return t, values(codes, zeros, scales, group_of(k, 16, list(range(k))), float)


AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def awq_words(row):
    return [sum(row[i + AWQ_ORDER[j]] << 4 * j for j in range(8)) for i in range(0, len(row), 8)]


def awq(g):
    def form(w, rng):
        n, k = len(w), len(w[0])
        if n % 8 or k % g:
            return None
        codes, zeros, scales = integers(w, 4, g, False, list(range(k)), f16, f16_value)
        q = [awq_words(c) for c in transposed(codes)]
        z = [awq_words(c) for c in transposed(zeros)]
        t = {"qweight": ("I32", [k, n // 8], words("I", sum(q, []))),
             "qzeros": ("I32", [k // g, n // 8], words("I", sum(z, []))),
             "scales": ("F16", [k // g, n], words("H", sum(transposed(scales), [])))}
        return t, values(codes, zeros, scales, group_of(k, g, list(range(k))), f16_value)
    return form


def gptq(bits, g, sym, less, act):
    def form(w, rng):
        n, k = len(w), len(w[0])
        size = g or k
        if n % 8 or k % size or k % 8:
            return None
        order = list(range(k))
        if act:
            rng.shuffle(order)
        codes, zeros, scales = integers(w, bits, size, sym, order, f16, f16_value)
        if less:
            zeros = [[max(z, 1) for z in row] for row in zeros]
        q = transposed(pack_columns(transposed(codes), bits)) # [words along k][n]
        z = pack_columns([[z - less for z in row] for row in zeros], bits)
        at = group_of(k, size, order)
        t = {"qweight": ("I32", [k * bits // 32, n], words("I", sum(q, []))),
             "qzeros": ("I32", [k // size, n * bits // 32], words("I", sum(z, []))),
             "scales": ("F16", [k // size, n], words("H", sum(transposed(scales), []))),
             "g_idx": ("I32", [k], words("i", at))}
        return t, values(codes, zeros, scales, at, f16_value)
    return form


def ct_config(fmt, weights, ignore=("lm_head",), **more):
    return {"quant_method": "compressed-tensors", "format": fmt, "ignore": list(ignore),
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                          "input_activations": None}}, **more}


def ints(bits, g, sym=True, **more):
    return ct_config("pack-quantized", {"num_bits": bits, "type": "int", "symmetric": sym, "group_size": g or None,
                                        "strategy": "group" if g else "channel"}, **more)


def floats8(strategy, **more):
    return ct_config("float-quantized", {"num_bits": 8, "type": "float", "strategy": strategy, **more})


KIMI = ("re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*")
NVFP4 = ("weight_packed", "weight_global_scale", "input_global_scale")
# name: form, quantization_config, which modules, where the configuration goes
FORMS = {
    "kimi": (ct_int(4, 32, shape="I32"), ints(4, 32, ignore=KIMI), "experts", "nested"),
    "w4-asym": (ct_int(4, 32, sym=False), ints(4, 32, False), "all", ""),
    "w4-channel": (ct_int(4, 0), ints(4, 0), "all", ""),
    "w4-act": (ct_int(4, 16, sym=False, act=True), ints(4, 16, False), "all", ""),
    "w8-group": (ct_int(8, 32), ints(8, 32), "all", ""),
    "w8-asym": (ct_int(8, 0, sym=False), ints(8, 0, False), "all", ""),
    "fp8-channel": (fp8("channel"), floats8("channel"), "all", ""),
    "fp8-tensor": (fp8("tensor"), floats8("tensor"), "all", ""),
    "fp8-block": (fp8("block"), floats8("block", block_structure=[128, 128]), "all", ""),
    "nvfp4-ct": (fp4(NVFP4, 16, False, True),
                 ct_config("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "group_size": 16,
                                                    "strategy": "tensor_group"}), "all", ""),
    "mxfp4-ct": (fp4(("weight_packed",), 32, True, False),
                 ct_config("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "group_size": 32,
                                                    "strategy": "group"}), "all", ""),
    "nvfp4-modelopt": (fp4(("weight", "weight_scale_2", "input_scale"), 16, False, False),
                       {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None,
                        "exclude_modules": ["lm_head", "*self_attn*"]}, "mlp", "file"),
    "fp8-modelopt": (fp8("flat"), {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}, "all", ""),
    "fp8-pb": (fp8("pb"), {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO", "ignore": ["lm_head"]}, "all", ""),
    "fp8-plain": (fp8("flat"), {"quant_method": "fp8", "activation_scheme": "static"}, "all", ""),
    "fbgemm": (fp8("channel"), {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, "all", ""),
    "fp8-rows": (fp8("rows"), {"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}, "all", ""),
    "int8": (int8_channel(True), ct_config("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}),
             "all", ""),
    "int8-asym": (int8_channel(False), ct_config("int-quantized", {"num_bits": 8, "type": "int", "symmetric": False,
                                                                   "strategy": "channel"}), "all", ""),
    "quark": (fp4(("weight",), 32, True, False), {"quant_method": "quark", "exclude": ["lm_head"]}, "all", ""),
    "w4afp8": (w4afp8, {"quant_method": "w4afp8"}, "experts", ""),
    "awq": (awq(8), {"quant_method": "awq", "bits": 4, "group_size": 8, "zero_point": True, "version": "gemm"},
            "all", ""),
    "gptq-v1": (gptq(4, 8, True, 1, False), {"quant_method": "gptq", "bits": 4, "group_size": 8, "sym": True,
                                             "checkpoint_format": "gptq"}, "all", ""),
    "gptq-v1-asym": (gptq(4, 8, False, 1, False), {"quant_method": "gptq", "bits": 4, "group_size": 8, "sym": False},
                     "all", ""),
    "gptq-v2-act": (gptq(4, 8, False, 0, True), {"quant_method": "gptq", "bits": 4, "group_size": 8,
                                                 "desc_act": True, "checkpoint_format": "gptq_v2"}, "all", ""),
    "gptq-8": (gptq(8, 8, True, 1, False), {"quant_method": "gptq", "bits": 8, "group_size": 8}, "all", ""),
    "gptq-rows": (gptq(4, 0, False, 1, False), {"quant_method": "gptq", "bits": 4, "group_size": -1}, "all", ""),
    "autoround": (gptq(4, 8, True, 0, False), {"quant_method": "auto-round", "bits": 4, "group_size": 8, "sym": True,
                                               "packing_format": "auto_round"}, "all", ""),
}


def chosen(name, which):
    if not name.endswith("_proj.weight") and not name.endswith("_with_mqa.weight"):
        return False
    return which == "all" or (which == "experts" and ".experts." in name) or (which == "mlp" and ".mlp." in name)


def make(form, model, out):
    convert, config, which, place = FORMS[form]
    rng = random.Random(form)
    quant, plain = {}, {}
    prefix = "language_model." if place == "nested" else ""
    for name, (dtype, shape, raw) in read(os.path.join(model, "model.safetensors")).items():
        done = None
        if chosen(name, which) and len(shape) == 2:
            flat = floats(dtype, raw)
            w = [flat[r * shape[1]:(r + 1) * shape[1]] for r in range(shape[0])]
            done = convert(w, rng)
        if done is None:
            quant[prefix + name] = plain[name] = (dtype, shape, raw)
            continue
        module = name[:-len(".weight")]
        for suffix, t in done[0].items():
            quant[prefix + module + "." + suffix] = t
        plain[name] = ("F32", shape, words("f", [x for row in done[1] for x in row]))
    with open(os.path.join(model, "config.json")) as f:
        base = json.load(f)
    full = dict(base, quantization_config=config) if place != "file" else base
    if place == "nested":
        full = {"model_type": "kimi_k25", "architectures": ["KimiK25ForConditionalGeneration"], "text_config": full,
                "vision_config": {"depth": 2}}
        quant["vision_tower.patch.weight"] = ("F32", [1], words("f", [1]))
    for folder, tensors, c in (("q", quant, full), ("f", plain, base)):
        os.makedirs(os.path.join(out, folder), exist_ok=True)
        write(os.path.join(out, folder, "model.safetensors"), tensors)
        with open(os.path.join(out, folder, "config.json"), "w") as f:
            json.dump(c, f)
    if place == "file":
        with open(os.path.join(out, "q", "hf_quant_config.json"), "w") as f:
            json.dump({"producer": {"name": "modelopt"}, "quantization": config}, f)


# ---- hostile files ----

NAN = {"BF16": b"\xc0\x7f", "F16": b"\x00\x7e", "F32": b"\x00\x00\xc0\x7f", "F8_E4M3": b"\x7f", "U8": b"\xff"}


def put(at, value):
    """A tensor with the bytes of value at an offset."""
    return lambda t: (t[0], t[1], t[2][:at] + value + t[2][at + len(value):])


def cut(axis):
    """Without the last index of a dimension, or with none where it has one."""
    def change(t):
        shape = list(t[1])
        shape[axis] -= 1
        n = SIZE[t[0]]
        for d in shape:
            n *= d
        return t[0], shape, t[2][:n]
    return change


def nothing(t):
    return t[0], [t[1][0], 0], b""


def nan(t):
    return put(0, NAN[t[0]])(t)


# name: form, ending of the tensor (its first one), what happens to it (None: it goes), words of the line
BROKEN = {
    "no-groups": ("w4-asym", "weight_scale", nothing, "has no groups"),
    "groups": ("w4-asym", "weight_scale", cut(1), "groups"),
    "scale-rows": ("w4-asym", "weight_scale", cut(0), "weight_scale"),
    "scale-nan": ("w4-asym", "weight_scale", nan, "finite"),
    "scale-gone": ("w4-asym", "weight_scale", None, "missing"),
    "width": ("w4-asym", "weight_packed", cut(1), "words a row"),
    "rows": ("w4-asym", "weight_packed", cut(0), "weight_packed"),
    "shape": ("w4-asym", "weight_shape", put(0, b"\x07"), "weight_shape"),
    "shape-huge": ("w4-asym", "weight_shape", put(0, b"\xff" * 16), "weight_shape"),
    "zeros": ("w4-asym", "weight_zero_point", cut(0), "weight_zero_point"),
    "g_idx-high": ("w4-act", "weight_g_idx", put(0, b"\x63\0\0\0"), "expected a group from 0"),
    "g_idx-low": ("w4-act", "weight_g_idx", put(0, b"\xfe\xff\xff\xff"), "expected a group from 0"),
    "g_idx-crowd": ("w4-act", "weight_g_idx", lambda t: (t[0], t[1], bytes(len(t[2]))), "columns in group 0"),
    "g_idx-short": ("w4-act", "weight_g_idx", cut(0), "weight_g_idx"),
    "global-zero": ("nvfp4-ct", "weight_global_scale", put(0, bytes(4)), "other than 0"),
    "global-nan": ("nvfp4-ct", "weight_global_scale", nan, "other than 0"),
    "global-gone": ("nvfp4-ct", "weight_global_scale", None, "missing"),
    "fp4-width": ("nvfp4-ct", "weight_packed", cut(1), "weight_packed"),
    "fp4-nan": ("nvfp4-ct", "weight_scale", nan, "finite"),
    "e8m0-nan": ("mxfp4-ct", "weight_scale", nan, "finite"),
    "fp8-nan": ("fp8-channel", "weight_scale", nan, "finite"),
    "fp8-rows": ("fp8-channel", "weight_scale", cut(0), "weight_scale"),
    "fp8-gone": ("fp8-channel", "weight_scale", None, "missing"),
    "awq-width": ("awq", "qweight", cut(1), "qweight"),
    "awq-groups": ("awq", "scales", cut(0), "groups"),
    "awq-zeros": ("awq", "qzeros", cut(0), "qzeros"),
    "gptq-nan": ("gptq-v1", "scales", nan, "finite"),
    "gptq-g_idx": ("gptq-v2-act", "g_idx", put(4, b"\xff\xff\xff\x7f"), "expected a group from 0"),
}


def spoil(name, out):
    """Spoils OUT_DIR/q."""
    ending, change = BROKEN[name][1:3]
    path = os.path.join(out, "q", "model.safetensors")
    tensors = read(path)
    first = next(n for n in tensors if n.endswith("." + ending))
    if change:
        tensors[first] = change(tensors[first])
    else:
        del tensors[first]
    write(path, tensors)


def compare(a, b, far):
    a, b, far = (array.array("f", open(p, "rb").read()) for p in (a, b, far))
    assert len(a) == len(b) == len(far) > 0
    size = max(abs(x) for x in b)
    worst = max(abs(x - y) for x, y in zip(a, b))
    moved = max(abs(x - y) for x, y in zip(a, far))
    assert worst == worst and worst <= 1e-4 * size, "logits of up to %g differ by %g" % (size, worst)
    assert moved > 1e-3 * size, "quantised weights move logits by %g only: the test would not see mistakes" % moved


def main():
    if sys.argv[1] == "list":
        print("\n".join(FORMS))
    elif sys.argv[1] == "broken":
        for name, row in BROKEN.items():
            print(name, row[0], row[3])
    elif sys.argv[1] == "spoil":
        spoil(*sys.argv[2:])
    elif sys.argv[1] == "compare":
        compare(*sys.argv[2:])
    else:
        make(*sys.argv[1:])


if __name__ == "__main__":
    main()
