#!/usr/bin/env python3
"""Make the parity checkpoints and vectors in this folder with transformers 5.17.0.

    python3 make_vectors.py [--out DIR] [--jobs N] [--only case,case] [--tries N] [--lanes N] [--limit SECONDS]

Per case it searches seeds and prompts until a BF16 cache is harmless: a second forward rounds to bfloat16 what an engine
caches (the normed latent and the rotated rope key; K and V without MLA), and over the prompt and the 40 greedy steps the
logits may move by MAX_DIFF, the KL by MAX_KL, every top1 - top2 margin must be MARGIN_RATIO times what that step's logits
moved by and every routing decision ROUTE_RATIO times further from a tie than the router's scores moved. Then it writes
DIR/<case>/{config.json, model*.safetensors, expected.safetensors} and one entry of DIR/cases.json. README.md says what is
in them. With --lanes N it writes DIR/0/<case> to DIR/N-1/<case>, from seeds 1, 1001, ...

The numbers: the checkpoint is read back with from_pretrained(dtype=float32), eager attention, eval
mode, CPU, no cache. (Only the search for a promising continuation uses a cache; it is recomputed without.)
transformers 5.17.0's deepseek_v2 multiplies the softmax scale by mscale(mscale_all_dim)^2 as
DeepSeek's own code does, so nothing is patched; check_v2_scale() fails if that changes.
"""
import argparse
import contextlib
import copy
import json
import math
import multiprocessing as mp
import os
import shutil
import sys
import tempfile
import time
import traceback

from parity_cases import CASES, FIRST_SEED
from parity_mutations import mutations

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

MIN_MARGIN = 0.01     # top1 - top2 of a greedy step
MIN_ROUTE = 5e-5      # distance of a routing decision from a tie
MAX_DIFF = 0.018      # of a logit, BF16 cache against none, any position
MAX_KL = 3e-5
MARGIN_RATIO = 4.2    # margin against the largest change of that step's logits
ROUTE_RATIO = 2.5     # routing gap against the largest change of that decision's scores, and their rms over all positions
MIN_DISTINCT = 12     # tokens of the continuation
BATCH = 160           # last prompt tokens tried at once
SCORE_STD = 1.4       # of the attention scores, by choice of q's weights
LOGIT_STD = 1.15
PROMPT = 150
STEPS = 40
ROWS = [0, 1, 17, 63, 64, 65, 100, 127, 128, 149]


# ------------------------------------------------------------------------------------------------
# Families without a class of their own here: V3's, with these keys.
AS_V3 = {"kimi_k2": {}, "sarvam_mla": {"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"}}


def as_class(cfg):
    """The configuration as a class of transformers has it."""
    cfg = copy.deepcopy({k: v for k, v in cfg.items() if k not in ("quantization_config", "auto_map")})
    names = AS_V3.get(cfg["model_type"])
    if names is None:
        return cfg
    if cfg["model_type"] == "sarvam_mla":
        cfg.pop("head_dim")
        cfg["rope_scaling"]["type"] = "yarn"
    return {**{names.get(k, k): v for k, v in cfg.items()}, "model_type": "deepseek_v3"}


def make_config(cfg):
    import transformers as tf
    cfg = as_class(cfg)
    return tf.models.auto.configuration_auto.CONFIG_MAPPING[cfg.pop("model_type")](**cfg)


def model_class(config):
    import transformers as tf
    if config.model_type == "mistral4":  # AutoModel knows it as a part of mistral3 only
        return tf.Mistral4ForCausalLM
    if config.model_type == "longcat_flash":
        return tf.LongcatFlashForCausalLM
    return tf.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]


def attentions(model):
    """In their order; a layer of longcat_flash has two."""
    return [a for layer in model.model.layers for a in (layer.self_attn if longcat(model) else [layer.self_attn])]


def longcat(model):
    return model.config.model_type == "longcat_flash"


def router_of(layer):
    gate = getattr(layer.mlp, "gate", None)
    return getattr(layer.mlp, "router", None) if gate is None else gate


def scales(spec, config, model, level):
    """Weight scale by role. embed is absolute, o, down and exp_down are relative to the residual stream's, the others
    are the standard deviation of the output for an input of 1. Milder with every level."""
    mini = config.model_type == "minicpm3"
    tied = config.tie_word_embeddings
    h = config.hidden_size
    s = {"embed": 0.8, "head": LOGIT_STD, "gate": 1.6, "qa": 1.0, "k": 1.2, "kva": 1.2, "kvb": 1.4, "v": 1.2, "o": 1.8,
         "down": 0.9, "exp_down": 0.75, "exp_up": 1.4, "up": 1.3}
    if tied:    # the head is the embedding
        s["embed"] = LOGIT_STD / math.sqrt(h) * (h / config.dim_model_base if mini else 1)
    s.update(spec.get("std", {}))
    res = s["embed"] * (config.scale_emb if mini else 1)
    if mini:
        res /= config.scale_depth / math.sqrt(config.num_hidden_layers)
    for k in ("o", "down", "exp_down"):
        s[k] *= res * 0.85 ** level
    s["branch_bias"] = 0.4 * res
    attn = attentions(model)[0]
    f2 = float(model.model.rotary_emb.attention_scaling) ** 2
    if longcat(model):
        kv = attn.mla_scale_kv_lora
        s["o"] /= kv
        unit = attn.mla_scale_q_lora * math.sqrt(config.qk_nope_head_dim * (s["kvb"] * kv) ** 2 +
                                                 config.qk_rope_head_dim * (s["kva"] * f2) ** 2)
    elif hasattr(attn, "kv_b_proj"):
        unit = math.sqrt(config.qk_nope_head_dim * s["kvb"] ** 2 + config.qk_rope_head_dim * (s["kva"] * f2) ** 2)
    else:
        unit = math.sqrt(attn.head_dim) * s["k"] * f2
    s["q"] = SCORE_STD * 0.8 ** level / (float(attn.scaling) * unit)
    return s


def std_of(name, p, s):
    """Weight scale by role; the fan-in is the last dimension."""
    fan = p.shape[-1]
    for key, role in (("embed_tokens", "embed"), ("lm_head", "head"), (".mlp.gate.weight", "gate"), ("classifier", "gate"),
                      ("q_a_proj", "qa"), ("q_b_proj", "q"), ("q_proj", "q"), ("k_proj", "k"),
                      ("kv_a_proj", "kva"), ("kv_b_proj", "kvb"), ("v_proj", "v"), ("o_proj", "o"),
                      ("experts.down_proj", "exp_down"), ("experts.gate_up_proj", "exp_up"),
                      ("down_proj", "down"), ("gate_proj", "up"), ("up_proj", "up"), ("eh_proj", "up")):
        if key in name:
            return s[role] if role == "embed" else s[role] / math.sqrt(fan)
    raise ValueError(name)


def make_weights(spec, config, seed, level):
    """Checkpoint tensors under the published names, in the stored dtypes; and the f32 values for FP8."""
    import torch
    g = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, spec.get("dtype", "bfloat16"))
    bmean, bstd = spec.get("bias", (0.0, 0.3))
    with torch.device("meta"):
        model = model_class(config)(config)
    std = scales(spec, config, model, level)
    shapes = {k: v for k, v in model.state_dict().items()}
    if config.tie_word_embeddings:
        shapes.pop("lm_head.weight", None)
    if spec.get("mtp") and longcat(model):
        h = config.hidden_size
        for k, s in (("norm.weight", (h,)), ("layers.0.eh_proj.weight", (h, 2 * h)), ("layers.0.enorm.m.weight", (h,))):
            shapes["model.mtp." + k] = torch.empty(s, device="meta")
    elif spec.get("mtp"):
        n, h = config.num_hidden_layers, config.hidden_size
        for k, s in (("enorm.weight", (h,)), ("hnorm.weight", (h,)), ("eh_proj.weight", (h, 2 * h)),
                     ("input_layernorm.weight", (h,)), ("self_attn.o_proj.weight", (h, 24)), ("shared_head.norm.weight", (h,))):
            shapes[f"model.layers.{n}.{k}"] = torch.empty(s, device="meta")
    out, deq = {}, {"tensors": {}}
    for name in sorted(shapes):
        p = shapes[name]
        if name.endswith("e_score_correction_bias"):
            out[name] = (bmean + bstd * torch.randn(p.shape, generator=g)).float()
            continue
        if "norm" in name:
            w = 1 + 0.2 * torch.randn(p.shape, generator=g)
            if "post_mlp_layernorm" in name:
                w *= spec.get("post", 1.0)
            if name == "model.norm.weight" and config.tie_word_embeddings:
                # a random sign per channel: otherwise a tied head would make every token repeat itself
                w *= torch.randint(0, 2, p.shape, generator=g) * 2 - 1
            out[name.replace(".mlp.post_mlp_", ".post_mlp_")] = w.to(dtype)  # as axk1's checkpoints have it
            continue
        if name.endswith(".bias"):
            branch = ".o_proj." in name or ".down_proj." in name
            out[name] = ((std["branch_bias"] if branch else 0.4) * torch.randn(p.shape, generator=g)).to(dtype)
            continue
        w = torch.randn(p.shape, generator=g) * std_of(name, p, std)
        if "kv_a_proj" in name:
            w[:config.kv_lora_rank] *= spec.get("lat", 1.0)
        elif "q_a_proj" in name:
            w *= spec.get("lat", 1.0)
        parts = {name: w}
        if ".mlp.experts." in name:
            pre = name[:name.index(".experts.") + len(".experts.")]
            parts = {}
            for e in range(config.n_routed_experts if longcat(model) else w.shape[0]):  # the others are the identity
                if name.endswith("gate_up_proj"):
                    a, b = w[e].chunk(2, dim=0)
                    parts[f"{pre}{e}.gate_proj.weight"], parts[f"{pre}{e}.up_proj.weight"] = a, b
                else:
                    parts[f"{pre}{e}.down_proj.weight"] = w[e]
        for k, v in parts.items():
            if spec.get("fp8") and not any(x in k for x in ("embed_tokens", "lm_head", ".mlp.gate.weight", "classifier", "mtp.")):
                r, c = v.shape
                q = torch.empty(r, c, dtype=torch.float8_e4m3fn)
                sc = torch.empty((r + 127) // 128, (c + 127) // 128)
                d = torch.empty(r, c)
                for i in range(sc.shape[0]):
                    for j in range(sc.shape[1]):
                        # a different magnitude per block, so that a swapped scale shows
                        blk = v[i * 128:i * 128 + 128, j * 128:j * 128 + 128] * (2 + (i + 2 * j) % 3) / 3
                        s = blk.abs().max() / 448.0
                        sc[i, j] = s
                        qb = (blk / s).to(torch.float8_e4m3fn)
                        q[i * 128:i * 128 + 128, j * 128:j * 128 + 128] = qb
                        d[i * 128:i * 128 + 128, j * 128:j * 128 + 128] = qb.float() * s
                out[k] = q
                out[k + "_scale_inv"] = sc
                deq[k] = d
            else:
                out[k] = v.to(dtype).contiguous()
    deq["tensors"] = out
    return out, deq


def route_terms(gate, x, cfg):
    """The values that are compared [N, experts], and how far each token's choice is from a tie [N].
    For a softmax these are the logits: same order, and the noise does not depend on the expert's share."""
    import torch
    weight = gate.weight if cfg.model_type != "longcat_flash" else gate.classifier.weight
    logits = x.float() @ weight.float().t()
    bias = getattr(gate, "e_score_correction_bias", None)
    if cfg.model_type == "longcat_flash":
        b = logits.softmax(-1) + bias
        ng = 1
    elif bias is None:
        b = logits
        ng = cfg.n_group if getattr(cfg, "topk_method", "greedy") != "greedy" else 1
        red = lambda t: t.max(-1).values
    else:
        b = logits.sigmoid() + bias
        ng = cfg.n_group
        red = lambda t: t.topk(2, -1)[0].sum(-1)
    all_b = b
    k, tg = cfg.num_experts_per_tok, getattr(cfg, "topk_group", 1)
    gap = torch.full((b.shape[0],), math.inf)
    if ng and ng > 1 and tg < ng:
        gs = red(b.view(b.shape[0], ng, -1))
        t = gs.topk(tg + 1, -1)[0]
        gap = (t[:, tg - 1] - t[:, tg]) / 1.5    # a sum of two moves by more
        idx = gs.topk(tg, -1)[1]
        m = torch.zeros_like(gs).scatter_(1, idx, 1).bool().repeat_interleave(b.shape[1] // ng, 1)
        b = b.masked_fill(~m, float("-inf"))
    t = b.topk(k + 1, -1)[0]
    return all_b, torch.minimum(gap, t[:, k - 1] - t[:, k])


@contextlib.contextmanager
def routes(model):
    """Collects (values, gaps) of every MoE layer's latest call, in order of layers."""
    rec, hooks = {}, []

    def add(i):
        def f(m, a, kw):
            x = a[0] if a else kw["hidden_states"]
            rec[i] = route_terms(router_of(model.model.layers[i]), x.reshape(-1, x.shape[-1]), model.config)
        return f

    for i, layer in enumerate(model.model.layers):
        if router_of(layer) is not None:
            hooks.append(layer.mlp.register_forward_pre_hook(add(i), with_kwargs=True))
    try:
        yield rec
    finally:
        for h in hooks:
            h.remove()


@contextlib.contextmanager
def bf16_cache(model):
    """Rounds to bfloat16 what an engine caches: normed latent and rotated rope key; K and V without MLA."""
    import torch
    layers = attentions(model)
    mod = sys.modules[type(layers[0]).__module__]
    old = mod.eager_attention_forward
    calls, hooks = [], []

    def rnd(t):
        return t.to(torch.bfloat16).to(t.dtype)

    def eager(module, query, key, value, *a, **kw):
        calls.append(1)
        if hasattr(module, "kv_a_layernorm"):
            n = module.qk_nope_head_dim
            key = torch.cat([key[..., :n], rnd(key[..., n:])], -1)
        else:
            key, value = rnd(key), rnd(value)
        return old(module, query, key, value, *a, **kw)

    for attn in layers:
        norm = getattr(attn, "kv_a_layernorm", None)
        if norm is not None:
            by = getattr(attn, "mla_scale_kv_lora", 1.0)  # the latent is cached with its factor
            hooks.append(norm.register_forward_hook(lambda m, a, out, by=by: rnd(out * by) / by))
    mod.eager_attention_forward = eager
    try:
        yield
    finally:
        mod.eager_attention_forward = old
        for h in hooks:
            h.remove()
    assert len(calls) == len(layers), "the rounding was bypassed"


def logits_of(model, tokens):
    import torch
    return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].float()


def both(model, tokens):
    """Logits and routes without and with a BF16 cache, and what to compare them by."""
    with routes(model) as r32:
        l32 = logits_of(model, tokens)
    with routes(model) as r16, bf16_cache(model):
        l16 = logits_of(model, tokens)
    p, q = l32.double().log_softmax(-1), l16.double().log_softmax(-1)
    row = (l32 - l16).abs().max(-1).values
    kl = (p.exp() * (p - q)).sum(-1)
    ratio, moved = {}, {}
    for i, (b, gap) in r32.items():
        d = (b - r16[i][0]).abs().max(-1).values
        moved[i] = d.pow(2).mean().sqrt().clamp(min=MIN_ROUTE / ROUTE_RATIO)
        ratio[i] = gap / d.clamp(min=moved[i].item())
    return {"l32": l32, "l16": l16, "row": row, "kl": kl, "ratio": ratio, "moved": moved,
            "gap": {i: g for i, (_, g) in r32.items()}}


def settle_prompt(model, tokens, gen):
    """Replaces tokens of the prompt until no routing decision in it is close; None if noise or patience forbids."""
    import torch
    for _ in range(60):
        x = both(model, tokens)
        if x["row"].max() > MAX_DIFF or x["kl"].max() > MAX_KL:
            bad_noise = True
        else:
            bad_noise = False
        bad = torch.zeros(len(tokens), dtype=torch.bool)
        for r in x["ratio"].values():
            bad |= r < ROUTE_RATIO
        if not bad.any():
            return None if bad_noise else tokens, x
        for t in bad.nonzero()[:, 0].tolist():
            tokens[t] = int(torch.randint(0, model.config.vocab_size, (1,), generator=gen))
    return None, x


def promising(model, tokens, last_tokens, x):
    """Greedy continuations for many last tokens at once, with a cache; those that look far enough from any tie."""
    import torch
    n = len(last_tokens)
    seq = torch.tensor([tokens]).repeat(n, 1)
    seq[:, -1] = last_tokens
    need = max(MIN_MARGIN, MARGIN_RATIO * 1.15 * x["row"].median().item())
    alive, low, out, cache = torch.ones(n, dtype=torch.bool), torch.full((n,), math.inf), [], None
    died = 0
    with routes(model) as rec:
        for step in range(STEPS):
            o = model(input_ids=seq, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = o.past_key_values
            for i, (_, gap) in rec.items():
                alive &= gap.view(n, -1)[:, -1] >= 1.2 * ROUTE_RATIO * x["moved"][i]
            last = o.logits[:, -1].float()
            top = last.topk(2, -1).values
            low = torch.minimum(low, top[:, 0] - top[:, 1])
            alive &= low >= need
            seq = last.argmax(-1, keepdim=True)
            out.append(seq[:, 0])
            if not alive.any():
                break
            died = step
    res = []
    if alive.any():
        out = torch.stack(out, 1)
        for i in low.argsort(descending=True).tolist():
            if alive[i] and len(set(out[i].tolist())) >= MIN_DISTINCT:
                res.append((int(last_tokens[i]), out[i].tolist()))
    return res, died


def judge(model, tokens, greedy):
    """All conditions over prompt and continuation, without a cache. (problem or None, figures, margins)"""
    import torch
    x = both(model, tokens + greedy[:-1])
    tail = slice(len(tokens) - 1, None)
    want = torch.tensor(greedy)
    top = x["l32"][tail].topk(2, -1).values
    margin = top[:, 0] - top[:, 1]
    mr = (margin / x["row"][tail].clamp(min=1e-9)).min().item()
    rr = min((r.min().item() for r in x["ratio"].values()), default=None)
    rg = min((g.min().item() for g in x["gap"].values()), default=None)
    rows = torch.tensor(ROWS)
    info = {"min_margin": margin.min().item(), "min_route_gap": rg, "distinct": len(set(greedy)),
            "logit_std": x["l32"].std().item(), "bf16_margin_ratio": mr, "bf16_route_ratio": rr,
            "bf16_logit_diff": x["row"][rows].max().item(), "bf16_logit_diff_all": x["row"].max().item(),
            "bf16_kl": x["kl"][rows].max().item(), "bf16_kl_all": x["kl"].max().item()}
    if not torch.equal(x["l32"][tail].argmax(-1), want) or not torch.equal(x["l16"][tail].argmax(-1), want):
        return "another token", info, margin
    if info["bf16_logit_diff_all"] > MAX_DIFF or info["bf16_kl_all"] > MAX_KL:
        return "noise", info, margin
    if mr < MARGIN_RATIO or info["min_margin"] < MIN_MARGIN:
        return "margin", info, margin
    if rr is not None and rr < ROUTE_RATIO:
        return "route", info, margin
    return None, info, margin


def capture(model, tokens):
    """Forward over the prompt with captures."""
    import torch
    cap, hooks, sharp = {}, [], []
    core = model.model
    rows = torch.tensor(ROWS)

    def keep(key):
        def f(_m, _a, _k, out):
            t = out[0] if isinstance(out, tuple) else out
            if key.endswith("attn_out") and out[1] is not None:
                sharp.append(out[1][0, :, 32:].max(-1).values.mean().item())
            cap[key] = t.reshape(1, -1, t.shape[-1])[0, rows].float().clone()
        return f

    def keep_in(key):
        def f(_m, a, kw):
            t = a[0] if a else kw["hidden_states"]
            cap[key] = t[0, rows].float().clone()
        return f

    for i, attn in enumerate(attentions(model)):
        hooks.append(attn.register_forward_hook(keep(f"layers.{i}.attn_out"), with_kwargs=True))
    for i, layer in enumerate(core.layers):
        if longcat(model):  # each layer is two of nibble's, and the experts' sum is added in the second
            hooks.append(layer.mlps[0].register_forward_hook(keep(f"layers.{2 * i}.mlp_out"), with_kwargs=True))
            hooks.append(layer.input_layernorm[1].register_forward_pre_hook(keep_in(f"layers.{2 * i}.out"), with_kwargs=True))
            hooks.append(layer.mlps[1].register_forward_hook(keep(f"layers.{2 * i + 1}.mlp_out"), with_kwargs=True))
            hooks.append(layer.mlp.register_forward_hook(keep(f"layers.{2 * i}.experts"), with_kwargs=True))
            hooks.append(layer.register_forward_hook(keep(f"layers.{2 * i + 1}.out"), with_kwargs=True))
            continue
        hooks.append(layer.mlp.register_forward_hook(keep(f"layers.{i}.mlp_out"), with_kwargs=True))
        hooks.append(layer.register_forward_hook(keep(f"layers.{i}.out"), with_kwargs=True))
    hooks.append(core.layers[0].register_forward_pre_hook(keep_in("embed"), with_kwargs=True))
    hooks.append(model.lm_head.register_forward_pre_hook(keep_in("final_norm"), with_kwargs=True))
    cap["logits"] = logits_of(model, tokens)[rows].clone()
    for i in range(len(core.layers) if longcat(model) else 0):
        cap[f"layers.{2 * i + 1}.mlp_out"] += cap[f"layers.{2 * i}.experts"]
    for h in hooks:
        h.remove()
    return cap, sum(sharp) / max(1, len(sharp))


# ------------------------------------------------------------------------------------------------
def measure_mutations(model, tokens):
    rows, res = ROWS, {}
    base = logits_of(model, tokens)[rows]
    for name, ctx in mutations(model).items():
        try:
            with ctx:
                res[name] = float(f"{(logits_of(model, tokens)[rows] - base).abs().max().item():.2g}")
        except Exception as e:
            res[name] = f"{type(e).__name__}: {e}"[:80]
    assert (logits_of(model, tokens)[rows] - base).abs().max().item() == 0
    return res


def write_checkpoint(d, spec, config, tensors):
    import torch
    from safetensors.torch import save_file
    os.makedirs(d, exist_ok=True)
    if spec.get("published"):
        with open(os.path.join(d, "config.json"), "w") as f:
            json.dump(spec["cfg"], f, indent=2)
            f.write("\n")
    else:
        config.architectures = [model_class(config).__name__]
        config.dtype = getattr(torch, spec.get("dtype", "bfloat16"))
        config.save_pretrained(d)
    if spec.get("outer"):
        wrap(d, spec["outer"])
    tensors = stored(spec, tensors)
    meta = {"format": "pt"}
    if not spec.get("sharded"):
        save_file(tensors, os.path.join(d, "model.safetensors"), metadata=meta)
        return
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    shards, cur, size = [], {}, 0
    for k in sorted(tensors):
        n = tensors[k].numel() * tensors[k].element_size()
        if cur and size + n > total / 3 and len(shards) < 2:
            shards.append(cur)
            cur, size = {}, 0
        cur[k] = tensors[k]
        size += n
    shards.append(cur)
    index = {"metadata": {"total_size": total}, "weight_map": {}}
    for i, s in enumerate(shards):
        fn = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(s, os.path.join(d, fn), metadata=meta)
        for k in s:
            index["weight_map"][k] = fn
    with open(os.path.join(d, "model.safetensors.index.json"), "w") as f:
        json.dump(index, f, indent=2, sort_keys=True)
        f.write("\n")


def wrap(d, outer):
    """config.json becomes text_config of a model with vision."""
    path = os.path.join(d, "config.json")
    text = json.load(open(path))
    text.pop("architectures", None)
    whole = {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": outer, "text_config": text,
             "vision_config": {"model_type": "pixtral"}, "dtype": text.pop("dtype", "bfloat16"), "image_token_id": 10}
    with open(path, "w") as f:
        json.dump(whole, f, indent=2)
        f.write("\n")


def stacked(tensors):
    """All experts of a layer in one tensor, gate above up."""
    import torch
    out, parts = {}, {}
    for k, v in tensors.items():
        if ".mlp.experts." not in k:
            out[k] = v
            continue
        pre, rest = k.split(".mlp.experts.")
        e, role = rest.split(".")[:2]
        parts.setdefault(pre + ".mlp.experts.", {}).setdefault(role, {})[int(e)] = v
    for pre, roles in parts.items():
        n = len(roles["down_proj"])
        out[pre + "down_proj"] = torch.stack([roles["down_proj"][e] for e in range(n)])
        out[pre + "gate_up_proj"] = torch.stack([torch.cat([roles["gate_proj"][e], roles["up_proj"][e]]) for e in range(n)])
    return out


def stored(spec, tensors):
    """What stands in the file: names of a part of another model, and its vision's."""
    import torch
    if spec.get("stacked"):
        tensors = stacked(tensors)
    if not spec.get("outer"):
        return tensors
    out = {("model.language_model." + k[6:] if k.startswith("model.") else k): v for k, v in tensors.items()}
    out["model.vision_tower.patch_conv.weight"] = torch.zeros(4, 3, 2, 2, dtype=torch.bfloat16)
    out["model.multi_modal_projector.linear_1.weight"] = torch.zeros(8, 8, dtype=torch.bfloat16)
    return out


def load_own(config, tensors):
    """The model without from_pretrained: it has no loader for mistral4's text, and longcat_flash has rows for experts
    that are the identity."""
    import torch
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = model_class(config)(config).float()
    state = {k: v.float() for k, v in stacked(tensors).items() if not k.startswith("model.mtp.")}
    for k, v in model.state_dict().items():
        if longcat(model) and k in state and state[k].shape != v.shape and state[k].shape[1:] == v.shape[1:]:
            state[k] = torch.cat([state[k], torch.zeros(v.shape[0] - state[k].shape[0], *v.shape[1:])])
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    assert model.config._attn_implementation == "eager"
    return model.eval()


def load_back(d, spec, config, deq):
    """The model as from_pretrained reads it, in f32; FP8 goes through a dequantised copy."""
    import torch
    from safetensors.torch import load_file, save_file
    tmp = None
    src = d
    if spec["cfg"]["model_type"] in ("mistral4", "longcat_flash"):
        own = {k: deq.get(k, v) for k, v in deq["tensors"].items() if not k.endswith("_scale_inv")}
        return load_own(make_config(spec["cfg"]), own)
    if spec.get("fp8") or spec["cfg"]["model_type"] in AS_V3:
        tmp = tempfile.mkdtemp()
        src = tmp
        t = load_file(os.path.join(d, "model.safetensors"))
        t = {k: deq.get(k, v) for k, v in t.items() if not k.endswith("_scale_inv")}
        save_file(t, os.path.join(tmp, "model.safetensors"), metadata={"format": "pt"})
        cfg = as_class(spec["cfg"])
        with open(os.path.join(tmp, "config.json"), "w") as f:
            json.dump(cfg, f)
    import transformers as tf
    model, info = tf.AutoModelForCausalLM.from_pretrained(
        src, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
    if tmp:
        shutil.rmtree(tmp)
    model.eval()
    assert not info["missing_keys"], info
    un = [k for k in info["unexpected_keys"] if f"layers.{config.num_hidden_layers}." not in k]
    assert not un and not info["mismatched_keys"], info
    return model


def verify(model, spec, tensors, deq):
    """Every checkpoint tensor is in the loaded model, value for value; save_pretrained gives the same names."""
    import torch
    from safetensors.torch import load_file
    sd = model.state_dict()
    for k, t in tensors.items():
        if k.endswith("_scale_inv") or f"layers.{model.config.num_hidden_layers}." in k or k.startswith("model.mtp."):
            continue
        want = deq.get(k, t.float() if t.dtype != torch.float8_e4m3fn else None)
        if ".mlp.experts." in k:
            pre, rest = k.split(".mlp.experts.")
            e, role = rest.split(".")[:2]
            if role == "down_proj":
                got = sd[f"{pre}.mlp.experts.down_proj"][int(e)]
            else:
                a, b = sd[f"{pre}.mlp.experts.gate_up_proj"][int(e)].chunk(2, dim=0)
                got = a if role == "gate_proj" else b
        else:
            got = sd[k.replace(".post_mlp_", ".mlp.post_mlp_")]
        assert got.dtype == torch.float32 and torch.equal(got, want), k
    if model.config.model_type in ("mistral4", "longcat_flash"):
        return []
    tmp = tempfile.mkdtemp()
    model.save_pretrained(tmp)
    names = set()
    for f in os.listdir(tmp):
        if f.endswith(".safetensors"):
            names |= set(load_file(os.path.join(tmp, f)))
    shutil.rmtree(tmp)
    mine = {k for k in tensors if not k.endswith("_scale_inv") and f"layers.{model.config.num_hidden_layers}." not in k}
    return sorted(names ^ mine)


def check_v2_scale(model):
    cfg = model.config
    if cfg.model_type != "deepseek_v2":
        return
    m = 0.1 * 0.707 * math.log(40) + 1
    want = (cfg.qk_nope_head_dim + cfg.qk_rope_head_dim) ** -0.5 * m * m
    got = model.model.layers[0].self_attn.scaling
    assert abs(got - want) < 1e-9, (got, want)


def search_seed(model, seed):
    """Prompt, continuation and figures for this checkpoint, or None and why not."""
    import torch
    gen = torch.Generator().manual_seed(100000 + seed)
    vocab = model.config.vocab_size
    why = {}
    for _ in range(3):
        tokens = torch.randint(0, vocab, (PROMPT,), generator=gen).tolist()
        tokens, x = settle_prompt(model, tokens, gen)
        why["prompt_diff"], why["prompt_kl"] = x["row"].max().item(), x["kl"].max().item()
        why["row_median"] = x["row"].median().item()
        if tokens is None:
            bad = why["prompt_diff"] > MAX_DIFF or why["prompt_kl"] > MAX_KL
            why["noise" if bad else "unsettled"] = 1 + why.get("noise" if bad else "unsettled", 0)
            if bad:
                return None, why
            continue
        perm = torch.randperm(vocab, generator=gen)
        for part in perm.split(BATCH):
            found, steps = promising(model, tokens, part, x)
            why["furthest"] = max(steps, why.get("furthest", 0))
            for last, greedy in found[:8]:
                full = tokens[:-1] + [last]
                problem, info, margin = judge(model, full, greedy)
                if problem is None:
                    return (full, greedy, margin, info), why
                why[problem] = 1 + why.get(problem, 0)
    return None, why


def raw_case(name, out, seed=1, level=2):
    """Without the search: any prompt, whatever a BF16 cache does to it."""
    import torch
    from safetensors.torch import save_file
    spec = CASES[name]
    config = make_config(spec["cfg"])
    d = os.path.join(out, name)
    shutil.rmtree(d, ignore_errors=True)
    tensors, deq = make_weights(spec, config, seed, level)
    write_checkpoint(d, spec, make_config(spec["cfg"]), tensors)
    model = load_back(d, spec, config, deq)
    tokens = torch.randint(0, config.vocab_size, (PROMPT,), generator=torch.Generator().manual_seed(7)).tolist()
    greedy, margin = [], []
    for _ in range(STEPS):
        top = logits_of(model, tokens + greedy)[-1].topk(2)
        greedy.append(int(top.indices[0]))
        margin.append(float(top.values[0] - top.values[1]))
    e = {k: v.contiguous() for k, v in capture(model, tokens)[0].items()}
    e["tokens"] = torch.tensor(tokens, dtype=torch.int32)
    e["rows"] = torch.tensor(ROWS, dtype=torch.int32)
    e["greedy"] = torch.tensor(greedy, dtype=torch.int32)
    e["greedy_margin"] = torch.tensor(margin)
    save_file(e, os.path.join(d, "expected.safetensors"), metadata={"case": name, "seed": str(seed)})
    return {"seed": seed, "level": level, "raw": True, "min_margin": min(margin),
            "softmax_scale": attentions(model)[0].scaling, "rope_factor": float(model.model.rotary_emb.attention_scaling),
            "mutations": measure_mutations(model, tokens)}


def run_case(job):
    name, out, lane, first, tries, limit = job
    log = []
    try:
        import torch
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        import transformers
        transformers.logging.set_verbosity_error()
        from safetensors.torch import save_file
        spec = CASES[name]
        d = os.path.join(out, name)
        start, noisy = time.time(), 0
        for k in range(tries):
            seed, level = first + k, min(4, noisy // 2)
            if time.time() - start > limit:
                break
            config = make_config(spec["cfg"])
            tensors, deq = make_weights(spec, config, seed, level)
            tmp = tempfile.mkdtemp()
            write_checkpoint(tmp, spec, make_config(spec["cfg"]), tensors)
            model = load_back(tmp, spec, config, deq)
            check_v2_scale(model)
            found, why = search_seed(model, seed)
            log.append({"seed": seed, "level": level, **why})
            noisy += 1 if "noise" in why else 0
            if found is None:
                shutil.rmtree(tmp)
                continue
            tokens, greedy, margin, info = found
            cap, sharp = capture(model, tokens)
            info.update(seed=seed, level=level, softmax_scale=attentions(model)[0].scaling,
                        rope_factor=float(model.model.rotary_emb.attention_scaling), attn_sharpness=sharp)
            diff = verify(model, spec, tensors, deq)
            info["mutations"] = measure_mutations(model, tokens)
            shutil.rmtree(d, ignore_errors=True)
            shutil.move(tmp, d)
            e = {k: v.contiguous() for k, v in cap.items()}
            e["tokens"] = torch.tensor(tokens, dtype=torch.int32)
            e["rows"] = torch.tensor(ROWS, dtype=torch.int32)
            e["greedy"] = torch.tensor(greedy, dtype=torch.int32)
            e["greedy_margin"] = margin.float().contiguous()
            meta = {"generator": "transformers " + transformers.__version__, "case": name, "seed": str(seed)}
            save_file(e, os.path.join(d, "expected.safetensors"), metadata=meta)
            for f in os.listdir(d):
                os.chmod(os.path.join(d, f), 0o644)
            os.chmod(d, 0o755)
            info["bytes"] = sum(os.path.getsize(os.path.join(d, f)) for f in os.listdir(d))
            info["name_diff_to_save_pretrained"] = diff[:6]
            # the error of f32 itself; last, since it changes the model
            try:
                x64 = logits_of(model.double(), tokens)[ROWS]
                info["f32_error"] = (x64 - cap["logits"]).abs().max().item()
            except RuntimeError as err:
                info["f32_error"] = str(err)[:80]
            return name, lane, info, log, None
        return name, lane, None, log, "no seed passed"
    except Exception:
        return name, lane, None, log, traceback.format_exc()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    ap.add_argument("--only", default="")
    ap.add_argument("--tries", type=int, default=200)
    ap.add_argument("--lanes", type=int, default=0)
    ap.add_argument("--limit", type=float, default=600.0)
    ap.add_argument("--raw", action="store_true", help="no search: the first seed and prompt")
    a = ap.parse_args()
    names = [n for n in a.only.split(",") if n] or list(CASES)
    lanes = [os.path.join(a.out, str(i)) for i in range(a.lanes)] or [a.out]
    tables, bad = [], 0
    for d in lanes:
        os.makedirs(d, exist_ok=True)
        path = os.path.join(d, "cases.json")
        tables.append(json.load(open(path)) if os.path.exists(path) else {})
    import torch, transformers  # noqa: F401  (imported once, before the workers fork)
    if a.raw:
        torch.set_grad_enabled(False)
        for n in names:
            tables[0][n] = {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in raw_case(n, a.out).items()}
        with open(os.path.join(a.out, "cases.json"), "w") as f:
            json.dump(tables[0], f, indent=1, sort_keys=True)
            f.write("\n")
        return 0
    jobs = [(n, lanes[i], i, 1000 * i + 1 if a.lanes else FIRST_SEED.get(n, 1), a.tries, a.limit)
            for i in range(len(lanes)) for n in names]
    with mp.get_context("fork").Pool(min(a.jobs, len(jobs)), maxtasksperchild=4) as pool:
        for name, lane, info, log, err in pool.imap_unordered(run_case, jobs, chunksize=1):
            brief = {k: v for k, v in (info or {}).items() if k not in ("softmax_scale", "rope_factor")}
            print(lane, name, json.dumps(brief), "tried:", len(log), json.dumps(log[-1:] if info else log[-4:]), flush=True)
            if err:
                bad += 1
                print(lane, name, "FAILED:", err, flush=True)
                continue
            tables[lane][name] = {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in info.items()}
            with open(os.path.join(lanes[lane], "cases.json"), "w") as f:
                json.dump(tables[lane], f, indent=1, sort_keys=True)
                f.write("\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
