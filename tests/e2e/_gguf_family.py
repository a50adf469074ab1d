"""_gguf_family.py MODEL_DIR OUT.gguf [F32]: a llama, qwen2, qwen3 or minicpm3 folder as a GGUF, as it is or in F32.

Source of names and keys: conversion/ of llama.cpp.
"""
import json
import math
import os
import struct
import sys

from _gguf import F32, STR, U32, Folder, Gguf, to_f32

LAYER = (("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm"), ("attn_q", "self_attn.q_proj"),
         ("attn_k", "self_attn.k_proj"), ("attn_v", "self_attn.v_proj"), ("attn_output", "self_attn.o_proj"),
         ("attn_q_norm", "self_attn.q_norm"), ("attn_k_norm", "self_attn.k_norm"), ("attn_q_a", "self_attn.q_a_proj"),
         ("attn_q_a_norm", "self_attn.q_a_layernorm"), ("attn_q_b", "self_attn.q_b_proj"),
         ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"), ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
         ("attn_kv_b", "self_attn.kv_b_proj"), ("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"),
         ("ffn_down", "mlp.down_proj"))


def pairs(data, n_head):
    """Rows of each head: (i, i + d/2) beside each other."""
    rows = len(data) // n_head
    out = b""
    for h in range(n_head):
        head = data[h * rows:(h + 1) * rows]
        half = len(head) // 2
        for i in range(half):
            out += head[i] + head[half + i]
    return out


def factors(c, scaling):
    """What divides the frequencies of Llama 3.1."""
    d, out = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"], []
    theta = c.get("rope_theta") or scaling["rope_theta"]
    low, high, old = (scaling[k] for k in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings"))
    for i in range(0, d, 2):
        wave = 2 * math.pi * theta ** (i / d)
        smooth = (old / wave - low) / (high - low)
        out.append(1 if wave < old / high else scaling["factor"] if wave > old / low else
                   1 / ((1 - smooth) / scaling["factor"] + smooth))
    return out


def main(folder, out, kind=None):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        c = json.load(f)
    arch, t, g = c["model_type"], Folder(folder).t, Gguf()
    scaling = c.get("rope_scaling") or c.get("rope_parameters") or {}
    rope = scaling.get("rope_type", scaling.get("type", "default"))
    heads, mla = c["num_attention_heads"], "kv_lora_rank" in c
    head = c["qk_nope_head_dim"] + c["qk_rope_head_dim"] if mla else c.get("head_dim") or c["hidden_size"] // heads
    g.add("general.architecture", STR, arch)
    keys = [("block_count", U32, c["num_hidden_layers"]), ("context_length", U32, c["max_position_embeddings"]),
            ("embedding_length", U32, c["hidden_size"]), ("feed_forward_length", U32, c["intermediate_size"]),
            ("vocab_size", U32, c["vocab_size"]), ("attention.head_count", U32, heads),
            ("attention.head_count_kv", U32, c.get("num_key_value_heads", heads)),
            ("attention.layer_norm_rms_epsilon", F32, c["rms_norm_eps"]), ("attention.key_length", U32, head),
            ("rope.dimension_count", U32, c["qk_rope_head_dim"] if mla else head),
            ("rope.freq_base", F32, c.get("rope_theta") or scaling.get("rope_theta", 10000.0))]
    if mla:
        keys += [("attention.q_lora_rank", U32, c["q_lora_rank"]), ("attention.kv_lora_rank", U32, c["kv_lora_rank"])]
    else:
        keys.append(("attention.value_length", U32, head))
    if rope == "yarn":
        keys += [("rope.scaling.type", STR, "yarn"), ("rope.scaling.factor", F32, scaling["factor"]),
                 ("rope.scaling.original_context_length", U32, scaling["original_max_position_embeddings"])]
    for key, k, v in keys:
        g.add(f"{arch}.{key}", k, v)
    g.add("tokenizer.ggml.model", STR, "none")

    def put(name, hf, n_head=0):
        if hf not in t:
            return
        dtype, shape, data = t[hf]
        if n_head and arch == "llama":
            size = len(data) // shape[0]
            data = pairs([data[i:i + size] for i in range(0, len(data), size)], n_head)
        if kind == "F32" or len(shape) == 1:
            dtype, data = "F32", to_f32(dtype, data)
        g.tensor(name, dtype, shape[::-1], data)

    put("token_embd.weight", "model.embed_tokens.weight")
    put("output_norm.weight", "model.norm.weight")
    put("output.weight", "lm_head.weight")
    tables = {}
    if rope == "llama3":
        tables["rope_freqs.weight"] = factors(c, scaling)
    if rope == "longrope":
        tables = {"rope_factors_long.weight": scaling["long_factor"], "rope_factors_short.weight": scaling["short_factor"]}
    for name, values in tables.items():
        g.tensor(name, "F32", [len(values)], struct.pack(f"<{len(values)}f", *values))
    for i in range(c["num_hidden_layers"]):
        for name, theirs in LAYER:
            n_head = {"attn_q": heads, "attn_k": c.get("num_key_value_heads", heads)}.get(name, 0)
            for end in ("weight", "bias"):
                put(f"blk.{i}.{name}.{end}", f"model.layers.{i}.{theirs}.{end}", n_head)
    g.write(out)


main(*sys.argv[1:])
