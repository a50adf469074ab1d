#!/usr/bin/env python3
"""make_model.py - one set of random weights, written as GGUF and as a Hugging Face folder.

    make_model.py --shape thin4 --gguf thin4.gguf --hf thin4-hf [--type q8_0|bf16] [--form joint|split] [--seed N]

Each matrix is Gaussian (standard deviation 0.02), rounded to BF16, and drawn from a generator that
is seeded by its name: both files hold the same numbers, in whatever order they are written.  The
GGUF side has them in BF16 or in Q8_0 (blocks of 32 signed bytes and an FP16 scale); nibble reads
BF16 and makes its own 8 bits at load (--weight-dtype int8).  The joint form of a GGUF has one matrix
for keys and values (attn_kv_b), the split form one for each with the keys' transposed (attn_k_b,
attn_v_b), which makes llama.cpp cache latents.

Shapes are DeepSeek-V2-Lite's (16 heads, kv_lora 512, rope 64, hidden 2048), with fewer layers:
  thin4   4 dense layers with a feed-forward of 256: attention is nearly all of the time
  ds4l    1 dense and 3 MoE layers (64 experts, 6 of them, 2 shared): tokens per second
  h128    1 dense layer with 128 heads, V3's and R1's number
  v2lite  27 layers, 102,400 tokens of vocabulary (16 GB in Q8_0)
Needs numpy.
"""
import argparse
import json
import os
import struct
import sys
import zlib

import numpy as np

STD = 0.02
SHAPES = {
    "thin4": dict(layers=4, dense=4, inter=256, heads=16, vocab=4096, q_lora=1536),
    "ds4l": dict(layers=4, dense=1, inter=10944, heads=16, vocab=4096, q_lora=1536),
    "h128": dict(layers=1, dense=1, inter=256, heads=128, vocab=4096, q_lora=1536),
    # A reader of GGUF that knows 27 layers as "Lite" expects a plain query projection there, and
    # a low-rank one at any other depth.
    "v2lite": dict(layers=27, dense=1, inter=10944, heads=16, vocab=102400, q_lora=0),
}
HIDDEN, KV_LORA, ROPE, NOPE, D_V = 2048, 512, 64, 128, 128
MOE_INTER, EXPERTS, TOP_K, SHARED = 1408, 64, 6, 2
EPS, THETA, CONTEXT = 1e-6, 10000.0, 163840


def tensors(s):
    """[(name in the folder, name in the GGUF, shape, kind)]; kind: w weight, n norm, r router.

    Experts of a layer are one GGUF tensor: their rows follow each other under one name."""
    out = [("model.embed_tokens.weight", "token_embd.weight", (s["vocab"], HIDDEN), "w")]
    for i in range(s["layers"]):
        p, g = f"model.layers.{i}.", f"blk.{i}."
        qk = s["heads"] * (NOPE + ROPE)
        out += [(p + "input_layernorm.weight", g + "attn_norm.weight", (HIDDEN,), "n")]
        if s["q_lora"]:
            out += [(p + "self_attn.q_a_proj.weight", g + "attn_q_a.weight", (s["q_lora"], HIDDEN), "w"),
                    (p + "self_attn.q_a_layernorm.weight", g + "attn_q_a_norm.weight", (s["q_lora"],), "n"),
                    (p + "self_attn.q_b_proj.weight", g + "attn_q_b.weight", (qk, s["q_lora"]), "w")]
        else:
            out += [(p + "self_attn.q_proj.weight", g + "attn_q.weight", (qk, HIDDEN), "w")]
        out += [(p + "self_attn.kv_a_proj_with_mqa.weight", g + "attn_kv_a_mqa.weight",
                 (KV_LORA + ROPE, HIDDEN), "w"),
                (p + "self_attn.kv_a_layernorm.weight", g + "attn_kv_a_norm.weight", (KV_LORA,), "n"),
                (p + "self_attn.kv_b_proj.weight", g + "attn_kv_b.weight",
                 (s["heads"] * (NOPE + D_V), KV_LORA), "w"),
                (p + "self_attn.o_proj.weight", g + "attn_output.weight", (HIDDEN, s["heads"] * D_V), "w"),
                (p + "post_attention_layernorm.weight", g + "ffn_norm.weight", (HIDDEN,), "n")]
        if i < s["dense"]:
            for a, b, shape in (("gate", "gate", (s["inter"], HIDDEN)), ("up", "up", (s["inter"], HIDDEN)),
                                ("down", "down", (HIDDEN, s["inter"]))):
                out.append((f"{p}mlp.{a}_proj.weight", f"{g}ffn_{b}.weight", shape, "w"))
            continue
        out.append((p + "mlp.gate.weight", g + "ffn_gate_inp.weight", (EXPERTS, HIDDEN), "r"))
        for a in ("gate", "up", "down"):
            n = (HIDDEN, MOE_INTER) if a == "down" else (MOE_INTER, HIDDEN)
            for e in range(EXPERTS):
                out.append((f"{p}mlp.experts.{e}.{a}_proj.weight", f"{g}ffn_{a}_exps.weight", n, "w"))
            m = MOE_INTER * SHARED
            out.append((f"{p}mlp.shared_experts.{a}_proj.weight", f"{g}ffn_{a}_shexp.weight",
                        (HIDDEN, m) if a == "down" else (m, HIDDEN), "w"))
    return out + [("model.norm.weight", "output_norm.weight", (HIDDEN,), "n"),
                  ("lm_head.weight", "output.weight", (s["vocab"], HIDDEN), "w")]


def bf16_bits(x):
    """Float32 to BF16, ties to even, as uint16."""
    u = x.view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def draw(seed, name, shape, kind):
    """BF16 bits of a tensor."""
    if kind == "n":
        return np.full(shape, 0x3F80, np.uint16)
    rng = np.random.Generator(np.random.SFC64([seed, zlib.crc32(name.encode())]))
    return bf16_bits(rng.standard_normal(shape, np.float32) * np.float32(STD))


def floats(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def q8_0(x):
    """Blocks of 32: FP16 scale = max|x| / 127, then round(x / scale)."""
    b = x.reshape(-1, 32)
    d = np.abs(b).max(axis=1) / np.float32(127)
    inv = np.divide(1, d, out=np.zeros_like(d), where=d > 0)
    out = np.empty((b.shape[0], 34), np.uint8)
    out[:, :2] = d.astype(np.float16).view(np.uint8).reshape(-1, 2)
    out[:, 2:] = np.rint(b * inv[:, None]).astype(np.int8).view(np.uint8)
    return out


# ---- Hugging Face -----------------------------------------------------------------------------


def write_hf(folder, s, seed, todo):
    os.makedirs(folder, exist_ok=True)
    config = {
        "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": s["inter"], "num_hidden_layers": s["layers"],
        "num_attention_heads": s["heads"], "num_key_value_heads": s["heads"],
        "q_lora_rank": s["q_lora"] or None, "kv_lora_rank": KV_LORA, "qk_rope_head_dim": ROPE,
        "qk_nope_head_dim": NOPE, "v_head_dim": D_V, "vocab_size": s["vocab"], "rms_norm_eps": EPS,
        "rope_theta": THETA, "rope_scaling": None, "max_position_embeddings": CONTEXT,
        "first_k_dense_replace": s["dense"], "moe_layer_freq": 1, "moe_intermediate_size": MOE_INTER,
        "n_routed_experts": EXPERTS if s["dense"] < s["layers"] else None,
        "n_shared_experts": SHARED if s["dense"] < s["layers"] else None,
        "num_experts_per_tok": TOP_K if s["dense"] < s["layers"] else None,
        "n_group": 1, "topk_group": 1, "topk_method": "greedy", "scoring_func": "softmax",
        "norm_topk_prob": False, "routed_scaling_factor": 1.0, "attention_bias": False,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1,
    }
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    header, at = {}, 0
    for name, _, shape, _ in todo:
        n = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, _, shape, kind in todo:
            f.write(draw(seed, name, shape, kind).tobytes())


# ---- GGUF ---------------------------------------------------------------------------------------

F32, Q8_0, BF16 = 0, 8, 30
ALIGN = 32


def gguf_string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def gguf_value(key, v):
    if isinstance(v, bool):
        return gguf_string(key) + struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return gguf_string(key) + struct.pack("<II", 4, v)
    if isinstance(v, float):
        return gguf_string(key) + struct.pack("<If", 6, v)
    return gguf_string(key) + struct.pack("<I", 8) + gguf_string(v)


def metadata(s, split):
    moe = s["dense"] < s["layers"]
    a = "deepseek2."
    m = {"general.architecture": "deepseek2", "general.name": "random", a + "block_count": s["layers"],
         a + "context_length": CONTEXT, a + "embedding_length": HIDDEN, a + "feed_forward_length": s["inter"],
         a + "attention.head_count": s["heads"], a + "attention.head_count_kv": s["heads"],
         a + "attention.key_length": NOPE + ROPE, a + "attention.value_length": D_V,
         a + "attention.layer_norm_rms_epsilon": EPS, a + "rope.freq_base": THETA,
         a + "rope.dimension_count": ROPE, a + "attention.kv_lora_rank": KV_LORA,
         a + "vocab_size": s["vocab"], a + "leading_dense_block_count": s["dense"],
         a + "expert_feed_forward_length": MOE_INTER, a + "expert_count": EXPERTS if moe else 0,
         a + "expert_used_count": TOP_K if moe else 0, a + "expert_shared_count": SHARED if moe else 0,
         a + "expert_weights_scale": 1.0, a + "expert_weights_norm": False, a + "expert_gating_func": 1,
         "tokenizer.ggml.model": "no_vocab"}
    if s["q_lora"]:
        m[a + "attention.q_lora_rank"] = s["q_lora"]
    if split:
        m |= {a + "attention.head_count_kv": 1, a + "attention.key_length": KV_LORA + ROPE,
              a + "attention.value_length": KV_LORA, a + "attention.key_length_mla": NOPE + ROPE,
              a + "attention.value_length_mla": D_V}
    return m


def gguf_type(kind, wanted):
    return F32 if kind in "nr" else wanted


def gguf_bytes(t, n):
    return n * 4 if t == F32 else n * 2 if t == BF16 else n // 32 * 34


def whole(bits, s):
    return bits


def keys(bits, s):
    """Rows of the latent, columns of the key, per head."""
    return bits.reshape(s["heads"], NOPE + D_V, KV_LORA)[:, :NOPE].transpose(0, 2, 1)


def values(bits, s):
    return bits.reshape(s["heads"], NOPE + D_V, KV_LORA)[:, NOPE:]


def gguf_groups(s, todo, split):
    """[(name, dimensions with the fastest first, kind, [names in the folder], function of the bits)]"""
    groups = []
    for name, gname, shape, kind in todo:
        if groups and groups[-1][0] == gname:
            groups[-1][3].append(name)
        elif split and gname.endswith("attn_kv_b.weight"):
            groups += [(gname.replace("_kv_b", "_k_b"), [NOPE, KV_LORA, s["heads"]], kind, [name], keys),
                       (gname.replace("_kv_b", "_v_b"), [KV_LORA, D_V, s["heads"]], kind, [name], values)]
        else:
            groups.append((gname, list(shape[::-1]), kind, [name], whole))
    return [(g, d + [len(n)] if "_exps" in g else d, k, n, f) for g, d, k, n, f in groups]


def write_gguf(path, s, seed, todo, wanted, split):
    groups = gguf_groups(s, todo, split)
    meta = metadata(s, split)
    head = struct.pack("<IIQQ", 0x46554747, 3, len(groups), len(meta))
    head += b"".join(gguf_value(k, v) for k, v in meta.items())
    at = 0
    for gname, dims, kind, _, _ in groups:
        t = gguf_type(kind, wanted)
        head += gguf_string(gname) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, t, at)
        at += gguf_bytes(t, int(np.prod(dims)))
        at += -at % ALIGN
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGN))
        start = f.tell()
        shapes = {name: shape for name, _, shape, _ in todo}
        for _, _, kind, names, part in groups:
            f.write(b"\0" * (-(f.tell() - start) % ALIGN))
            for name in names:
                bits, t = part(draw(seed, name, shapes[name], kind), s), gguf_type(kind, wanted)
                data = bits if t == BF16 else floats(bits) if t == F32 else q8_0(floats(bits))
                f.write(data.tobytes())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", choices=sorted(SHAPES), required=True)
    p.add_argument("--layers", type=int, help="override the number of layers (not 26 or 27)")
    p.add_argument("--gguf", help="file to write")
    p.add_argument("--hf", help="folder to write")
    p.add_argument("--type", choices=("q8_0", "bf16"), default="q8_0", help="weights of the GGUF")
    p.add_argument("--form", choices=("joint", "split"), default="joint", help="keys and values of the GGUF")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    if not a.gguf and not a.hf:
        p.error("nothing to write: --gguf or --hf")
    s = dict(SHAPES[a.shape])
    if a.layers:
        if a.layers < 1 or (a.layers in (26, 27)) != (s["q_lora"] == 0):
            p.error(f"--layers {a.layers}: this shape has another form of queries there")
        s["dense"] = a.layers if s["dense"] == s["layers"] else min(s["dense"], a.layers)
        s["layers"] = a.layers
    todo = tensors(s)
    if a.hf:
        write_hf(a.hf, s, a.seed, todo)
    if a.gguf:
        write_gguf(a.gguf, s, a.seed, todo, Q8_0 if a.type == "q8_0" else BF16, a.form == "split")
    sys.stdout.write(f"{a.shape}: {sum(int(np.prod(t[2])) for t in todo) / 1e6:.1f} M parameters\n")


main()
