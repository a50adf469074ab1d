#!/usr/bin/env python3
"""Sparse attention in float64, with numpy: what the definition gives for a checkpoint.

    _dsa_reference.py CHECKPOINT_DIR TOKENS.json OUT_DIR      logits [tokens][vocab] as logits.f64, choices as choices.json
    _dsa_reference.py --make FAMILY CHECKPOINT_DIR [JSON]     a tiny random checkpoint: deepseek_v32, glm5 or glm52,
                                                              with other values in its config.json
    _dsa_reference.py --keys CHECKPOINT_DIR TOKENS.json       how many choices stay when the indexer's keys are rounded, and the
                                                              divergence of the logits

Written from DeepSeek's inference code and the papers' formulas; F32 and BF16 weights, one file.  The keys of the indexer
are not quantised: with an f32 cache nibble's are not, either."""
import json
import math
import os
import struct
import sys

import numpy as np

ONES, RANDOM = "ones", "random"


# ---- checkpoints ----------------------------------------------------------------------------------------------------

def read(d):
    cfg = json.load(open(os.path.join(d, "config.json")))
    raw = open(os.path.join(d, "model.safetensors"), "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    out = {}
    for name, t in head.items():
        if name == "__metadata__":
            continue
        b, e = t["data_offsets"]
        data = raw[8 + n + b:8 + n + e]
        if t["dtype"] == "F32":
            x = np.frombuffer(data, "<f4").astype(np.float64)
        else:
            assert t["dtype"] == "BF16", t["dtype"]
            x = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        out[name] = x.reshape(t["shape"])
    return cfg, out


def write(d, cfg, tensors):
    os.makedirs(d, exist_ok=True)
    head, at, data = {}, 0, []
    for name in sorted(tensors):
        x = np.ascontiguousarray(tensors[name], np.float32)
        head[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
        data.append(x.tobytes())
    text = json.dumps(head).encode()
    with open(os.path.join(d, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))
    with open(os.path.join(d, "config.json"), "w") as f:
        json.dump(cfg, f, indent=1)


def shared_layers(cfg):
    n = cfg["num_hidden_layers"]
    if cfg.get("indexer_types"):
        return [t == "shared" for t in cfg["indexer_types"]]
    if cfg.get("index_topk_pattern"):
        return [t == "S" for t in cfg["index_topk_pattern"]]
    freq, off = cfg.get("index_topk_freq", 1), cfg.get("index_skip_topk_offset", 2)
    return [max(i - off + 1, 0) % max(freq, 1) != 0 for i in range(n)]


def make(family, d, other=None):
    base = {"vocab_size": 96, "hidden_size": 40, "intermediate_size": 64, "num_attention_heads": 3, "num_key_value_heads": 3,
            "q_lora_rank": 28, "kv_lora_rank": 32, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10,
            "n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 16,
            "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5, "hidden_act": "silu",
            "index_n_heads": 10, "index_head_dim": 16, "index_topk": 20, "dtype": "float32", "max_position_embeddings": 1024,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "attention_bias": False, "scoring_func": "sigmoid",
            "topk_method": "noaux_tc"}
    if family == "deepseek_v32":
        cfg = {**base, "model_type": "deepseek_v32", "num_hidden_layers": 3, "n_group": 2, "topk_group": 1,
               "rope_theta": 10000, "index_head_dim": 24,
               "rope_scaling": {"type": "yarn", "factor": 8, "original_max_position_embeddings": 128, "beta_fast": 32,
                                "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}}
    elif family == "glm5":
        cfg = {**base, "model_type": "glm_moe_dsa", "num_hidden_layers": 3, "n_group": 1, "topk_group": 1,
               "rope_parameters": {"rope_theta": 100000, "rope_type": "default"}}
    else:
        cfg = {**base, "model_type": "glm_moe_dsa", "num_hidden_layers": 6, "n_group": 1, "topk_group": 1, "head_dim": 192,
               "index_topk_freq": 3, "index_skip_topk_offset": 2, "index_topk_pattern": None,
               "rope_parameters": {"rope_theta": 100000, "rope_type": "default"}}
    cfg.update(other or {})
    g = np.random.default_rng(7)
    h, H = cfg["hidden_size"], cfg["num_attention_heads"]
    qa, kv, n, r, v = (cfg[k] for k in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    ih, idim = cfg["index_n_heads"], cfg["index_head_dim"]
    t = {}

    def mat(name, rows, cols, gain=1.0):
        t[name] = g.standard_normal((rows, cols)) * gain / math.sqrt(cols)

    def norm(name, size):
        t[name] = 1 + 0.2 * g.standard_normal(size)

    mat("model.embed_tokens.weight", cfg["vocab_size"], h, math.sqrt(h))
    if not cfg["tie_word_embeddings"]:
        mat("lm_head.weight", cfg["vocab_size"], h, 1.5)
    norm("model.norm.weight", h)
    for i, shared in enumerate(shared_layers(cfg)):
        p = f"model.layers.{i}."
        norm(p + "input_layernorm.weight", h)
        norm(p + "post_attention_layernorm.weight", h)
        a = p + "self_attn."
        mat(a + "q_a_proj.weight", qa, h)
        norm(a + "q_a_layernorm.weight", qa)
        mat(a + "q_b_proj.weight", H * (n + r), qa, 2.0)
        mat(a + "kv_a_proj_with_mqa.weight", kv + r, h)
        norm(a + "kv_a_layernorm.weight", kv)
        mat(a + "kv_b_proj.weight", H * (n + v), kv, 1.5)
        mat(a + "o_proj.weight", h, H * v, 1.5)
        if not shared:
            mat(a + "indexer.wq_b.weight", ih * idim, qa, 1.3)
            mat(a + "indexer.wk.weight", idim, h)
            norm(a + "indexer.k_norm.weight", idim)
            t[a + "indexer.k_norm.bias"] = 0.3 * g.standard_normal(idim)
            mat(a + "indexer.weights_proj.weight", ih, h)
        m = p + "mlp."
        if i < cfg["first_k_dense_replace"]:
            mats = [(m, cfg["intermediate_size"])]
        else:
            mat(m + "gate.weight", cfg["n_routed_experts"], h, 1.5)
            t[m + "gate.e_score_correction_bias"] = 0.3 * g.standard_normal(cfg["n_routed_experts"])
            mats = [(f"{m}experts.{e}.", cfg["moe_intermediate_size"]) for e in range(cfg["n_routed_experts"])]
            mats.append((m + "shared_experts.", cfg["moe_intermediate_size"]))
        for name, inter in mats:
            mat(name + "gate_proj.weight", inter, h)
            mat(name + "up_proj.weight", inter, h)
            mat(name + "down_proj.weight", h, inter, 0.8)
    write(d, cfg, {k: x.astype(np.float32) for k, x in t.items()})


# ---- the model ------------------------------------------------------------------------------------------------------

def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def frequencies(cfg):
    """inv_freq, factor on cosines and sines, factor on the softmax scale."""
    s = cfg.get("rope_scaling") or cfg.get("rope_parameters") or {}
    theta = s.get("rope_theta", cfg.get("rope_theta", 10000.0))
    r = cfg["qk_rope_head_dim"]
    f = theta ** (-np.arange(0, r, 2) / r)
    if s.get("rope_type", s.get("type", "default")) == "default":
        return f, 1.0, 1.0
    orig, factor = s["original_max_position_embeddings"], s["factor"]

    def at(b):
        return r * math.log(orig / (b * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(at(s["beta_fast"])), 0), min(math.ceil(at(s["beta_slow"])), r - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(r // 2) - low) / (high - low), 0, 1)
    ms = lambda m: 1 + 0.1 * m * math.log(factor)
    return f * (1 - ramp) + f / factor * ramp, ms(s["mscale"]) / ms(s["mscale_all_dim"]), ms(s["mscale_all_dim"]) ** 2


def rotate(x, pos, f, factor, interleaved):
    """x [tokens, ..., r]."""
    ang = (f.astype(np.float32) * pos[:, None].astype(np.float32)).astype(np.float64)
    shape = (len(pos),) + (1,) * (x.ndim - 2) + (len(f),)
    c, s = (np.cos(ang) * factor).reshape(shape), (np.sin(ang) * factor).reshape(shape)
    out = np.empty_like(x)
    half = len(f)
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    y, z = a * c - b * s, a * s + b * c
    if interleaved:
        out[..., 0::2], out[..., 1::2] = y, z
    else:
        out[..., :half], out[..., half:] = y, z
    return out


def hadamard(x):
    n = x.shape[-1]
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return x @ h * n ** -0.5


def to_grid(x, grid):
    """The nearest of a grid's magnitudes."""
    at = np.clip(np.searchsorted((grid[1:] + grid[:-1]) / 2, np.abs(x)), 0, len(grid) - 1)
    return np.sign(x) * grid[at]


E4M3 = np.array(sorted({(m if e == 0 else 8 + m) * 2.0 ** (max(e, 1) - 10) for e in range(16) for m in range(8)
                        if (e, m) != (15, 7)}))
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6])


def rounded(key, form):
    """Keys [tokens, d] as a page would hold them: a power of two per token, of mxfp4 per 32 values; nvfp4: and an E4M3
    scale per 16."""
    top = np.abs(key).max(-1, keepdims=True)
    if form == "e4m3":
        s = 2.0 ** np.ceil(np.log2(top / 448))
        return to_grid(key / s, E4M3) * s
    if form == "int8":
        s = 2.0 ** np.ceil(np.log2(top / 127))
        return np.round(key / s) * s
    if form == "mxfp4":  # 68 bytes of 128 values
        y = key.reshape(len(key), -1, min(32, key.shape[-1]))
        s = 2.0 ** np.ceil(np.log2(np.maximum(np.abs(y).max(-1, keepdims=True), 1e-30) / 6))
        return (to_grid(y / s, E2M1) * s).reshape(key.shape)
    s = 2.0 ** np.ceil(np.log2(top / 1536))
    y = (key / s).reshape(len(key), -1, 16)
    b = to_grid(np.abs(y).max(-1, keepdims=True) / 6, E4M3)
    return (to_grid(y / np.where(b > 0, b, 1), E2M1) * b).reshape(key.shape) * s


def scores_of(q, key, w):
    d = key.shape[-1]
    return np.einsum("sh,sht->st", w, np.maximum(np.einsum("shd,td->sht", q, key) * d ** -0.5, 0))


def largest(score, k):
    seen = np.zeros(score.shape, bool)
    for s in range(len(score)):
        order = np.lexsort((np.arange(s + 1), -score[s, :s + 1]))
        seen[s, order[:k]] = True
    return seen


FORMS = ("e4m3", "int8", "nvfp4", "mxfp4")
KEPT = {}  # form -> [choices that stay, choices]


def count_kept(q, key, w, k, seen):
    for turn in ("", " after Hadamard"):
        for form in FORMS:
            again = hadamard(key) if turn else key
            got = largest(scores_of(hadamard(q) if turn else q, rounded(again, form), w), k)[k:]
            n = KEPT.setdefault(form + turn, [0, 0])
            n[0] += int((got & seen[k:]).sum())
            n[1] += int(seen[k:].sum())


def choose(cfg, t, a, x, qa, pos, rope):
    """[tokens][tokens]: what each row attends to; and the scores."""
    f, factor = rope
    H, d, r, k = cfg["index_n_heads"], cfg["index_head_dim"], cfg["qk_rope_head_dim"], cfg["index_topk"]
    pairs = cfg.get("indexer_rope_interleave", cfg["model_type"] == "glm_moe_dsa")
    q = (qa @ t[a + "indexer.wq_b.weight"].T).reshape(len(x), H, d)
    key = x @ t[a + "indexer.wk.weight"].T
    key = (key - key.mean(-1, keepdims=True)) / np.sqrt(key.var(-1, keepdims=True) + 1e-6)
    key = key * t[a + "indexer.k_norm.weight"] + t[a + "indexer.k_norm.bias"]
    q = np.concatenate([rotate(q[..., :r], pos, f, factor, pairs), q[..., r:]], -1)
    key = np.concatenate([rotate(key[..., :r], pos, f, factor, pairs), key[..., r:]], -1)
    w = x @ t[a + "indexer.weights_proj.weight"].T * H ** -0.5
    score = scores_of(q, key, w)
    if cfg.get("key_form"):
        score = scores_of(hadamard(q), rounded(hadamard(key), cfg["key_form"]), w)
    seen = largest(score, k)
    if cfg.get("count_kept") and d & (d - 1) == 0:
        count_kept(q, key, w, k, seen)
    return seen, score


def attend(cfg, t, i, x, pos, rope, scale, chosen):
    a = f"model.layers.{i}.self_attn."
    f, factor = rope
    H, n, r, v, kv = cfg["num_attention_heads"], cfg["qk_nope_head_dim"], cfg["qk_rope_head_dim"], cfg["v_head_dim"], \
        cfg["kv_lora_rank"]
    qa = rms(x @ t[a + "q_a_proj.weight"].T, t[a + "q_a_layernorm.weight"], 1e-6)
    q = (qa @ t[a + "q_b_proj.weight"].T).reshape(len(x), H, n + r)
    row = x @ t[a + "kv_a_proj_with_mqa.weight"].T
    c = rms(row[:, :kv], t[a + "kv_a_layernorm.weight"], 1e-6)
    kr = rotate(row[:, kv:], pos, f, factor, True)
    qr = rotate(q[..., n:], pos, f, factor, True)
    b = (c @ t[a + "kv_b_proj.weight"].T).reshape(len(x), H, n + v)
    score = None
    if a + "indexer.wq_b.weight" in t:
        chosen, score = choose(cfg, t, a, x, qa, pos, rope)
    s = (np.einsum("shd,thd->hst", q[..., :n], b[..., :n]) + np.einsum("shd,td->hst", qr, kr)) * scale
    s = np.where(chosen[None], s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    o = np.einsum("hst,thd->shd", p, b[..., n:]).reshape(len(x), H * v)
    return o @ t[a + "o_proj.weight"].T, chosen, score


def mlp(t, name, x):
    g = x @ t[name + "gate_proj.weight"].T
    return (g / (1 + np.exp(-g)) * (x @ t[name + "up_proj.weight"].T)) @ t[name + "down_proj.weight"].T


def moe(cfg, t, m, x):
    E, k, ng, tg = cfg["n_routed_experts"], cfg["num_experts_per_tok"], cfg.get("n_group", 1), cfg.get("topk_group", 1)
    s = 1 / (1 + np.exp(-(x @ t[m + "gate.weight"].T)))
    b = s + t[m + "gate.e_score_correction_bias"]
    out = mlp(t, m + "shared_experts.", x)
    for row in range(len(x)):
        g = b[row].reshape(ng, E // ng)
        best = np.sort(g, -1)[:, -2:].sum(-1) if ng > 1 else np.zeros(ng)
        keep = np.argsort(-best, kind="stable")[:tg]
        masked = np.full((ng, E // ng), -np.inf)
        masked[keep] = g[keep]
        ids = np.argsort(-masked.reshape(-1), kind="stable")[:k]
        w = s[row, ids]
        if cfg["norm_topk_prob"]:
            w = w / (w.sum() + 1e-20)
        for e, we in zip(ids, w * cfg["routed_scaling_factor"]):
            out[row] += we * mlp(t, f"{m}experts.{e}.", x[row:row + 1])[0]
    return out


def forward(cfg, t, tokens):
    f, factor, square = frequencies(cfg)
    pos = np.arange(len(tokens))
    scale = (cfg["qk_nope_head_dim"] + cfg["qk_rope_head_dim"]) ** -0.5 * square
    h = t["model.embed_tokens.weight"][tokens]
    chosen, choices = None, {}
    head = "model.embed_tokens.weight" if cfg["tie_word_embeddings"] else "lm_head.weight"
    for i in range(cfg["num_hidden_layers"]):
        p, eps = f"model.layers.{i}.", cfg["rms_norm_eps"]
        o, chosen, score = attend(cfg, t, i, rms(h, t[p + "input_layernorm.weight"], eps), pos, (f, factor), scale, chosen)
        if score is not None:
            choices[i] = (chosen, score)
        h = h + o
        x = rms(h, t[p + "post_attention_layernorm.weight"], eps)
        h = h + (moe(cfg, t, p + "mlp.", x) if p + "mlp.gate.weight" in t else mlp(t, p + "mlp.", x))
    return rms(h, t["model.norm.weight"], cfg["rms_norm_eps"]) @ t[head].T, choices


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def index_gap(cfg, choices):
    """The smallest distance of a choice from a tie, relative to the row's largest score."""
    k, worst = cfg["index_topk"], math.inf
    for _, score in choices.values():
        for s in range(k, len(score)):
            v = np.sort(score[s, :s + 1])[::-1]
            worst = min(worst, (v[k - 1] - v[k]) / np.abs(v).max())
    return worst


def main():
    if sys.argv[1] == "--make":
        make(sys.argv[2], sys.argv[3], json.loads(sys.argv[4]) if len(sys.argv) > 4 else None)
        return
    if sys.argv[1] == "--keys":
        cfg, t = read(sys.argv[2])
        tokens = np.array(json.load(open(sys.argv[3])))
        exact = log_softmax(forward({**cfg, "count_kept": True}, t, tokens)[0])
        for form, (same, n) in KEPT.items():
            print(f"{form}: {same} of {n} choices stay, {same / n:.4f}")
        for form in FORMS if cfg["index_head_dim"] & (cfg["index_head_dim"] - 1) == 0 else ():
            got = log_softmax(forward({**cfg, "key_form": form}, t, tokens)[0])
            kl = (np.exp(exact) * (exact - got)).sum(-1)[cfg["index_topk"]:]
            print(f"{form} after Hadamard: KL {kl.mean():.3g}, median {np.median(kl):.3g}")
        return
    cfg, t = read(sys.argv[1])
    tokens = json.load(open(sys.argv[2]))
    logits, choices = forward(cfg, t, np.array(tokens))
    logits.astype("<f8").tofile(os.path.join(sys.argv[3], "logits.f64"))
    rows = {str(i): [np.flatnonzero(seen[s]).tolist() for s in range(len(tokens))] for i, (seen, _) in choices.items()}
    with open(os.path.join(sys.argv[3], "choices.json"), "w") as f:
        json.dump({"choices": rows, "gap": index_gap(cfg, choices)}, f)


if __name__ == "__main__":
    main()
