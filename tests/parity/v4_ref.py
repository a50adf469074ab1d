#!/usr/bin/env python3
"""DeepSeek V4 in float64 with numpy: the whole forward pass, and the tiny checkpoint v4 that is compared with it.

    v4_ref.py make DIR [SEED]    writes config.json, model.safetensors and expected.safetensors of the first seed
                                 from SEED on whose greedy tokens are far from ties
    v4_ref.py check DIR          computes DIR/expected.safetensors again and compares

The formulas are those of the vendor's inference code, without its simulated rounding: it rounds rows of the cache to
FP8 in blocks of 64, and keys of the indexer, after a Hadamard transform, to FP4.  Here the cache is exact.
One sequence, no cache: every position is computed from all rows that it may see.
"""
import json
import math
import os
import struct
import sys

import numpy as np

STEPS = 40
MIN_GAP = 1e-5  # between the last thing that is chosen and the next, experts and rows
PROMPT = 300
ROWS = [0, 1, 3, 4, 62, 63, 64, 65, 126, 127, 128, 129, 191, 192, 254, 255, 256, 257, 299]

CONFIG = {
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "attention_bias": False,
    "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 1, "expert_dtype": "fp4", "hc_eps": 1e-06, "hc_mult": 4,
    "hc_sinkhorn_iters": 20, "head_dim": 32, "hidden_act": "silu", "hidden_size": 64, "index_head_dim": 32,
    "index_n_heads": 16, "index_topk": 16, "initializer_range": 0.02, "max_position_embeddings": 4096,
    "moe_intermediate_size": 32, "n_routed_experts": 8, "n_shared_experts": 1, "norm_topk_prob": True,
    "num_attention_heads": 4, "num_experts_per_tok": 2, "num_hidden_layers": 5, "num_hash_layers": 2,
    "num_key_value_heads": 1, "num_nextn_predict_layers": 1, "o_groups": 2, "o_lora_rank": 32, "q_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "scale_fmt": "ue8m0",
                            "weight_block_size": [128, 128]},
    "rms_norm_eps": 1e-03,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 16, "original_max_position_embeddings": 256,
                     "type": "yarn"},
    "rope_theta": 10000, "routed_scaling_factor": 1.5, "scoring_func": "sqrtsoftplus", "sliding_window": 128,
    "swiglu_limit": 1.5, "tie_word_embeddings": False, "topk_method": "noaux_tc", "torch_dtype": "bfloat16",
    "transformers_version": "4.57.1", "use_cache": True, "vocab_size": 128, "compress_rope_theta": 160000,
    "compress_ratios": [0, 4, 128, 4, 128, 0],
}

# ---- number formats ----------------------------------------------------------------------------


def _e4m3():
    c = np.arange(256)
    e, m = (c >> 3) & 15, c & 7
    v = np.where(e == 0, m / 8 * 2.0 ** -6, (1 + m / 8) * 2.0 ** (e - 7.0))
    v[(c & 127) == 127] = np.nan
    return np.where(c & 128, -v, v)


E4M3 = _e4m3()
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6])


def nearest(x, positive):
    """Codes of the nearest values of an ascending table of magnitudes."""
    a = np.abs(x)
    hi = np.clip(np.searchsorted(positive, a), 1, len(positive) - 1)
    return np.where(a - positive[hi - 1] <= positive[hi] - a, hi - 1, hi).astype(np.uint8)


def to_bf16(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(u):
    return (u.astype(np.uint32) << 16).view(np.float32)


def round_bf16(x):
    return from_bf16(to_bf16(x)).astype(np.float64)


def ue8m0(amax, largest):
    return np.clip(np.ceil(np.log2(np.maximum(amax, 1e-30) / largest)) + 127, 1, 254).astype(np.uint8)


def to_fp8(w):
    """Codes [r][c] and a scale for each block of 128 x 128."""
    r, c = w.shape
    scale = np.zeros(((r + 127) // 128, (c + 127) // 128), np.uint8)
    code = np.zeros((r, c), np.uint8)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            at = np.s_[i * 128:i * 128 + 128, j * 128:j * 128 + 128]
            scale[i, j] = ue8m0(np.abs(w[at]).max(), 448)
            x = w[at] / 2.0 ** (int(scale[i, j]) - 127)
            code[at] = nearest(x, E4M3[:127]) | np.where(x < 0, 128, 0).astype(np.uint8)
    return code, scale


def to_mxfp4(w):
    """Two codes per byte, the even column in the low nibble, and a scale for 32 columns."""
    r, c = w.shape
    g = w.reshape(r, c // 32, 32)
    scale = ue8m0(np.abs(g).max(-1), 6)
    x = g / 2.0 ** (scale[..., None].astype(float) - 127)
    code = (nearest(x, E2M1[:8]) | np.where(x < 0, 8, 0).astype(np.uint8)).reshape(r, c)
    return (code[:, 0::2] | code[:, 1::2] << 4).view(np.int8), scale


# ---- safetensors -------------------------------------------------------------------------------
DTYPES = {"F32": np.float32, "BF16": np.uint16, "F8_E4M3": np.uint8, "F8_E8M0": np.uint8, "I8": np.int8, "I32": np.int32,
          "I64": np.int64}


def save(path, tensors):
    """tensors: name -> (dtype, array)."""
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for k in sorted(tensors):
        t, a = tensors[k]
        head[k] = {"dtype": t, "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for k in sorted(tensors):
            f.write(np.ascontiguousarray(tensors[k][1]).tobytes())


def load(path):
    with open(path, "rb") as f:
        raw = f.read()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for k, v in json.loads(raw[8:8 + n]).items():
        if k != "__metadata__":
            a, b = v["data_offsets"]
            out[k] = (v["dtype"], np.frombuffer(raw[8 + n + a:8 + n + b], DTYPES[v["dtype"]]).reshape(v["shape"]))
    return out


def values(tensors, name):
    """A tensor as float64, its scales applied."""
    t, a = tensors[name]
    scale = tensors.get(name[:-len("weight")] + "scale", (None, None))[1] if name.endswith("weight") else None
    if t == "BF16":
        return from_bf16(a).astype(np.float64)
    if t == "F8_E4M3":
        s = 2.0 ** (scale.astype(float) - 127)
        return E4M3[a] * s.repeat(128, 0)[:a.shape[0]].repeat(128, 1)[:, :a.shape[1]]
    if t == "I8":
        u = a.view(np.uint8)
        v = E2M1[np.stack([u & 15, u >> 4], -1).reshape(a.shape[0], -1)]
        return v * (2.0 ** (scale.astype(float) - 127)).repeat(32, 1)
    return a if t == "I64" else a.astype(np.float64)


# ---- the checkpoint ----------------------------------------------------------------------------


def make_weights(c, seed):
    rng = np.random.default_rng(seed)
    h, d, nh, hc = c["hidden_size"], c["head_dim"], c["num_attention_heads"], c["hc_mult"]
    out = {}

    def put(name, kind, shape, std):
        w = rng.standard_normal(shape) * std / (math.sqrt(shape[-1]) if len(shape) > 1 else 1)
        if kind == "F8_E4M3":
            code, scale = to_fp8(w)
            out[name + ".weight"], out[name + ".scale"] = (kind, code), ("F8_E8M0", scale)
        elif kind == "I8":
            code, scale = to_mxfp4(w * np.exp2(rng.integers(-1, 2, w.shape[:1]))[:, None])
            out[name + ".weight"], out[name + ".scale"] = (kind, code), ("F8_E8M0", scale)
        else:
            out[name] = (kind, to_bf16(w) if kind == "BF16" else w.astype(np.float32))

    def norm(name, n):
        out[name + ".weight"] = ("BF16", to_bf16(1 + 0.2 * rng.standard_normal(n)))

    def site(name, n):
        put(name + "_fn", "F32", (n, hc * h), 1.0)
        put(name + "_base", "F32", (n,), 0.5)
        out[name + "_scale"] = ("F32", rng.uniform(0.6, 1.4, 3 if n > hc else 1).astype(np.float32))

    def compressor(p, ratio, width):
        n = width * (2 if ratio == 4 else 1)
        put(p + "wkv.weight", "BF16", (n, h), 1.0)
        put(p + "wgate.weight", "BF16", (n, h), 1.0)
        put(p + "ape", "F32", (ratio, n), 0.5 * math.sqrt(n))
        norm(p + "norm", width)

    def ffn(p, layer):
        n, inter = c["n_routed_experts"], c["moe_intermediate_size"]
        put(p + "gate.weight", "BF16", (n, h), 1.6)
        if layer < c["num_hash_layers"]:
            ids = np.stack([rng.permutation(n)[:c["num_experts_per_tok"]] for _ in range(c["vocab_size"])])
            out[p + "gate.tid2eid"] = ("I64", ids.astype(np.int64))
        else:
            put(p + "gate.bias", "F32", (n,), 0.3)
        for j in range(n):
            put(f"{p}experts.{j}.w1", "I8", (inter, h), 1.4)
            put(f"{p}experts.{j}.w3", "I8", (inter, h), 1.4)
            put(f"{p}experts.{j}.w2", "I8", (h, inter), 0.9)
        put(p + "shared_experts.w1", "F8_E4M3", (inter, h), 1.3)
        put(p + "shared_experts.w3", "F8_E4M3", (inter, h), 1.3)
        put(p + "shared_experts.w2", "F8_E4M3", (h, inter), 0.9)

    def block(p, layer):
        ratio = c["compress_ratios"][layer]
        site(p + "hc_attn", (2 + hc) * hc)
        site(p + "hc_ffn", (2 + hc) * hc)
        norm(p + "attn_norm", h)
        norm(p + "ffn_norm", h)
        a, q, g, o = p + "attn.", c["q_lora_rank"], c["o_groups"], c["o_lora_rank"]
        put(a + "wq_a", "F8_E4M3", (q, h), 1.0)
        norm(a + "q_norm", q)
        put(a + "wq_b", "F8_E4M3", (nh * d, q), 1.0)
        put(a + "wkv", "F8_E4M3", (d, h), 1.0)
        norm(a + "kv_norm", d)
        put(a + "wo_a", "F8_E4M3", (g * o, nh * d // g), 1.0)
        put(a + "wo_b", "F8_E4M3", (h, g * o), 1.8)
        put(a + "attn_sink", "F32", (nh,), 1.0)
        if ratio:
            compressor(a + "compressor.", ratio, d)
        if ratio == 4:
            put(a + "indexer.wq_b", "F8_E4M3", (c["index_n_heads"] * c["index_head_dim"], q), 1.0)
            put(a + "indexer.weights_proj.weight", "BF16", (c["index_n_heads"], h), 1.0)
            compressor(a + "indexer.compressor.", ratio, c["index_head_dim"])
        ffn(p + "ffn.", layer)

    put("embed.weight", "BF16", (c["vocab_size"], h), 0.8 * math.sqrt(h))
    put("head.weight", "BF16", (c["vocab_size"], h), 1.4)
    norm("norm", h)
    site("hc_head", hc)
    for i in range(c["num_hidden_layers"]):
        block(f"layers.{i}.", i)
    # a layer that predicts a further token, to be ignored
    put("mtp.0.e_proj", "F8_E4M3", (h, h), 1.0)
    norm("mtp.0.enorm", h)
    return out


# ---- the forward pass --------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rms(x, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def frequencies(c, compressed):
    """As float, like every engine has them."""
    dim, s = c["qk_rope_head_dim"], c.get("rope_scaling") or {}
    theta = c["compress_rope_theta"] if compressed else c["rope_theta"]
    f = theta ** (-np.arange(0, dim, 2) / dim)
    if compressed and s.get("type", s.get("rope_type")) == "yarn":
        at = lambda beta: dim * math.log(s["original_max_position_embeddings"] / (beta * 2 * math.pi)) / (2 * math.log(theta))
        low, high = max(math.floor(at(s["beta_fast"])), 0), min(math.ceil(at(s["beta_slow"])), dim - 1)
        ramp = np.clip((np.arange(dim // 2) - low) / (high - low if high > low else 0.001), 0, 1)
        f = f * (1 - ramp) + f / s["factor"] * ramp
    return f.astype(np.float32)


def rotate(x, pos, freq, sign=1):
    """Pairs of the last values of x [n][...][dim] by the angle of pos [n]; neighbours are a pair."""
    dim = 2 * len(freq)
    angle = (np.asarray(pos, np.float32)[:, None] * freq[None]).astype(np.float64)
    angle = angle.reshape((len(angle),) + (1,) * (x.ndim - 2) + (-1,))
    cos, sin = np.cos(angle), sign * np.sin(angle)
    out = x.copy()
    a, b = x[..., -dim::2], x[..., -dim + 1::2]
    out[..., -dim::2] = a * cos - b * sin
    out[..., -dim + 1::2] = a * sin + b * cos
    return out


class Reference:
    def __init__(self, config, tensors, cache=lambda x: x):
        self.c, self.t, self.cache, self.memo = config, tensors, cache, {}

    def w(self, name):
        if name not in self.memo:
            self.memo[name] = values(self.t, name)
        return self.memo[name]

    def linear(self, x, name):
        return x @ self.w(name).T

    def mixing(self, x, site):
        """Streams x [n][hc][h]: what enters the sublayer, and how its output returns."""
        c, hc = self.c, self.c["hc_mult"]
        u = rms(x.reshape(len(x), -1), c["rms_norm_eps"])
        m = u @ self.w(site + "_fn").T
        scale, base, eps = self.w(site + "_scale"), self.w(site + "_base"), c["hc_eps"]
        pre = sigmoid(m[:, :hc] * scale[0] + base[:hc]) + eps
        y = (pre[..., None] * x).sum(1)
        if len(scale) == 1:
            return y, None, None
        post = 2 * sigmoid(m[:, hc:2 * hc] * scale[1] + base[hc:2 * hc])
        mix = softmax((m[:, 2 * hc:] * scale[2] + base[2 * hc:]).reshape(-1, hc, hc), -1) + eps
        mix = mix / (mix.sum(1, keepdims=True) + eps)
        for _ in range(c["hc_sinkhorn_iters"] - 1):
            mix = mix / (mix.sum(2, keepdims=True) + eps)
            mix = mix / (mix.sum(1, keepdims=True) + eps)
        return y, post, mix

    def compressed(self, x, p, ratio, width, freq):
        """Rows [n // ratio][width]."""
        n = len(x) // ratio
        if n == 0:
            return np.zeros((0, width))
        kv, gate = self.linear(x, p + "wkv.weight"), self.linear(x, p + "wgate.weight")
        kv = kv[:n * ratio].reshape(n, ratio, -1)
        gate = gate[:n * ratio].reshape(n, ratio, -1) + self.w(p + "ape")
        if ratio == 4:  # values of the window before in the first half, of the window itself in the second
            pad = lambda a, v: np.concatenate([np.full((1,) + a.shape[1:], v), a])[:n]
            kv = np.concatenate([pad(kv[..., :width], 0.0), kv[..., width:]], 1)
            gate = np.concatenate([pad(gate[..., :width], -np.inf), gate[..., width:]], 1)
        row = (softmax(gate, 1) * kv).sum(1)
        row = rms(row, self.c["rms_norm_eps"]) * self.w(p + "norm.weight")
        return self.cache(rotate(row, np.arange(n) * ratio, freq))

    def chosen(self, x, qr, p, freq, n_row):
        """[n][n_row]: the compressed rows that each position attends to."""
        c, n = self.c, len(x)
        seen = np.arange(n_row)[None] < (np.arange(n)[:, None] + 1) // 4
        q = self.linear(qr, p + "wq_b.weight").reshape(n, c["index_n_heads"], c["index_head_dim"])
        q = rotate(q, np.arange(n), freq)
        k = self.compressed(x, p + "compressor.", 4, c["index_head_dim"], freq)
        weight = self.linear(x, p + "weights_proj.weight") * (c["index_n_heads"] * c["index_head_dim"]) ** -0.5
        score = (np.maximum(q @ k.T, 0) * weight[..., None]).sum(1)
        order = np.argsort(np.where(seen, -score, np.inf), 1, kind="stable")  # ties: the earlier row
        out, top = np.zeros_like(seen), c["index_topk"]
        np.put_along_axis(out, order[:, :top], True, 1)
        full = seen.sum(1) > top
        if full.any():
            best = np.take_along_axis(score, order, 1)[full]
            self.gaps.append((best[:, top - 1] - best[:, top]).min())
        return out & seen, score

    def attention(self, x, layer, trace):
        c, p, n = self.c, f"layers.{layer}.attn.", len(x)
        ratio, d, nh = c["compress_ratios"][layer], c["head_dim"], c["num_attention_heads"]
        freq, pos = frequencies(c, ratio > 0), np.arange(n)
        qr = rms(self.linear(x, p + "wq_a.weight"), c["rms_norm_eps"]) * self.w(p + "q_norm.weight")
        q = self.linear(qr, p + "wq_b.weight").reshape(n, nh, d)
        q = rotate(rms(q, c["rms_norm_eps"]), pos, freq)
        kv = rms(self.linear(x, p + "wkv.weight"), c["rms_norm_eps"]) * self.w(p + "kv_norm.weight")
        kv = self.cache(rotate(kv, pos, freq))
        seen = (pos[None] <= pos[:, None]) & (pos[None] > pos[:, None] - c["sliding_window"])
        if ratio:
            rows = self.compressed(x, p + "compressor.", ratio, d, freq)
            if ratio == 4:
                pick, score = self.chosen(x, qr, p + "indexer.", freq, len(rows))
                trace[f"layers.{layer}.index"] = score
            else:
                pick = np.arange(len(rows))[None] < (pos[:, None] + 1) // ratio
            kv, seen = np.concatenate([kv, rows]), np.concatenate([seen, pick], 1)
        score = q @ kv.T * d ** -0.5
        score = np.where(seen[:, None], score, -np.inf)
        sink = np.broadcast_to(self.w(p + "attn_sink")[None, :, None], (n, nh, 1))
        prob = softmax(np.concatenate([score, sink], -1), -1)[..., :-1]
        o = rotate(prob @ kv, pos, freq, -1)
        wo = self.w(p + "wo_a.weight").reshape(c["o_groups"], c["o_lora_rank"], -1)
        o = np.einsum("ngd,grd->ngr", o.reshape(n, c["o_groups"], -1), wo)
        return self.linear(o.reshape(n, -1), p + "wo_b.weight")

    def expert(self, x, p):
        lim = self.c["swiglu_limit"]
        a = np.minimum(self.linear(x, p + "w1.weight"), lim)
        b = np.clip(self.linear(x, p + "w3.weight"), -lim, lim)
        return self.linear(a * sigmoid(a) * b, p + "w2.weight")

    def ffn(self, x, tok, layer):
        c, p = self.c, f"layers.{layer}.ffn."
        s = np.sqrt(np.log1p(np.exp(self.linear(x, p + "gate.weight"))))
        if layer < c["num_hash_layers"]:
            ids = self.t[p + "gate.tid2eid"][1][tok]
        else:
            order = np.argsort(-(s + self.w(p + "gate.bias")), axis=1, kind="stable")
            k = c["num_experts_per_tok"]
            b = np.take_along_axis(s + self.w(p + "gate.bias"), order, 1)
            self.gaps.append((b[:, k - 1] - b[:, k]).min())
            ids = order[:, :k]
        weight = np.take_along_axis(s, ids, 1)
        weight = weight / weight.sum(1, keepdims=True) * c["routed_scaling_factor"]
        y = self.expert(x, p + "shared_experts.")
        for j in range(c["n_routed_experts"]):
            t, k = np.nonzero(ids == j)
            if len(t):
                y[t] += weight[t, k][:, None] * self.expert(x[t], f"{p}experts.{j}.")
        return y

    def forward(self, tok):
        """Logits [n][vocab] and what the layers made."""
        c, trace = self.c, {}
        tok, eps = np.asarray(tok), c["rms_norm_eps"]
        self.gaps = []
        x = self.w("embed.weight")[tok]
        trace["embed"] = x
        x = np.repeat(x[:, None], c["hc_mult"], 1)
        for i in range(c["num_hidden_layers"]):
            p = f"layers.{i}."
            for part, name in (("attn", "attn_out"), ("ffn", "mlp_out")):
                y, post, mix = self.mixing(x, p + "hc_" + part)
                y = rms(y, eps) * self.w(f"{p}{part}_norm.weight")
                y = self.attention(y, i, trace) if part == "attn" else self.ffn(y, tok, i)
                trace[p + name] = y
                x = post[..., None] * y[:, None] + np.einsum("nsd,nsh->ndh", mix, x)
            trace[p + "out"] = x.reshape(len(tok), -1)
        y = rms(self.mixing(x, "hc_head")[0], eps) * self.w("norm.weight")
        trace["final_norm"] = y
        return self.linear(y, "head.weight"), trace


# ---- making and checking -----------------------------------------------------------------------


def greedy(ref, prompt):
    """The continuation and its margins."""
    tok, margin = list(prompt), []
    for _ in range(STEPS):
        last = ref.forward(tok)[0][-1]
        tok.append(int(np.argmax(last)))
        margin.append(np.diff(np.sort(last)[-2:])[0])
    return tok[len(prompt):], np.array(margin)


def expected(ref, prompt, more):
    logits, trace = ref.forward(prompt)
    # exact_only: a rounded cache chooses other rows and experts, and no bound on logits means anything then
    out = {"tokens": ("I32", np.array(prompt, np.int32)), "exact_only": ("I32", np.array([1], np.int32)),
           "rows": ("I32", np.array(ROWS, np.int32)),
           "greedy": ("I32", np.array(more[0], np.int32)), "greedy_margin": ("F32", more[1].astype(np.float32)),
           "logits": ("F32", logits[ROWS].astype(np.float32))}
    out.update({k: ("F32", v[ROWS].astype(np.float32)) for k, v in trace.items() if not k.endswith("index")})
    return out


def make(path, seed):
    for seed in range(seed, seed + 400):
        rng = np.random.default_rng(seed)
        tensors = make_weights(CONFIG, seed)
        prompt = rng.integers(2, CONFIG["vocab_size"], PROMPT).tolist()
        ref, rounded = Reference(CONFIG, tensors), Reference(CONFIG, tensors, round_bf16)
        ref.forward(prompt)
        if min(ref.gaps) < MIN_GAP:
            continue
        more = greedy(ref, prompt)
        whole = prompt + more[0]
        a, b = ref.forward(whole)[0], rounded.forward(whole)[0]
        d = np.abs(a - b).max(-1)
        print(seed, "margin", more[1].min(), "gap", min(ref.gaps), "distinct", len(set(more[0])), "std", a.std(),
              "bf16", d.max(), np.median(d), flush=True)
        if more[1].min() > 0.01 and min(ref.gaps) > MIN_GAP and len(set(more[0])) >= 10:
            break
    else:
        raise SystemExit("no seed")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(CONFIG, f, indent=2)
        f.write("\n")
    save(os.path.join(path, "model.safetensors"), tensors)
    save(os.path.join(path, "expected.safetensors"), expected(ref, prompt, more))
    return 0


def check(path):
    config = json.load(open(os.path.join(path, "config.json")))
    want = load(os.path.join(path, "expected.safetensors"))
    ref = Reference(config, load(os.path.join(path, "model.safetensors")))
    prompt = want["tokens"][1].tolist()
    got = expected(ref, prompt, greedy(ref, prompt))
    bad = 0
    for k, (_, v) in want.items():
        diff = float(np.abs(v.astype(float) - got[k][1].astype(float)).max())
        if diff > 1e-5 * max(1.0, float(np.abs(v).max())):
            print(f"FAIL {k}: differs by {diff:.3g}")
            bad = 1
    print("ok" if not bad else "FAIL")
    return bad


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("make", "check"):
        raise SystemExit(__doc__)
    sys.exit(make(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1) if sys.argv[1] == "make" else check(sys.argv[2]))
