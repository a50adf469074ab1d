#!/usr/bin/env python3
"""Parity cases with an indexer (deepseek_v32, glm_moe_dsa): a model whose choices are far from any tie.

    python3 parity_dsa.py OUTDIR [CASE...]

A row's attention depends on which tokens its indexer chooses, so logits jump where two scores are close.  The
search takes the seed whose choices (of tokens and of experts) are furthest from a tie, over the prompt and the
40 greedy tokens.  float32 only: what a rounded cache changes is measured by nibble-parity.

expected.safetensors has beside the usual tensors, of every layer I with an indexer of its own,
    layers.I.index        I32 [tokens][index_topk]: the chosen positions in ascending order, then -1
    layers.I.index_score  F32 [10 rows][tokens]: the scores, -inf behind the row's own position
"""
import contextlib
import json
import math
import os
import shutil
import sys
import tempfile
import time

import make_vectors as mv
from parity_cases import BASE, CASES, SMALL_MOE, YARN_V3, case

DSA = {"index_n_heads": 12, "index_head_dim": 32, "index_topk": 24}
V32 = {**BASE, **SMALL_MOE, **DSA, "hidden_size": 72, "num_attention_heads": 4, "num_key_value_heads": 4,
       "q_lora_rank": 44, "kv_lora_rank": 40, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 20,
       "n_routed_experts": 12, "num_experts_per_tok": 4, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
       "attention_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": False}

case("v32", {
    "architectures": ["DeepseekV32ForCausalLM"], **V32, "model_type": "deepseek_v32", "n_group": 4, "topk_group": 2,
    "ep_size": 1, "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "rms_norm_eps": 1e-6, "max_position_embeddings": 163840, "rope_theta": 10000, "rope_scaling": YARN_V3,
    "torch_dtype": "bfloat16"},
    "V3.2: an indexer in every layer, half-split rotation of its first values, k_norm with a bias, yarn; old spelling",
    published=True, bias=(-0.3, 0.5), dsa=True)
case("v32_fp8", {
    "architectures": ["DeepseekV32ForCausalLM"], **V32, "model_type": "deepseek_v32", "num_hidden_layers": 2,
    "hidden_size": 136, "q_lora_rank": 132, "index_n_heads": 10, "index_head_dim": 64, "index_topk": 16, "n_group": 1,
    "topk_group": 1, "n_routed_experts": 6, "num_experts_per_tok": 2, "rms_norm_eps": 1e-6, "max_position_embeddings": 163840,
    "rope_theta": 10000, "rope_scaling": YARN_V3, "torch_dtype": "bfloat16",
    "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}},
    "V3.2 in FP8 with block scales, wq_b and wk too (weights_proj is not)", published=True, fp8=True, dsa=True)
GLM = {**V32, "model_type": "glm_moe_dsa", "n_group": 1, "topk_group": 1, "qk_nope_head_dim": 24, "v_head_dim": 32,
       "rms_norm_eps": 1e-5, "max_position_embeddings": 202752, "moe_layer_freq": 1, "rope_interleave": True,
       "indexer_rope_interleave": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "num_nextn_predict_layers": 1,
       "eos_token_id": [1, 2], "ep_size": 1, "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
       "dtype": "bfloat16"}
case("glm5", {
    "architectures": ["GlmMoeDsaForCausalLM"], **GLM},
    "GLM-5: the indexer rotates interleaved pairs, v wider than nope, list of eos", published=True, dsa=True)
case("glm52", {
    "architectures": ["GlmMoeDsaForCausalLM"], **GLM, "num_hidden_layers": 6, "n_routed_experts": 6, "num_experts_per_tok": 2,
    "index_topk": 32, "index_topk_freq": 3, "index_skip_topk_offset": 2, "index_topk_pattern": None,
    "indexer_types": ["full", "full", "shared", "shared", "full", "shared"], "head_dim": 192,
    "mlp_layer_types": ["dense"] + ["sparse"] * 5, "index_share_for_mtp_iteration": True},
    "GLM-5.2: layers without an indexer attend to what the layer before chose; head_dim is not read", published=True, dsa=True)

NAMES = ["v32", "v32_fp8", "glm5", "glm52"]
MIN_INDEX_GAP = 2e-5  # between the last score that is chosen and the first that is not, of the row's largest

_std_of = mv.std_of


def std_of(name, p, s):
    return 1.3 / math.sqrt(p.shape[-1]) if ".indexer." in name else _std_of(name, p, s)


mv.std_of = std_of


def make_weights(spec, config, seed, level):
    """As make_vectors, with a k_norm that has a bias (F32), and weights_proj that no FP8 form touches."""
    import torch
    tensors, deq = mv.make_weights(spec, config, seed, level)
    g = torch.Generator().manual_seed(7000 + seed)
    for k in sorted(tensors):
        if k.endswith("k_norm.weight"):
            tensors[k] = (1 + 0.2 * torch.randn(tensors[k].shape, generator=g)).float()
        elif k.endswith("k_norm.bias"):
            tensors[k] = (0.3 * torch.randn(tensors[k].shape, generator=g)).float()
        elif k.endswith("weights_proj.weight"):
            w = torch.randn(tensors[k].shape, generator=g) / math.sqrt(tensors[k].shape[-1])
            tensors[k] = w.to(torch.bfloat16)
            deq.pop(k, None)
    for k in [k for k in tensors if k.endswith("weights_proj.weight_scale_inv")]:
        del tensors[k]
    return tensors, deq


@contextlib.contextmanager
def choices(model):
    """Collects {layer: (scores or None, indices)} of the indexers' latest calls."""
    import torch
    rec, hooks, now = {}, [], []
    old = torch.Tensor.topk

    def topk(t, *a, **kw):
        if now:
            rec.setdefault(now[-1], [None, None])[0] = t.detach().float().clone()
        return old(t, *a, **kw)

    def enter(i):
        def f(_m, _a, _k):
            now.append(i)
        return f

    def leave(i):
        def f(_m, _a, _k, out):
            now.pop()
            t = out[0] if isinstance(out, tuple) else out
            rec.setdefault(i, [None, None])[1] = t.detach().clone()
        return f

    for i, layer in enumerate(model.model.layers):
        x = getattr(layer.self_attn, "indexer", None)
        if x is not None:
            hooks.append(x.register_forward_pre_hook(enter(i), with_kwargs=True))
            hooks.append(x.register_forward_hook(leave(i), with_kwargs=True))
    torch.Tensor.topk = topk
    try:
        yield rec
    finally:
        torch.Tensor.topk = old
        for h in hooks:
            h.remove()


def index_gap(rec, k):
    """The smallest distance of a choice from a tie, relative to the row's largest score."""
    worst = math.inf
    for scores, _ in rec.values():
        if scores is None:
            return math.nan
        s = scores.reshape(-1, scores.shape[-1])
        for row in range(k, s.shape[0]):
            t = s[row, :row + 1].sort(descending=True).values
            worst = min(worst, ((t[k - 1] - t[k]) / t.abs().max().clamp(min=1e-9)).item())
    return worst


def gaps(model, tokens):
    with choices(model) as rec, mv.routes(model) as routes:
        logits = mv.logits_of(model, tokens)
    route = min((g.min().item() for _, g in routes.values()), default=math.inf)
    return logits, index_gap(rec, model.config.index_topk), route, rec


def greedy(model, tokens):
    seq = list(tokens)
    margins = []
    for _ in range(mv.STEPS):
        top = mv.logits_of(model, seq)[-1].topk(2)
        margins.append((top.values[0] - top.values[1]).item())
        seq.append(int(top.indices[0]))
    return seq[len(tokens):], margins


def quality(index, route, margin):
    index = 1.0 if math.isnan(index) else index
    return min(index / MIN_INDEX_GAP, route / mv.MIN_ROUTE, margin / 1e-3)


def load(name, seed):
    spec = CASES[name]
    config = mv.make_config(spec["cfg"])
    tensors, deq = make_weights(spec, config, seed, 1)
    tmp = tempfile.mkdtemp()
    mv.write_checkpoint(tmp, spec, mv.make_config(spec["cfg"]), tensors)
    model = mv.load_back(tmp, spec, config, deq)
    return tmp, model, tensors, deq


def search(name, seconds):
    """(quality, seed, tokens, greedy, margins) of the best seed in so many seconds."""
    import torch
    best, start, seed, tried = None, time.time(), 0, 0
    while time.time() - start < seconds or best is None:
        seed += 1
        if time.time() - start > 4 * seconds + 20:
            break
        tmp, model, _, _ = load(name, seed)
        shutil.rmtree(tmp)
        gen = torch.Generator().manual_seed(100000 + seed)
        for _ in range(6):
            tokens = torch.randint(0, model.config.vocab_size, (mv.PROMPT,), generator=gen).tolist()
            _, ig, rg, _ = gaps(model, tokens)
            tried += 1
            if best is not None and quality(ig, rg, 1) <= best[0]:
                continue
            out, margins = greedy(model, tokens)
            if len(set(out)) < 8:
                continue
            _, ig, rg, _ = gaps(model, tokens + out[:-1])
            q = quality(ig, rg, min(margins))
            if best is None or q > best[0]:
                best = (q, seed, tokens, out, margins, ig, rg)
            if q > 4:
                return best, tried
    return best, tried


@contextlib.contextmanager
def swapped(mod, a, b):
    old = getattr(mod, a)
    setattr(mod, a, getattr(mod, b))
    try:
        yield
    finally:
        setattr(mod, a, old)


def effects(model, tokens):
    """How far mistakes of an indexer move the logits."""
    import torch
    from parity_mutations import changed
    idx = [layer.self_attn.indexer for layer in model.model.layers if getattr(layer.self_attn, "indexer", None) is not None]
    base = mv.logits_of(model, tokens)[mv.ROWS]
    mod = sys.modules[type(idx[0]).__module__]
    out = {
        "dense": lambda: changed([(x, "index_topk", 1 << 20) for x in idx]),
        "one more": lambda: changed([(x, "index_topk", x.index_topk + 1) for x in idx]),
        "no k_norm bias": lambda: changed([(x.k_norm, "bias", 0.0) for x in idx]),
        "k_norm weight 1": lambda: changed([(x.k_norm, "weight", 1.0) for x in idx]),
        "equal head weights": lambda: changed([(x.weights_proj, "weight", 0.0) for x in idx]),
        "half-split": lambda: swapped(mod, "apply_rotary_pos_emb_interleave", "apply_rotary_pos_emb"),
        "interleaved": lambda: swapped(mod, "apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave"),
    }
    res = {}
    for name, ctx in out.items():
        try:
            with ctx():
                res[name] = (mv.logits_of(model, tokens)[mv.ROWS] - base).abs().max().item()
        except Exception as e:
            res[name] = f"{type(e).__name__}: {e}"[:80]
    return res


def chosen(idx, scores, row, k):
    """Positions that a row attends to: from indices, or from a mask that is added (0: chosen)."""
    t = idx.reshape(-1, idx.shape[-1])[row]
    if t.dtype.is_floating_point:
        got = (t == 0).nonzero()[:, 0].tolist()
    elif str(t.dtype) == "torch.bool":
        got = t.nonzero()[:, 0].tolist()
    else:
        got = t.long().tolist()
    got = sorted({x for x in got if x <= row})
    if scores is not None:
        top = scores.reshape(-1, scores.shape[-1])[row, :row + 1].sort(descending=True, stable=True).indices[:k]
        if sorted(top.tolist()) != got:
            print("   row", row, "differs from the top scores", flush=True)
    return got[:k]


def run(name, out, seconds):
    import torch
    import transformers
    from safetensors.torch import save_file
    spec = CASES[name]
    best, tried = search(name, seconds)
    q, seed, tokens, out_ids, margins, ig, rg = best
    tmp, model, tensors, deq = load(name, seed)
    cap, sharp = mv.capture(model, tokens)
    _, _, _, rec = gaps(model, tokens)
    k = model.config.index_topk
    e = {n: v.contiguous() for n, v in cap.items()}
    for i, (scores, idx) in rec.items():
        table = torch.full((len(tokens), k), -1, dtype=torch.int32)
        for row in range(len(tokens)):
            got = chosen(idx, scores, row, k)
            table[row, :len(got)] = torch.tensor(got, dtype=torch.int32)
        e[f"layers.{i}.index"] = table
        if scores is not None:
            s = scores.reshape(len(tokens), -1)[mv.ROWS].clone()
            for n, row in enumerate(mv.ROWS):
                s[n, row + 1:] = -math.inf
            e[f"layers.{i}.index_score"] = s.contiguous()
    e["tokens"] = torch.tensor(tokens, dtype=torch.int32)
    e["rows"] = torch.tensor(mv.ROWS, dtype=torch.int32)
    e["greedy"] = torch.tensor(out_ids, dtype=torch.int32)
    e["greedy_margin"] = torch.tensor(margins, dtype=torch.float32)
    info = {"seed": seed, "tried": tried, "quality": q, "min_index_gap": ig, "min_route_gap": rg, "min_margin": min(margins),
            "distinct": len(set(out_ids)), "attn_sharpness": sharp,
            "softmax_scale": float(model.model.layers[0].self_attn.scaling),
            "rope_factor": float(model.model.rotary_emb.attention_scaling)}
    try:
        info["name_diff_to_save_pretrained"] = mv.verify(model, spec, tensors, deq)[:6]
    except Exception as err:
        info["verify"] = f"{type(err).__name__}: {err}"[:200]
    try:
        info["mutations"] = {**mv.measure_mutations(model, tokens), **effects(model, tokens)}
    except Exception as err:
        info["mutations"] = f"{type(err).__name__}: {err}"[:200]
    d = os.path.join(out, name)
    shutil.rmtree(d, ignore_errors=True)
    shutil.move(tmp, d)
    save_file(e, os.path.join(d, "expected.safetensors"),
              metadata={"generator": "transformers " + transformers.__version__, "case": name, "seed": str(seed)})
    for f in os.listdir(d):
        os.chmod(os.path.join(d, f), 0o644)
    os.chmod(d, 0o755)
    info["bytes"] = sum(os.path.getsize(os.path.join(d, f)) for f in os.listdir(d))
    try:
        x64 = mv.logits_of(model.double(), tokens)[mv.ROWS]
        info["f32_error"] = (x64 - cap["logits"]).abs().max().item()
    except Exception as err:
        info["f32_error"] = str(err)[:80]
    with open(os.path.join(out, name + ".json"), "w") as f:
        json.dump(info, f, indent=1, sort_keys=True)
        f.write("\n")
    print(name, json.dumps(info), flush=True)
    for n in sorted(e):
        print("  ", n, tuple(e[n].shape), e[n].dtype, flush=True)


def main():
    import torch
    import transformers
    torch.set_num_threads(8)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    os.makedirs(sys.argv[1], exist_ok=True)
    for name in sys.argv[2:] or NAMES:
        run(name, sys.argv[1], 12)


if __name__ == "__main__":
    main()
