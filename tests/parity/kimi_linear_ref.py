#!/usr/bin/env python3
"""Kimi-Linear in float64: a reference written from the vendor's formulas, and the parity case that it makes.

    python3 kimi_linear_ref.py [--out DIR] [--first-seed N]      searches a seed and writes DIR/kimi_linear
    python3 kimi_linear_ref.py --check DIR                       computes DIR's logits and tokens again and compares

It needs Python alone.  The case has the form of the others in this folder (README.md); what is compared is in parity.c.
A token is computed at a time, from the state that the tokens before it left.  Sources: modeling_kimi.py of
Kimi-Linear-48B-A3B (latent attention without rotation, routing, names of tensors), and flash-linear-attention's naive
recurrence, gate and short convolution (delta rule with a decay per channel).
"""
import argparse
import json
import math
import operator
import os
import random
import struct

PROMPT, STEPS = 150, 40
ROWS = [0, 1, 17, 63, 64, 65, 100, 127, 128, 149]
CONFIG = {
    "architectures": ["KimiLinearForCausalLM"], "bos_token_id": 1, "dtype": "bfloat16", "eos_token_id": 2,
    "first_k_dense_replace": 1, "head_dim": 12, "hidden_act": "silu", "hidden_size": 72, "initializer_range": 0.02,
    "intermediate_size": 96, "kv_lora_rank": 32,
    "linear_attn_config": {"full_attn_layers": [3, 6], "head_dim": 16, "kda_layers": [1, 2, 4, 5], "num_heads": 3,
                           "short_conv_kernel_size": 4},
    "mla_use_nope": True, "model_max_length": 4096, "model_type": "kimi_linear", "moe_intermediate_size": 32,
    "moe_layer_freq": 1, "moe_renormalize": True, "moe_router_activation_func": "sigmoid", "num_attention_heads": 4,
    "num_expert_group": 1, "num_experts": 8, "num_experts_per_token": 3, "num_hidden_layers": 6, "num_key_value_heads": 4,
    "num_nextn_predict_layers": 0, "num_shared_experts": 1, "pad_token_id": 0, "q_lora_rank": None, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 10000.0,
    "routed_scaling_factor": 2.446, "tie_word_embeddings": False, "topk_group": 1, "use_cache": True,
    "use_grouped_topk": True, "v_head_dim": 24, "vocab_size": 160}


# ---- files ----

def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16(x):
    """Rounded to bfloat16, ties to even."""
    u, = struct.unpack("<I", struct.pack("<f", x))
    u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000
    return struct.unpack("<f", struct.pack("<I", u))[0]


def flat(x):
    return [v for row in x for v in flat(row)] if isinstance(x, list) and x and isinstance(x[0], list) else list(x)


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, shape, flat list); BF16 lists hold values that are exact in it."""
    header, blobs, at = {}, [], 0
    for name in sorted(tensors):
        dtype, shape, a = tensors[name]
        n = len(a)
        assert n == math.prod(shape), name
        if dtype == "BF16":
            raw = struct.pack(f"<{n}H", *(v >> 16 for v in struct.unpack(f"<{n}I", struct.pack(f"<{n}f", *a))))
        else:
            raw = struct.pack(f"<{n}{'f' if dtype == 'F32' else 'i'}", *a)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        blobs.append(raw)
        at += len(raw)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + b"".join(blobs))


def read_safetensors(path):
    """name -> (shape, flat list)"""
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
        data = f.read()
    out = {}
    for name, h in header.items():
        if name == "__metadata__":
            continue
        raw = data[h["data_offsets"][0]:h["data_offsets"][1]]
        n = math.prod(h["shape"])
        if h["dtype"] == "BF16":
            a = struct.unpack(f"<{n}f", struct.pack(f"<{n}I", *(v << 16 for v in struct.unpack(f"<{n}H", raw))))
        else:
            a = struct.unpack(f"<{n}{'f' if h['dtype'] == 'F32' else 'i'}", raw)
        out[name] = (h["shape"], list(a))
    return out


def as_rows(shape, a):
    """A matrix as a list of rows; what has one dimension that is not 1 as a list."""
    if len(shape) < 2 or math.prod(shape[:-1]) == 1 or math.prod(shape[1:]) == 1 or math.prod(shape) in shape:
        return list(a)
    n = shape[-1]
    return [list(a[i:i + n]) for i in range(0, len(a), n)]


# ---- the model ----

def dot(a, b):
    return sum(map(operator.mul, a, b))


def times(matrix, x):
    return [dot(row, x) for row in matrix]


def add(a, b):
    return list(map(operator.add, a, b))


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


def rmsnorm(x, w, eps):
    r = 1 / math.sqrt(dot(x, x) / len(x) + eps)
    return [v * r * g for v, g in zip(x, w)]


def cut(x, n):
    return [x[i:i + n] for i in range(0, len(x), n)]


class Model:
    """round_cache: latent and key are rounded to bfloat16 where a cache keeps them so; break_as: one deliberate mistake."""

    def __init__(self, config, weights, round_cache=False, break_as=None):
        self.c, self.w, self.round_cache, self.broken = config, weights, round_cache, break_as
        lin = config["linear_attn_config"]
        self.heads, self.dim, self.width = lin["num_heads"], lin["head_dim"], lin["short_conv_kernel_size"]
        self.layers = [self.new_layer(i + 1 in lin["kda_layers"]) for i in range(config["num_hidden_layers"])]
        self.trace, self.route_gap, self.choice = {}, math.inf, []

    def new_layer(self, is_kda):
        if not is_kda:
            return {"kda": False, "latent": [], "key": []}
        D, n = self.dim, self.heads * self.dim
        return {"kda": True, "conv": [[[0.0] * n for _ in range(self.width - 1)] for _ in "qkv"],
                "S": [[[0.0] * D for _ in range(D)] for _ in range(self.heads)]}

    def p(self, i, name):
        return self.w[f"model.layers.{i}.{name}"]

    def convolved(self, i, st, j, name, x):
        """Channel by channel over this token and the width - 1 before it, then silu; per head."""
        window = st["conv"][j] + [times(self.p(i, f"self_attn.{name}_proj.weight"), x)]
        st["conv"][j] = window[1:]
        w = self.p(i, f"self_attn.{name}_conv1d.weight")
        y = [sum(w[c][t] * window[t][c] for t in range(self.width)) for c in range(len(window[0]))]
        return cut(y if self.broken == "no silu" else [silu(v) for v in y], self.dim)

    def unit(self, x):
        eps = 0 if self.broken == "no eps of l2" else 1e-6
        r = 1 / math.sqrt(dot(x, x) + eps)
        return [v * r for v in x]

    def recurrence(self, S, q, k, v, decay, beta):
        """One head: S [key channel][value channel] forgets per key channel, then takes up what the value differs from
        what it holds for the key; returns the output and the new state."""
        old = S
        S = [[s * a for s in row] for row, a in zip(S, decay)]
        held = old if self.broken == "delta before decay" else S
        delta = [beta * (vj - dot(k, col)) for vj, col in zip(v, zip(*held))]
        S = [[s + kj * d for s, d in zip(row, delta)] for row, kj in zip(S, k)]
        return [dot(q, col) for col in zip(*S)], S

    def kda(self, i, st, x):
        H, D = self.heads, self.dim
        q, k, v = (self.convolved(i, st, j, name, x) for j, name in enumerate("qkv"))
        f = times(self.p(i, "self_attn.f_b_proj.weight"), times(self.p(i, "self_attn.f_a_proj.weight"), x))
        f = cut(add(f, self.p(i, "self_attn.dt_bias")), D)
        gate = cut(times(self.p(i, "self_attn.g_b_proj.weight"), times(self.p(i, "self_attn.g_a_proj.weight"), x)), D)
        beta = [sigmoid(b) for b in times(self.p(i, "self_attn.b_proj.weight"), x)]
        out = []
        for h in range(H):
            rate = math.exp(self.p(i, "self_attn.A_log")[h])
            g = [-rate * softplus(y) for y in f[h]]
            if self.broken == "decay per head":
                g = [sum(g) / D] * D
            o, st["S"][h] = self.recurrence(st["S"][h], [y / math.sqrt(D) for y in self.unit(q[h])], self.unit(k[h]), v[h],
                                            [math.exp(y) for y in g], beta[h])
            o = rmsnorm(o, self.p(i, "self_attn.o_norm.weight"), self.c["rms_norm_eps"])
            act = silu if self.broken == "silu gate" else sigmoid
            out += [y * act(z) for y, z in zip(o, gate[h])]
        return times(self.p(i, "self_attn.o_proj.weight"), out)

    def turn(self, x, pos):
        """Rotation of pairs (2j, 2j + 1): only as a mistake."""
        r, out = len(x), []
        for j in range(0, r, 2):
            a = pos * self.c["rope_theta"] ** (-j / r)
            out += [x[j] * math.cos(a) - x[j + 1] * math.sin(a), x[j] * math.sin(a) + x[j + 1] * math.cos(a)]
        return out

    def mla(self, i, st, x):
        """Latent attention; the d_rope channels of queries and keys are not rotated."""
        c = self.c
        n, r, v, lora = (c[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank"))
        q = cut(times(self.p(i, "self_attn.q_proj.weight"), x), n + r)
        kv = times(self.p(i, "self_attn.kv_a_proj_with_mqa.weight"), x)
        eps = c["rms_norm_eps"] if self.broken == "eps of the latent norm" else 1e-6
        latent, key = rmsnorm(kv[:lora], self.p(i, "self_attn.kv_a_layernorm.weight"), eps), kv[lora:]
        if self.broken == "rotated":
            pos = len(st["latent"])
            key, q = self.turn(key, pos), [y[:n] + self.turn(y[n:], pos) for y in q]
        if self.round_cache:
            latent, key = [bf16(y) for y in latent], [bf16(y) for y in key]
        st["latent"].append(latent)
        st["key"].append(key)
        scale = 1 / math.sqrt(n if self.broken == "scale of nope" else n + r)
        out = []
        for h, rows in enumerate(cut(self.p(i, "self_attn.kv_b_proj.weight"), n + v)):
            absorbed = [dot(q[h][:n], col) for col in zip(*rows[:n])]
            s = [scale * (dot(absorbed, a) + dot(q[h][n:], b)) for a, b in zip(st["latent"], st["key"])]
            top = max(s)
            s = [math.exp(y - top) for y in s]
            total = sum(s)
            mean = [dot(s, col) / total for col in zip(*st["latent"])]
            out += times(rows[n:], mean)
        return times(self.p(i, "self_attn.o_proj.weight"), out)

    def mlp(self, i, pre, names, x):
        gate, up, down = (self.p(i, f"{pre}.{n}.weight") for n in names)
        return times(down, [silu(a) * b for a, b in zip(times(gate, x), times(up, x))])

    def moe(self, i, x):
        c, k = self.c, self.c["num_experts_per_token"]
        s = [sigmoid(y) for y in times(self.p(i, "block_sparse_moe.gate.weight"), x)]
        b = s if self.broken == "no router bias" else add(s, self.p(i, "block_sparse_moe.gate.e_score_correction_bias"))
        order = sorted(range(len(b)), key=lambda e: -b[e])
        self.route_gap = min(self.route_gap, b[order[k - 1]] - b[order[k]])
        self.choice.append(tuple(sorted(order[:k])))
        w = [s[e] for e in order[:k]]
        if c["moe_renormalize"] and self.broken != "not normalised":
            w = [y / (sum(w) + 1e-20) for y in w]
        y = self.mlp(i, "block_sparse_moe.shared_experts", ("gate_proj", "up_proj", "down_proj"), x)
        for wj, e in zip(w, order[:k]):
            part = self.mlp(i, f"block_sparse_moe.experts.{e}", ("w1", "w3", "w2"), x)
            y = [a + wj * c["routed_scaling_factor"] * z for a, z in zip(y, part)]
        return y

    def token(self, t, keep=False):
        """Logits of the next position; keep: this row's tensors are appended to self.trace."""
        eps = self.c["rms_norm_eps"]
        note = (lambda k, v: self.trace.setdefault(k, []).append(v)) if keep else (lambda k, v: None)
        x = self.w["model.embed_tokens.weight"][t]
        note("embed", x)
        for i, st in enumerate(self.layers):
            h = rmsnorm(x, self.p(i, "input_layernorm.weight"), eps)
            a = self.kda(i, st, h) if st["kda"] else self.mla(i, st, h)
            x = add(x, a)
            h = rmsnorm(x, self.p(i, "post_attention_layernorm.weight"), eps)
            dense = i < self.c["first_k_dense_replace"]
            m = self.mlp(i, "mlp", ("gate_proj", "up_proj", "down_proj"), h) if dense else self.moe(i, h)
            x = add(x, m)
            note(f"layers.{i}.attn_out", a)
            note(f"layers.{i}.mlp_out", m)
            note(f"layers.{i}.out", x)
        x = rmsnorm(x, self.w["model.norm.weight"], eps)
        note("final_norm", x)
        return times(self.w["lm_head.weight"], x)


def best(row):
    return max(range(len(row)), key=row.__getitem__)


def run(config, weights, tokens, steps=STEPS, **how):
    """Logits [len(tokens) + steps - 1][vocab], greedy tokens, and the model with its trace."""
    m = Model(config, weights, **how)
    logits = [m.token(t, keep=i in ROWS) for i, t in enumerate(tokens)]
    greedy = [best(logits[-1])]
    while len(greedy) < steps:
        logits.append(m.token(greedy[-1]))
        greedy.append(best(logits[-1]))
    return logits, greedy, m


# ---- a case ----

def make_weights(config, seed):
    """name -> (dtype, shape, values): random, of a size at which every part moves the logits."""
    rng = random.Random(seed)
    lin, h, V = config["linear_attn_config"], config["hidden_size"], config["vocab_size"]
    H, D, W = lin["num_heads"], lin["head_dim"], lin["short_conv_kernel_size"]
    A, n, r, v, lora = (config[k] for k in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                                            "kv_lora_rank"))
    out = {}

    def mat(name, rows, cols, std, also=()):
        """also: standard deviation of the rows behind those."""
        std = [std] * rows + list(also)
        out[name] = ("BF16", (len(std), cols), [bf16(s / math.sqrt(cols) * rng.gauss(0, 1)) for s in std for _ in range(cols)])

    def vec(name, size):
        out[name] = ("BF16", (size,), [bf16(1 + 0.2 * rng.gauss(0, 1)) for _ in range(size)])

    def mlp(pre, names, inter, down):
        for name in names[:2]:
            mat(f"{pre}.{name}.weight", inter, h, 1.3)
        mat(f"{pre}.{names[2]}.weight", h, inter, down)

    mat("model.embed_tokens.weight", V, h, 0.8 * math.sqrt(h))
    mat("lm_head.weight", V, h, 1.15)
    vec("model.norm.weight", h)
    for i in range(config["num_hidden_layers"]):
        pre = f"model.layers.{i}."
        vec(pre + "input_layernorm.weight", h)
        vec(pre + "post_attention_layernorm.weight", h)
        at = pre + "self_attn."
        if i + 1 in lin["kda_layers"]:
            for name in "qkv":
                mat(f"{at}{name}_proj.weight", H * D, h, 1.2)
                tap = [0.0] * (W - 2) + [0.2, 0.6]
                w = [bf16(tap[t] + 0.5 * rng.gauss(0, 1)) for _ in range(H * D) for t in range(W)]
                out[f"{at}{name}_conv1d.weight"] = ("BF16", (H * D, 1, W), w)
            mat(at + "f_a_proj.weight", D, h, 1.0)
            mat(at + "f_b_proj.weight", H * D, D, 1.5)
            mat(at + "g_a_proj.weight", D, h, 1.0)
            mat(at + "g_b_proj.weight", H * D, D, 1.5)
            mat(at + "b_proj.weight", H, h, 1.5)
            # decays between a few and some hundred tokens
            out[at + "A_log"] = ("F32", (1, 1, H, 1), [f32(math.log(rng.uniform(0.2, 4))) for _ in range(H)])
            out[at + "dt_bias"] = ("F32", (H * D,), [f32(rng.uniform(-5, -1.5)) for _ in range(H * D)])
            vec(at + "o_norm.weight", D)
            mat(at + "o_proj.weight", h, H * D, 1.2)
        else:
            mat(at + "q_proj.weight", A * (n + r), h, 1.5)
            mat(at + "kv_a_proj_with_mqa.weight", lora, h, 0.003, also=[1.2] * r)
            vec(at + "kv_a_layernorm.weight", lora)
            mat(at + "kv_b_proj.weight", A * (n + v), lora, 1.4)
            mat(at + "o_proj.weight", h, A * v, 1.2)
        if i < config["first_k_dense_replace"]:
            mlp(pre + "mlp", ("gate_proj", "up_proj", "down_proj"), config["intermediate_size"], 0.7)
        else:
            moe = pre + "block_sparse_moe."
            mat(moe + "gate.weight", config["num_experts"], h, 1.6)
            out[moe + "gate.e_score_correction_bias"] = ("F32", (config["num_experts"],),
                                                         [f32(0.3 * rng.gauss(0, 1)) for _ in range(config["num_experts"])])
            for e in range(config["num_experts"]):
                mlp(f"{moe}experts.{e}", ("w1", "w3", "w2"), config["moe_intermediate_size"], 0.6)
            mlp(moe + "shared_experts", ("gate_proj", "up_proj", "down_proj"), config["moe_intermediate_size"], 0.6)
    return out, rng


def margin(row):
    a = sorted(row)
    return a[-1] - a[-2]


def largest(a, b):
    return max(abs(x - y) for x, y in zip(flat(a), flat(b)))


MISTAKES = ["no silu", "no eps of l2", "decay per head", "delta before decay", "silu gate", "eps of the latent norm",
            "rotated", "scale of nope", "no router bias", "not normalised"]


def search(first_seed, tries):
    """The first seed at which a BF16 cache is harmless: the same choices, no argmax near."""
    for seed in range(first_seed, first_seed + tries):
        made, rng = make_weights(CONFIG, seed)
        weights = {k: as_rows(shape, a) for k, (_, shape, a) in made.items()}
        tokens = [rng.randrange(3, CONFIG["vocab_size"]) for _ in range(PROMPT)]
        logits, greedy, m = run(CONFIG, weights, tokens)
        near = min(margin(row) for row in logits[PROMPT - 1:])
        if near < 0.01 or m.route_gap < 5e-5 or len(set(greedy)) < 8:
            continue
        low, low_greedy, low_m = run(CONFIG, weights, tokens, round_cache=True)
        if greedy == low_greedy and m.choice == low_m.choice and largest(logits, low) < 0.018:
            return seed, made, weights, tokens, logits, greedy, m, largest(logits, low), near
    raise SystemExit(f"no seed in {tries} tries")


def make(out, first_seed):
    seed, made, weights, tokens, logits, greedy, m, diff, near = search(first_seed, 400)
    folder = os.path.join(out, "kimi_linear")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(CONFIG, f, indent=2, sort_keys=True)
        f.write("\n")
    write_safetensors(os.path.join(folder, "model.safetensors"), made)
    expected = {"tokens": ("I32", (PROMPT,), tokens), "rows": ("I32", (len(ROWS),), ROWS),
                "greedy": ("I32", (STEPS,), greedy),
                "greedy_margin": ("F32", (STEPS,), [margin(row) for row in logits[PROMPT - 1:]]),
                "logits": ("F32", (len(ROWS), len(logits[0])), flat([logits[i] for i in ROWS]))}
    for k, v in m.trace.items():
        expected[k] = ("F32", (len(v), len(v[0])), flat(v))
    write_safetensors(os.path.join(folder, "expected.safetensors"), expected)
    print(f"seed {seed}: BF16 cache moves logits by {diff:.4f}, margin {near:.4f}, route gap {m.route_gap:.2e}, "
          f"{len(set(greedy))} distinct tokens, largest logit {max(flat(logits)):.2f}", flush=True)
    for mistake in MISTAKES:
        other, _, _ = run(CONFIG, weights, tokens, steps=1, break_as=mistake)
        print(f"  {mistake}: a logit moves by {largest([other[i] for i in ROWS], [logits[i] for i in ROWS]):.4g}", flush=True)


def check(folder):
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    weights = {k: as_rows(*v) for k, v in read_safetensors(os.path.join(folder, "model.safetensors")).items()}
    want = read_safetensors(os.path.join(folder, "expected.safetensors"))
    logits, greedy, m = run(config, weights, want["tokens"][1])
    diff = largest([logits[i] for i in ROWS], want["logits"][1])
    for k, v in m.trace.items():
        diff = max(diff, largest(v, want[k][1]))
    same = greedy == want["greedy"][1]
    print(f"largest difference {diff:.2e}, tokens {'equal' if same else 'differ'}")
    if not diff < 1e-5 or not same:
        raise SystemExit(1)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    p.add_argument("--first-seed", type=int, default=1)
    p.add_argument("--check", metavar="DIR")
    o = p.parse_args()
    if o.check:
        check(o.check)
    else:
        make(o.out, o.first_seed)


if __name__ == "__main__":
    main()
