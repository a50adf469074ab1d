#!/usr/bin/env python3
"""make_gguf.py CONFIG OUT [TYPE] - a GGUF of a DeepSeek-V2 config's shape with random weights, for timings.

Types are those that llama.cpp gives a Q4_K_M file: TYPE (Q4_K) for what has whole blocks of 256 columns, Q6_K for the head
and every second layer's down projections, and where columns are no multiple of 256 Q5_0 and Q8_0 in their place.
"""
import json
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "e2e"))
import _gguf as gg  # noqa: E402

PIECE = 1 << 12  # blocks that are drawn; then they repeat
# where a block's FP16 numbers are, and values that give weights of about 0.02
HALVES = {"Q4_K": ((0, 8e-5), (2, 6e-4)), "Q6_K": ((208, 1.5e-5),), "Q5_0": ((0, 2e-3),), "Q8_0": ((0, 3e-4),),
          "Q5_K": ((0, 4e-5), (2, 6e-4)), "Q3_K": ((108, 4e-4),), "Q2_K": ((80, 1.2e-3), (82, 1.8e-3))}


class Repeated:
    """n bytes: one piece again and again."""

    def __init__(self, piece, n):
        self.piece, self.n = piece, n

    def __len__(self):
        return self.n

    def write(self, f):
        whole, rest = divmod(self.n, len(self.piece))
        for _ in range(whole):
            f.write(self.piece)
        f.write(memoryview(self.piece)[:rest])


def piece_of(kind, rng):
    if kind == "F32":
        return struct.pack("<1024f", *(rng.gauss(0, 0.02) for _ in range(1024))) * 64
    size = gg.TYPES[kind][2]
    b = bytearray(rng.randbytes(size * PIECE))
    for i in range(0, len(b), size):
        for at, v in HALVES[kind]:
            struct.pack_into("<e", b, i + at, v)
    return bytes(b) * max(1, (1 << 22) // len(b))


def main(config, out, kind="Q4_K"):
    with open(config, encoding="utf-8") as f:
        c = json.load(f)
    rng, pieces, g = random.Random(1), {}, gg.Gguf()
    nope, rope, v_dim, lora, heads = (c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"],
                                      c["num_attention_heads"])
    hidden, n_layer, experts, moe = (c["hidden_size"], c["num_hidden_layers"], c["n_routed_experts"],
                                     c["moe_intermediate_size"])
    g.add("general.architecture", gg.STR, "deepseek2")
    for key, k, v in (
            ("block_count", gg.U32, n_layer), ("context_length", gg.U32, c["max_position_embeddings"]),
            ("embedding_length", gg.U32, hidden), ("feed_forward_length", gg.U32, c["intermediate_size"]),
            ("vocab_size", gg.U32, c["vocab_size"]), ("attention.head_count", gg.U32, heads),
            ("attention.head_count_kv", gg.U32, 1), ("attention.layer_norm_rms_epsilon", gg.F32, c["rms_norm_eps"]),
            ("attention.kv_lora_rank", gg.U32, lora), ("attention.key_length", gg.U32, lora + rope),
            ("attention.value_length", gg.U32, lora), ("attention.key_length_mla", gg.U32, nope + rope),
            ("attention.value_length_mla", gg.U32, v_dim), ("expert_count", gg.U32, experts),
            ("expert_used_count", gg.U32, c["num_experts_per_tok"]), ("expert_shared_count", gg.U32, c["n_shared_experts"]),
            ("expert_feed_forward_length", gg.U32, moe), ("expert_weights_scale", gg.F32, c["routed_scaling_factor"]),
            ("expert_weights_norm", gg.BOOL, c["norm_topk_prob"]), ("expert_gating_func", gg.U32, 1),
            ("expert_group_count", gg.U32, 1), ("expert_group_used_count", gg.U32, 1),
            ("leading_dense_block_count", gg.U32, c["first_k_dense_replace"]), ("rope.dimension_count", gg.U32, rope),
            ("rope.freq_base", gg.F32, c["rope_theta"])):
        g.add("deepseek2." + key, k, v)
    g.add("tokenizer.ggml.model", gg.STR, "none")

    def put(name, ne, want=kind):
        if want != "F32" and ne[0] % 256:
            want = "Q8_0" if want == "Q6_K" else "Q5_0"
        _, block, size = gg.TYPES[want]
        n = size * ne[0] // block
        for d in ne[1:]:
            n *= d
        if want not in pieces:
            pieces[want] = piece_of(want, rng)
        g.tensor(name, want, list(ne), Repeated(pieces[want], n))

    def norm(name, n):
        g.tensor(name, "F32", [n], Repeated(struct.pack("<f", 1.0), 4 * n))

    put("token_embd.weight", [hidden, c["vocab_size"]])
    put("output.weight", [hidden, c["vocab_size"]], "Q6_K")
    norm("output_norm.weight", hidden)
    for i in range(n_layer):
        b, down = f"blk.{i}.", "Q6_K" if i % 2 == 0 else kind
        norm(b + "attn_norm.weight", hidden)
        norm(b + "ffn_norm.weight", hidden)
        norm(b + "attn_kv_a_norm.weight", lora)
        put(b + "attn_q.weight", [hidden, heads * (nope + rope)])
        put(b + "attn_kv_a_mqa.weight", [hidden, lora + rope])
        put(b + "attn_k_b.weight", [nope, lora, heads])
        put(b + "attn_v_b.weight", [lora, v_dim, heads])
        put(b + "attn_output.weight", [heads * v_dim, hidden])
        if i < c["first_k_dense_replace"]:
            wide = c["intermediate_size"]
            put(b + "ffn_gate.weight", [hidden, wide])
            put(b + "ffn_up.weight", [hidden, wide])
            put(b + "ffn_down.weight", [wide, hidden], down)
            continue
        shared = moe * c["n_shared_experts"]
        put(b + "ffn_gate_inp.weight", [hidden, experts], "F32")
        put(b + "ffn_gate_exps.weight", [hidden, moe, experts])
        put(b + "ffn_up_exps.weight", [hidden, moe, experts])
        put(b + "ffn_down_exps.weight", [moe, hidden, experts], down)
        put(b + "ffn_gate_shexp.weight", [hidden, shared])
        put(b + "ffn_up_shexp.weight", [hidden, shared])
        put(b + "ffn_down_shexp.weight", [shared, hidden], down)
    with open(out, "wb") as f:
        f.write(g.head())
        for _, _, _, data in g.tensors:
            data.write(f)
            f.write(b"\0" * (-len(data) % g.alignment))


main(*sys.argv[1:])
