"""Random checkpoints in mixtures of published weight formats, written from the formulas alone (standard library).

  _weight_mix.py list [gpu]              names of the cases; of those that a GPU shall run, too
  _weight_mix.py make CASE CONFIGS OUT   OUT/q: the checkpoint; OUT/f: the values of its codes in F32; CASE may be
                                         llama3, qwen2, qwen3 or minicpm3_short: nothing is quantised, for GGUF
                                         CONFIGS: tests/parity, whose config.json files name the families
  _weight_mix.py compare A.f32 B.f32 [N] logits agree to 1e-4, or N, of the largest
  _weight_mix.py bytes Q PLAN.json       `nibble plan --json` counts the bytes of Q's tensors to 1 %

Codes and scales are drawn at random, so that every code, zero point and order of columns occurs; nothing is quantised.
"""
import array
import json
import os
import random
import struct
import sys

SIZE = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8, "U8": 1, "I8": 1, "F8_E4M3": 1}


def pack(dtype, values):
    if dtype == "BF16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack("<%d%s" % (len(values), {"F16": "e", "F32": "f", "I32": "i", "I64": "q", "U8": "B", "I8": "b",
                                                "F8_E4M3": "B"}[dtype]), *values)


def unpack(dtype, raw):
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]
    return list(struct.unpack("<%d%s" % (len(raw) // SIZE[dtype], {"F16": "e", "F32": "f"}[dtype]), raw))


def u32(words):
    return struct.pack("<%dI" % len(words), *words)


def scales(rng, n, dtype, size):
    """n positive scales near size, as bytes and as the values that these have."""
    raw = pack(dtype, [size * rng.uniform(0.5, 1.5) for _ in range(n)])
    return raw, unpack(dtype, raw)


def e4m3(code):
    sign = -1 if code & 128 else 1
    e, m = code >> 3 & 15, code & 7
    return sign * (m / 8 * 2.0 ** -6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7))


def e2m1(code):
    return (-1 if code & 8 else 1) * (0, 0.5, 1, 1.5, 2, 3, 4, 6)[code & 7]


# ---- forms: (rows, columns, rng) -> tensors by suffix, values [rows][columns]

def groups(k, g, rng, act):
    """The group of each column: in order, or shuffled."""
    at = [c // g for c in range(k)]
    if act:
        rng.shuffle(at)
    return at


def stream(codes, bits):
    """Little-endian bits of a list of codes, in words of 32, the last one filled with zeros."""
    n = sum(q << bits * i for i, q in enumerate(codes))
    return [n >> 32 * i & 0xffffffff for i in range(-(-len(codes) * bits // 32))]


def ct(bits, g=0, sym=True, act=False, dtype="BF16", shape="I64", zero="I32"):
    """compressed-tensors pack-quantized: offset binary; zero points packed along the rows."""
    def form(n, k, rng):
        size, half = g or k, 1 << (bits - 1)
        ng, at = -(-k // size), groups(k, size, rng, act)
        q = [[rng.randrange(2 * half) for _ in range(k)] for _ in range(n)]
        z = [[half if sym else rng.randrange(half // 2, half + half // 2) for _ in range(ng)] for _ in range(n)]
        raw, s = scales(rng, n * ng, dtype, 0.1 / half)
        t = {"weight_packed": ("I32", [n, -(-k * bits // 32)], u32(sum((stream(r, bits) for r in q), []))),
             "weight_scale": (dtype, [n, ng], raw), "weight_shape": (shape, [2], pack(shape, [n, k]))}
        if not sym and zero == "I32":
            cols = [stream([z[r][j] for r in range(n)], bits) for j in range(ng)]
            t["weight_zero_point"] = ("I32", [len(cols[0]), ng], u32([c[i] for i in range(len(cols[0])) for c in cols]))
        elif not sym:
            t["weight_zero_point"] = ("I8", [n, ng], pack("I8", [v - half for r in z for v in r]))
        if act:
            t["weight_g_idx"] = ("I32", [k], pack("I32", at))
        elif act is None:
            t["weight_g_idx"] = ("I32", [k], pack("I32", [-1] * k))
        return t, [[(q[r][c] - z[r][at[c]]) * s[r * ng + at[c]] for c in range(k)] for r in range(n)]
    return form


def fp4(codes, nv, outer):
    """outer: name of the second scale and whether it divides, or None."""
    def form(n, k, rng):
        g = 16 if nv else 32
        ng = -(-k // g)
        q = [[rng.randrange(16) for _ in range(k)] for _ in range(n)]
        s = [rng.randrange(40, 72) if nv else rng.randrange(118, 123) for _ in range(n * ng)]
        real = [e4m3(c) if nv else 2.0 ** (c - 127) for c in s]
        t = {codes: ("U8", [n, k // 2], bytes(r[c] | r[c + 1] << 4 for r in q for c in range(0, k, 2))),
             "weight_scale": ("F8_E4M3" if nv else "U8", [n, ng], bytes(s))}
        factor = 1.0
        if outer:
            v = 50.0 + rng.randrange(8) if outer[1] else 1 / 64 + rng.randrange(8) / 512
            factor = 1 / v if outer[1] else v
            t[outer[0]] = ("F32", outer[2], pack("F32", [v]))
            t["input_global_scale" if outer[1] else "input_scale"] = ("F32", outer[2], pack("F32", [7.0]))
        return t, [[e2m1(q[r][c]) * real[r * ng + c // g] * factor for c in range(k)] for r in range(n)]
    return form


def fp8(kind, dtype="F32", name="weight_scale", static=True):
    def form(n, k, rng):
        nr, nc = -(-n // 128), -(-k // 128)
        shape = {"tensor": [1], "scalar": [], "channel": [n, 1], "vector": [n], "block": [nr, nc], "pb": [nr, 1, nc, 1]}[kind]
        count = {"tensor": 1, "scalar": 1, "channel": n, "vector": n, "block": nr * nc, "pb": nr * nc}[kind]
        raw, s = scales(rng, count, dtype, 0.01)
        q = [[rng.choice((rng.randrange(0x60), 128 + rng.randrange(0x60))) for _ in range(k)] for _ in range(n)]
        where = {1: lambda r, c: 0}.get(count, (lambda r, c: r) if kind in ("channel", "vector") else
                                        (lambda r, c: r // 128 * nc + c // 128))
        t = {"weight": ("F8_E4M3", [n, k], bytes(v for r in q for v in r)), name: (dtype, shape, raw)}
        if static:
            t["input_scale"] = ("F32", [], pack("F32", [1.5]))
        return t, [[e4m3(q[r][c]) * s[where(r, c)] for c in range(k)] for r in range(n)]
    return form


def int8(g=0, zero=None, dtype="BF16", scale=None):
    """zero: None, "channel" or "tensor"; scale "tensor": one for all."""
    def form(n, k, rng):
        size = g or k
        ng = -(-k // size)
        one = scale == "tensor"
        raw, s = scales(rng, 1 if one else n * ng, dtype, 0.001)
        q = [[rng.randrange(-128, 128) for _ in range(k)] for _ in range(n)]
        z = [rng.randrange(-20, 20) if zero else 0 for _ in range(1 if zero == "tensor" else n * ng)]
        t = {"weight": ("I8", [n, k], pack("I8", sum(q, []))), "weight_scale": (dtype, [1] if one else [n, ng], raw)}
        if zero:
            t["weight_zero_point"] = ("I8", [1] if zero == "tensor" else [n, ng], pack("I8", z))
        at = lambda v, r, c: v[0 if len(v) == 1 else r * ng + c // size]
        return t, [[(q[r][c] - at(z, r, c)) * at(s, r, c) for c in range(k)] for r in range(n)]
    return form


def w4afp8(n, k, rng):
    q = [[rng.randrange(-8, 8) for _ in range(k)] for _ in range(n)]
    raw, s = scales(rng, n * (k // 128), "F32", 0.01)
    t = {"weight": ("I8", [n, k // 2], bytes(r[c] & 15 | (r[c + 1] & 15) << 4 for r in q for c in range(0, k, 2))),
         "weight_scale_inv": ("F32", [n, k // 128], raw), "input_scale": ("F32", [1], pack("F32", [1]))}
    return t, [[q[r][c] * s[r * (k // 128) + c // 128] for c in range(k)] for r in range(n)]


def awq(g):
    def form(n, k, rng):
        size = g or k
        ng = k // size
        q = [[rng.randrange(16) for _ in range(k)] for _ in range(n)]
        z = [[rng.randrange(16) for _ in range(ng)] for _ in range(n)]
        raw, s = scales(rng, ng * n, "F16", 0.01)
        place = (0, 4, 1, 5, 2, 6, 3, 7)  # column 8j + c of the outputs sits in this nibble

        def words(column):
            return [sum(column[i + c] << 4 * place[c] for c in range(8)) for i in range(0, n, 8)]
        t = {"qweight": ("I32", [k, n // 8], u32(sum((words([q[r][c] for r in range(n)]) for c in range(k)), []))),
             "qzeros": ("I32", [ng, n // 8], u32(sum((words([z[r][j] for r in range(n)]) for j in range(ng)), []))),
             "scales": ("F16", [ng, n], raw)}
        return t, [[(q[r][c] - z[r][c // size]) * s[c // size * n + r] for c in range(k)] for r in range(n)]
    return form


def gptq(bits=4, g=0, v1=True, sym=False, act=False, dtype="F16", with_idx=True):
    def form(n, k, rng):
        size, top = g or k, 1 << bits
        ng, at = -(-k // size), groups(k, size, rng, act)
        q = [[rng.randrange(top) for _ in range(k)] for _ in range(n)]
        z = [[top // 2 if sym else rng.randrange(1, top) for _ in range(n)] for _ in range(ng)]
        raw, s = scales(rng, ng * n, dtype, 0.2 / top)
        down = [stream(r, bits) for r in q]
        t = {"qweight": ("I32", [len(down[0]), n], u32([d[i] for i in range(len(down[0])) for d in down])),
             "qzeros": ("I32", [ng, n * bits // 32], u32(sum((stream([v - v1 for v in r], bits) for r in z), []))),
             "scales": (dtype, [ng, n], raw)}
        if with_idx:
            t["g_idx"] = ("I32", [k], pack("I32", at))
        return t, [[(q[r][c] - z[at[c]][r]) * s[at[c] * n + r] for c in range(k)] for r in range(n)]
    return form


# ---- models

def shapes(c):
    """Name -> [rows, columns] or [n] of a family's checkpoint."""
    h, heads, t = c["hidden_size"], c["num_attention_heads"], {}
    t["model.embed_tokens.weight"] = [c["vocab_size"], h]
    t["model.norm.weight"] = [h]
    if not c.get("tie_word_embeddings", c["model_type"] in ("youtu", "minicpm3")):
        t["lm_head.weight"] = [c["vocab_size"], h]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        a = p + "self_attn."
        t[p + "input_layernorm.weight"] = t[p + "post_attention_layernorm.weight"] = [h]
        if "kv_lora_rank" in c:
            lora, nope, rope, v = (c[x] for x in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
            q = heads * (nope + rope)
            if c.get("q_lora_rank"):
                t[a + "q_a_proj.weight"], t[a + "q_a_layernorm.weight"] = [c["q_lora_rank"], h], [c["q_lora_rank"]]
                t[a + "q_b_proj.weight"] = [q, c["q_lora_rank"]]
            else:
                t[a + "q_proj.weight"] = [q, h]
            t[a + "kv_a_proj_with_mqa.weight"], t[a + "kv_a_layernorm.weight"] = [lora + rope, h], [lora]
            t[a + "kv_b_proj.weight"], t[a + "o_proj.weight"] = [heads * (nope + v), lora], [h, heads * v]
        else:
            d, kv = c.get("head_dim") or h // heads, c["num_key_value_heads"]
            for x, n in (("q", heads), ("k", kv), ("v", kv)):
                t[a + x + "_proj.weight"] = [n * d, h]
                if c["model_type"] == "qwen2":
                    t[a + x + "_proj.bias"] = [n * d]
                if c["model_type"] == "qwen3" and x != "v":
                    t[a + x + "_norm.weight"] = [d]
            t[a + "o_proj.weight"] = [h, heads * d]
        moe = c.get("n_routed_experts") and i >= c["first_k_dense_replace"]
        parts = [("mlp.", c["intermediate_size"])]
        if moe:
            t[p + "mlp.gate.weight"] = [c["n_routed_experts"], h]
            if c["model_type"] != "deepseek_v2":
                t[p + "mlp.gate.e_score_correction_bias"] = [c["n_routed_experts"]]
            parts = [(f"mlp.experts.{j}.", c["moe_intermediate_size"]) for j in range(c["n_routed_experts"])]
            parts.append(("mlp.shared_experts.", c["moe_intermediate_size"] * c["n_shared_experts"]))
        for q, n in parts:
            t[p + q + "gate_proj.weight"] = t[p + q + "up_proj.weight"] = [n, h]
            t[p + q + "down_proj.weight"] = [h, n]
    return t


def stacked(out, plain, prefix, count, h, inter, rng):
    """gpt-oss: all experts of a layer in one tensor of blocks and one of scales; gate and up in turns."""
    for name, n, k in (("gate_up_proj", 2 * inter, h), ("down_proj", h, inter)):
        codes, ss = b"", b""
        for j in range(count):
            t, w = fp4("weight", False, None)(n, k, rng)
            codes += t["weight"][2]
            ss += t["weight_scale"][2]
            parts = {"down": w} if name == "down_proj" else {"gate": w[0::2], "up": w[1::2]}
            for part, rows in parts.items():
                plain[f"{prefix}{j}.{part}_proj.weight"] = ("F32", [len(rows), k], pack("F32", sum(rows, [])))
        out[prefix + name + "_blocks"] = ("U8", [count, n, k // 32, 16], codes)
        out[prefix + name + "_scales"] = ("U8", [count, n, k // 32], ss)


# ---- cases

WIDE = {"hidden_size": 256, "intermediate_size": 168, "moe_intermediate_size": 88}
# 1408, 10944 and 576 rows in small: groups of 128 do not divide 344 and 176.
ODD = {"hidden_size": 256, "intermediate_size": 344, "moe_intermediate_size": 176, "kv_lora_rank": 128,
       "num_attention_heads": 4, "num_key_value_heads": 4, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 20, "num_hidden_layers": 2, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
       "topk_group": 1, "first_k_dense_replace": 1}
EVEN = dict(ODD, intermediate_size=384, moe_intermediate_size=128, v_head_dim=32, qk_nope_head_dim=16, q_lora_rank=64)


def ct_config(fmt, weights, ignore=("lm_head",), targets=("Linear",), **more):
    return {"quant_method": "compressed-tensors", "format": fmt, "ignore": list(ignore), "kv_cache_scheme": None,
            "config_groups": {"group_0": {"targets": list(targets), "weights": weights, "input_activations": None,
                                          "output_activations": None}}, **more}


def w(bits, g, sym=True, kind="int", strategy=None, **more):
    return {"num_bits": bits, "type": kind, "symmetric": sym, "group_size": g or None, "dynamic": False,
            "strategy": strategy or ("group" if g else "channel"), "actorder": None, "block_structure": None, **more}


def linear(name):
    return name.endswith("_proj") or name.endswith("_with_mqa")


def every(form):
    return lambda name: form if linear(name) else None


def case(base, size, rule, config, where="config", **more):
    return dict(base=base, size=size, rule=rule, config=config, where=where, **more)


def of(*pairs):
    """The form of the first pair whose word is in the name; None leaves it plain."""
    def rule(name):
        for word, form in pairs:
            if word in name and (linear(name) or name == "lm_head"):
                return form
        return None
    return rule


NV_CT = fp4("weight_packed", True, ("weight_global_scale", True, [1]))
NV_MO = fp4("weight", True, ("weight_scale_2", False, []))
MX_CT = fp4("weight_packed", False, None)
NV_W = w(4, 16, kind="float", strategy="tensor_group")
FAMILIES = ("v2_lite", "v2_group", "v3", "v3_moonlight", "glm4_moe_lite", "kimi_k2", "minicpm3_short", "minicpm3_long",
            "youtu", "llama3", "qwen2", "qwen3")
EXPERTS_ONLY = ("re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*")


def gptq_config(bits, g, **more):
    return {"quant_method": "gptq", "bits": bits, "group_size": g, "desc_act": False, "sym": False, "lm_head": False,
            "true_sequential": True, "damp_percent": 0.1, **more}


def round_config(form, **more):
    return {"quant_method": "auto-round", "bits": 4, "group_size": 32, "sym": True, "data_type": "int", "iters": 200,
            "packing_format": form, "autoround_version": "0.5.1", **more}


CASES = {
    "w4-odd": case("v2_lite", ODD, every(ct(4, 128)), ct_config("pack-quantized", w(4, 128))),
    "w4-odd-asym": case("v3", ODD, every(ct(4, 128, sym=False)), ct_config("pack-quantized", w(4, 128, False))),
    "w4-odd-act": case("v2_lite", ODD, every(ct(4, 128, sym=False, act=True)),
                       ct_config("pack-quantized", w(4, 128, False, actorder="group"))),
    "w4-static": case("v3", ODD, every(ct(4, 64, act=None)), ct_config("pack-quantized", w(4, 64, actorder="static"))),
    "w4-f16": case("v3", dict(ODD, torch_dtype="float16"), every(ct(4, 32, dtype="F16", shape="I32")),
                   ct_config("pack-quantized", w(4, 32))),
    "w4-f32-scales": case("v3", ODD, every(ct(4, 32, dtype="F32")), ct_config("pack-quantized", w(4, 32))),
    "w4-old-zeros": case("v3", ODD, every(ct(4, 32, sym=False, zero="I8")), ct_config("pack-quantized", w(4, 32, False))),
    "w4-head": case("qwen3", {"hidden_size": 128}, of(("lm_head", ct(4, 32)), ("_proj", ct(4, 32))),
                    ct_config("pack-quantized", w(4, 32), ())),
    "w8-odd-asym": case("v2_lite", ODD, every(ct(8, 128, sym=False)), ct_config("pack-quantized", w(8, 128, False))),
    "preset": case("v2_lite", ODD, every(ct(4, 128, sym=False)),
                   {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
                    "config_groups": {"W4A16_ASYM": ["Linear"]}}),
    "preset-fp8": case("v3", ODD, every(fp8("channel", "BF16", static=False)),
                       {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
                        "config_groups": {"FP8_DYNAMIC": ["Linear"]}}),
    "preset-mxfp4": case("v3", EVEN, every(MX_CT),
                         {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "ignore": ["lm_head"],
                          "config_groups": {"MXFP4A16": ["Linear"]}}),
    "mixed-ints": case("v2_lite", ODD, of((".experts.", ct(4, 128)), ("down_proj", ct(8, 64)), ("self_attn", ct(8))),
                       {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
                        "config_groups": {
                            "group_0": {"targets": [r"re:.*\.experts\.\d+\.(gate|up|down)_proj$"], "weights": w(4, 128)},
                            "group_1": {"targets": [r"re:.*down_proj"], "weights": w(8, 64)},
                            "group_2": {"targets": ["re:.*self_attn.*"], "weights": w(8, 0)}}}),
    "mixed-floats": case("v3", EVEN, of((".experts.", NV_CT), ("self_attn", fp8("block", static=False)),
                                        ("_proj", fp8("channel", "BF16", static=False))),
                         {"quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": ["lm_head"],
                          "config_groups": {
                              "group_0": {"targets": [r"re:.*mlp\.experts.*"], "weights": NV_W, "format": "nvfp4-pack-quantized"},
                              "group_1": {"targets": ["re:.*self_attn.*"], "format": "float-quantized",
                                          "weights": w(8, 0, kind="float", strategy="block", block_structure=[128, 128])},
                              "group_2": {"targets": ["Linear"], "format": "float-quantized",
                                          "weights": w(8, 0, kind="float")}}}),
    "block-words": case("v3", EVEN, every(fp8("block", "BF16", static=False)),
                        ct_config("float-quantized", w(8, 0, kind="float", strategy="block", block_structure="128x128"))),
    "block-odd": case("v2_lite", ODD, every(fp8("block", static=False)),
                      ct_config("float-quantized", w(8, 0, kind="float", strategy="block", block_structure=[128, 128]))),
    "fp8-fused": case("llama3", WIDE, every(fp8("channel", "F32", static=False)),
                      {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]}),
    "naive": case("qwen2", WIDE, every(int8()), ct_config("naive-quantized", w(8, 0))),
    "int8-tensor": case("v3", EVEN, every(int8(zero="tensor", scale="tensor")),
                        ct_config("int-quantized", w(8, 0, False, strategy="tensor"))),
    "int8-group": case("v3", EVEN, every(int8(32, "channel")), ct_config("int-quantized", w(8, 32, False))),
    "int8-channel": case("v3", EVEN, every(int8(dtype="F32")), {"quant_method": "w8a8_int8", "is_dynamic": True}),
    "kimi": case("kimi_k2", EVEN, of((".experts.", ct(4, 32))), ct_config("pack-quantized", w(4, 32), EXPERTS_ONLY + ("re:vision_tower.*",)),
                 "inner", shards=3),
    "kimi-outer": case("kimi_k2", EVEN, of((".experts.", ct(4, 32))), ct_config("pack-quantized", w(4, 32), EXPERTS_ONLY), "outer", shards=2),
    "kimi-new-names": case("kimi_k2", EVEN, of((".experts.", ct(4, 32))), ct_config("pack-quantized", w(4, 32), EXPERTS_ONLY),
                           "outer", prefix="model.language_model."),
    "kimi-cache": case("kimi_k2", EVEN, of((".experts.", NV_CT)),
                       ct_config("nvfp4-pack-quantized", NV_W, EXPERTS_ONLY,
                                 kv_cache_scheme={"num_bits": 8, "type": "float", "dynamic": False}), "inner"),
    "modelopt": case("v3", EVEN, of((".experts.", NV_MO), ("o_proj", NV_MO), ("mlp", NV_MO)),
                     {"quant_method": "modelopt", "quant_algo": "NVFP4", "producer": {"name": "modelopt"},
                      "ignore": ["lm_head", "*.self_attn.q_a_proj*", "*.self_attn.q_b_proj*", "*.self_attn.kv*", "*mlp.gate"],
                      "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                          "dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}, "input_activations": {
                          "dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}}}}),
    "modelopt-file": case("glm4_moe_lite", EVEN, of((".experts.", NV_MO)),
                          {"quant_algo": "W4A16_NVFP4", "kv_cache_quant_algo": None, "group_size": 16,
                           "exclude_modules": ["lm_head", "model.layers.0*", "*self_attn*", "*shared_experts*"]}, "file", shards=2),
    "modelopt-mixed": case("v3", EVEN, of((".experts.", NV_MO), ("self_attn", fp8("scalar"))),
                           {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None, "quantized_layers": {
                               "model.layers.0.self_attn.o_proj": {"quant_algo": "FP8"},
                               "model.layers.1.mlp.experts.0.gate_proj": {"quant_algo": "NVFP4", "group_size": 16}}}, "file"),
    "modelopt-fp8": case("qwen3", WIDE, every(fp8("scalar")), {"quant_algo": "FP8", "kv_cache_quant_algo": None,
                                                             "exclude_modules": ["lm_head"]}, "file"),
    "modelopt-rows": case("v3", ODD, every(fp8("vector", static=False)),
                          {"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN", "exclude_modules": ["lm_head"]}),
    "modelopt-pb": case("v3", ODD, every(fp8("pb", static=False)),
                        {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO", "exclude_modules": ["lm_head"]}),
    "plain-fp8": case("v2_lite", ODD, every(fp8("scalar", "BF16")), {"quant_method": "fp8", "activation_scheme": "static",
                                                                  "ignored_layers": ["lm_head"]}),
    "plain-fp8-names": case("v3", ODD, every(fp8("scalar", name="weight_scale_inv", static=False)),
                            {"quant_method": "fp8", "activation_scheme": "dynamic"}),
    "quark": case("kimi_k2", EVEN, of((".experts.", fp4("weight", False, None))),
                  {"quant_method": "quark", "quant_mode": "eager_mode", "exclude": ["re:.*self_attn.*", "lm_head"],
                   "export": {"kv_cache_group": [], "pack_method": "reorder", "weight_format": "real_quantized"},
                   "layer_quant_config": {}, "layer_type_quant_config": {}, "algo_config": None,
                   "global_quant_config": {"bias": None, "input_tensors": {"dtype": "fp4", "group_size": 32},
                                           "weight": {"dtype": "fp4", "group_size": 32, "qscheme": "per_group",
                                                      "scale_format": "e8m0"}}}),
    "w4afp8": case("v3", EVEN, of((".experts.", w4afp8), ("_proj", fp8("block", name="weight_scale_inv", static=False))),
                   {"quant_method": "w4afp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}),
    "awq": case("qwen2", {"hidden_size": 384, "intermediate_size": 512}, every(awq(128)),
                {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm",
                 "modules_to_not_convert": None}),
    "awq-old": case("v2_lite", dict(EVEN, q_lora_rank=None), of((".experts.", awq(64)), ("self_attn", None), ("mlp", awq(64))),
                    {"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": True, "version": "GEMM",
                     "modules_to_not_convert": ["self_attn", "mlp.gate."]}),
    "awq-rows": case("v3", EVEN, every(awq(0)), {"quant_method": "awq", "bits": 4, "group_size": -1, "zero_point": True}),
    "gptq-odd": case("v2_lite", ODD, every(gptq(4, 128)), gptq_config(4, 128)),
    "gptq-odd-act": case("v2_lite", ODD, every(gptq(4, 128, act=True)), gptq_config(4, 128, desc_act=True)),
    "gptq-v2": case("v3", ODD, every(gptq(4, 32, v1=False, act=True, dtype="BF16")),
                    gptq_config(4, 32, desc_act=True, checkpoint_format="gptq_v2", meta={"quantizer": ["gptqmodel:2.0"]})),
    "gptq-8-odd": case("v2_lite", ODD, every(gptq(8, 128, sym=True)), gptq_config(8, 128, sym=True, checkpoint_format="gptq")),
    "gptq-8-act": case("v3", ODD, every(gptq(8, 64, v1=False, act=True)),
                       gptq_config(8, 64, desc_act=True, checkpoint_format="gptq_v2")),
    "gptq-dynamic": case("v2_lite", ODD, of(("self_attn", None), (".experts.", gptq(4, 128)), ("down_proj", gptq(8, 64)),
                                            ("mlp", gptq(4, 128))),
                         gptq_config(4, 128, dynamic={r"-:.*self_attn.*": {}, r"+:.*(?:\.mlp|shared_experts)\.down_proj": {
                             "bits": 8, "group_size": 64}})),
    "gptq-head": case("qwen3", {"hidden_size": 128, "num_key_value_heads": 2, "intermediate_size": 128, "num_attention_heads": 4, "head_dim": 32},
                      of(("lm_head", gptq(4, 32)), ("_proj", gptq(4, 32, with_idx=False))), gptq_config(4, 32, lm_head=True)),
    "round": case("v3", ODD, every(gptq(4, 32, v1=False, sym=True)), round_config("auto_round:gptqmodel")),
    "round-gptq": case("v3", ODD, every(gptq(4, 32, v1=True, with_idx=False)), round_config("auto_round:auto_gptq", sym=False)),
    "round-awq": case("v3", EVEN, every(awq(32)), round_config("auto_round:auto_awq")),
    "round-nvfp4": case("v3", EVEN, every(NV_CT), round_config("auto_round:llm_compressor", group_size=16, data_type="nv_fp")),
    "round-mxfp4": case("v3", EVEN, every(MX_CT), round_config("auto_round:llm_compressor", data_type="mx_fp")),
    "round-extra": case("v2_lite", ODD, of(("self_attn.kv_b", None), ("self_attn", gptq(8, 64, v1=False)), ("_proj", gptq(4, 128, v1=False))),
                        round_config("auto_round", group_size=128, block_name_to_quantize="model.layers", extra_config={
                            ".*self_attn.*": {"bits": 8, "group_size": 64},
                            "model.layers.0.self_attn.kv_b_proj": {"bits": 16, "data_type": "float"},
                            "model.layers.1.self_attn.kv_b_proj": {"bits": 16, "data_type": "float"}})),
    # Experts of a layer in several forms (ON_GPU).
    "experts-apart": case("v3", EVEN, of(("gate_proj", ct(4, 32)), ("up_proj", ct(8, 64, sym=False)), ("down_proj", ct(4, 128))),
                          {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["re:.*self_attn.*", "lm_head"],
                           "config_groups": {
                               "group_0": {"targets": ["re:.*gate_proj"], "weights": w(4, 32)},
                               "group_1": {"targets": ["re:.*up_proj"], "weights": w(8, 64, False)},
                               "group_2": {"targets": ["re:.*down_proj"], "weights": w(4, 128)}}}),
    "experts-plain": case("kimi_k2", EVEN, of((".experts.1.", None), (".experts.", ct(4, 32))),
                          ct_config("pack-quantized", w(4, 32), EXPERTS_ONLY + (r"re:.*\.experts\.1\..*",)), "inner", shards=2),
    "experts-round": case("v2_lite", ODD, of(("experts.2.down_proj", None), ("experts.0.up_proj", gptq(8, 64, v1=False)),
                                             (".experts.", gptq(4, 32, v1=False))),
                          round_config("auto_round", extra_config={
                              ".*self_attn.*": {"bits": 16}, ".*mlp.(gate|up|down)_proj": {"bits": 16}, ".*shared_experts.*": {"bits": 16},
                              "model.layers.1.mlp.experts.0.up_proj": {"bits": 8, "group_size": 64},
                              "model.layers.1.mlp.experts.2.down_proj": {"bits": 16, "data_type": "float"}})),
    "experts-modelopt": case("v3", EVEN, of(("experts.3.down_proj", None), ("experts.0.", fp8("scalar")), ("experts.1.up_proj", fp8("scalar")),
                                            (".experts.", NV_MO)),
                             {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None, "quantized_layers": {
                                 f"model.layers.1.mlp.experts.{j}.{m}_proj": {"quant_algo": "FP8"} if j == 0 or (j, m) == (1, "up") else
                                 {"quant_algo": "NVFP4", "group_size": 16}
                                 for j in range(4) for m in ("gate", "up", "down") if (j, m) != (3, "down")}}, "file"),
    # act order shuffles the groups of some experts only: on a GPU these are floats
    "experts-act": case("v3", ODD, of(("experts.1.", gptq(4, 32, act=True)), ("experts.2.up", gptq(4, 32, act=True)), (".experts.", gptq(4, 32)),
                                      ("_proj", gptq(4, 32))), gptq_config(4, 32, desc_act=True)),
    "stacked": case("v3", EVEN, every(None), {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.embed_tokens", "lm_head"]}, stacked=True),
}
ON_GPU = [name for name in CASES if name.startswith("experts-")] + ["modelopt-mixed", "mixed-ints", "round-extra"]
for family in FAMILIES:
    CASES["w4/" + family] = case(family, {"num_hidden_layers": 2}, every(ct(4, 8, sym=False)), ct_config("pack-quantized", w(4, 8, False)))
    CASES["fp8/" + family] = case(family, {"num_hidden_layers": 2}, every(fp8("channel", "BF16")),
                                  ct_config("float-quantized", w(8, 0, kind="float")), shards=2)
    CASES["nvfp4/" + family] = case(family, {"num_hidden_layers": 2, "hidden_size": 144, "intermediate_size": 160, "moe_intermediate_size": 48}, of(("mlp", NV_MO)), {
        "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["*self_attn*", "lm_head"]})
# For GGUF: rows of whole blocks of 256.
WHOLE = {"num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 64}
PLAIN = {family: case(family, WHOLE, lambda name: None, None, "none") for family in ("llama3", "qwen2", "qwen3")}
PLAIN["minicpm3_short"] = case("minicpm3_short", dict(WHOLE, head_dim=64, num_key_value_heads=4, q_lora_rank=256, kv_lora_rank=256,
                                                     qk_nope_head_dim=48, v_head_dim=64, dim_model_base=256),
                               lambda name: None, None, "none")


def write(folder, tensors, n_shard):
    os.makedirs(folder, exist_ok=True)
    names, index = list(tensors), {}
    for s in range(n_shard):
        part = names[s::n_shard] if n_shard > 1 else names
        file = f"model-{s + 1:05}-of-{n_shard:05}.safetensors" if n_shard > 1 else "model.safetensors"
        head, at = {"__metadata__": {"format": "pt"}}, 0
        for name in part:
            dtype, shape, raw = tensors[name]
            n = SIZE[dtype]
            for d in shape:
                n *= d
            assert n == len(raw), (name, dtype, shape, len(raw))
            head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
            at += n
            index[name] = file
        text = json.dumps(head).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(folder, file), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + b"".join(tensors[n][2] for n in part))
    if n_shard > 1:
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {}, "weight_map": index}, f)


def renamed(x, name):
    if x.get("prefix"):
        return name.replace("model.", x["prefix"], 1) if name.startswith("model.") else name
    return "language_model." + name if x["where"] in ("inner", "outer") else name


def make(name, configs, out):
    x, rng = CASES.get(name) or PLAIN[name], random.Random(name)
    with open(os.path.join(configs, x["base"], "config.json")) as f:
        base = dict(json.load(f), **x["size"])
    quant, plain = {}, {}
    for key, shape in shapes(base).items():
        module = key[:-len(".weight")] if key.endswith(".weight") else ""
        if x.get("stacked") and ".experts." in key:
            if key.endswith(".experts.0.gate_proj.weight"):
                stacked(quant, plain, key[:-len("0.gate_proj.weight")], base["n_routed_experts"], shape[1], shape[0], rng)
            continue
        form = x["rule"](module) if module and len(shape) == 2 else None
        if form:
            tensors, values = form(shape[0], shape[1], rng)
            for suffix, t in tensors.items():
                quant[renamed(x, module + "." + suffix)] = t
            plain[key] = ("F32", shape, pack("F32", sum(values, [])))
            continue
        n = 1
        for d in shape:
            n *= d
        values = [rng.gauss(1 if "norm" in key else 0, 0.1) for _ in range(n)]
        dtype = "F16" if base.get("torch_dtype") == "float16" else "BF16"
        quant[renamed(x, key)] = plain[key] = (dtype, shape, pack(dtype, values))
    full = dict(base)
    if x["where"] in ("config", "inner"):
        full["quantization_config"] = x["config"]
    if x["where"] in ("inner", "outer"):
        full = {"model_type": "kimi_k25", "architectures": ["KimiK25ForConditionalGeneration"], "text_config": full,
                "vision_config": {"depth": 2}, "tie_word_embeddings": False}
        quant["vision_tower.encoder.blocks.0.weight"] = ("BF16", [1], b"\0\0")
    if x["where"] == "outer":
        full["quantization_config"] = x["config"]
    write(os.path.join(out, "q"), quant, x.get("shards", 1))
    write(os.path.join(out, "f"), plain, 1)
    for folder, config in (("q", full), ("f", base)):
        with open(os.path.join(out, folder, "config.json"), "w") as f:
            json.dump(config, f)
    if x["where"] == "file":
        with open(os.path.join(out, "q", "hf_quant_config.json"), "w") as f:
            json.dump({"producer": {"name": "modelopt", "version": "0.39"}, "quantization": x["config"]}, f)


def compare(a, b, limit=1e-4):
    a, b = (array.array("f", open(p, "rb").read()) for p in (a, b))
    assert len(a) == len(b) > 0
    size = max(abs(x) for x in b)
    worst = max(abs(x - y) for x, y in zip(a, b))
    assert size > 0.1 and worst <= float(limit) * size, "logits of up to %g differ by %g" % (size, worst)


def count(folder, plan):
    n = 0
    for file in os.listdir(folder):
        if file.endswith(".safetensors"):
            with open(os.path.join(folder, file), "rb") as f:
                head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            n += sum(t["data_offsets"][1] - t["data_offsets"][0] for name, t in head.items() if name != "__metadata__"
                     and not name.startswith("vision") and not name.endswith(("_shape", "global_scale", "input_scale")))
    with open(plan) as f:
        types = json.load(f)["weights"]["types"]
    got = [t["bytes"] for t in types if t["dtype"] == "checkpoint"]
    assert got and abs(got[0] - n) < 0.01 * n, "plan counts %s bytes, the tensors have %d" % (got, n)


if __name__ == "__main__":
    if sys.argv[1] == "bytes":
        count(*sys.argv[2:])
    elif sys.argv[1] == "list":
        print("\n".join(CASES if len(sys.argv) == 2 else ON_GPU))
    elif sys.argv[1] == "make":
        make(*sys.argv[2:])
    else:
        compare(*sys.argv[2:])
