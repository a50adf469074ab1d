"""Mistakes an engine could make, made by the transformers model: how far each moves the logits."""
import contextlib
import math


@contextlib.contextmanager
def changed(pairs):
    """Sets attributes (object, name, value) and puts them back; tensors are changed in place."""
    import torch
    old = []
    try:
        for o, n, v in pairs:
            t = getattr(o, n)
            if isinstance(t, torch.Tensor):
                old.append((o, n, t.clone()))
                t.data.copy_(v if isinstance(v, torch.Tensor) else torch.full_like(t, v))
            else:
                old.append((o, n, t))
                setattr(o, n, v)
        yield
    finally:
        for o, n, v in reversed(old):
            if isinstance(v, torch.Tensor):
                getattr(o, n).data.copy_(v)
            else:
                setattr(o, n, v)


@contextlib.contextmanager
def mask_zero():
    """Groups masked with 0.0 in place of -inf."""
    import torch
    old = torch.Tensor.masked_fill
    torch.Tensor.masked_fill = lambda t, m, v: old(t, m, 0.0 if t.dim() == 2 and v == -math.inf else v)
    try:
        yield
    finally:
        torch.Tensor.masked_fill = old


@contextlib.contextmanager
def early_experts(core):
    """longcat_flash: the experts' sum is added with the first of a layer's two dense blocks."""
    hooks, held = [], {}

    def hold(i):
        def f(_m, _a, out):
            held[i] = out
            return out * 0
        return f

    for i, layer in enumerate(core.layers):
        hooks.append(layer.mlp.register_forward_hook(hold(i)))
        hooks.append(layer.mlps[0].register_forward_hook(lambda m, a, out, i=i: out + held[i]))
    try:
        yield
    finally:
        for h in hooks:
            h.remove()


def mutations(model):
    """Mistakes an engine could make: name -> context in which the model makes it."""
    import torch
    cfg, core = model.config, model.model
    mods = [m for m in model.modules() if m is not model]
    out = {}

    def every(attr, value, has=lambda m: True):
        return [(m, attr, value) for m in mods if attr in vars(m) and getattr(m, attr) != value and has(m)]

    eps = cfg.rms_norm_eps
    att = [a for layer in core.layers
           for a in (layer.self_attn if isinstance(layer.self_attn, torch.nn.ModuleList) else [layer.self_attn])]
    mla = hasattr(att[0], "kv_b_proj")
    if mla:
        out["no mscale^2"] = every("scaling", att[0].qk_head_dim ** -0.5)
        lat = [n for a in att for n in (getattr(a, "q_a_layernorm", None), a.kv_a_layernorm) if n is not None]
        out["latent eps = rms_norm_eps"] = [(n, "variance_epsilon", eps) for n in lat if eps != 1e-6]
    out["cos/sin factor 1"] = every("attention_scaling", 1.0)
    out["rms_norm_eps 1e-6"] = every("variance_epsilon", 1e-6)
    theta = cfg.rope_parameters["rope_theta"]
    freq = core.rotary_emb.inv_freq
    plain = theta ** (-torch.arange(freq.numel()).float() / freq.numel())
    if cfg.rope_parameters["rope_type"] != "longrope" and not torch.allclose(plain, freq):
        out["no rope scaling"] = [(core.rotary_emb, "inv_freq", plain)]
    if getattr(cfg, "rope_interleave", None) is not None:
        out["rope layout"] = [(cfg, "rope_interleave", not cfg.rope_interleave)]
    for attr in ("norm_topk_prob", "use_norm_topk_prob"):
        if cfg.model_type != "deepseek_v2":
            out["norm_topk_prob"] = out.get("norm_topk_prob") or [(m, attr, not getattr(m, attr)) for m in mods if attr in vars(m)]
    out["routed_scaling_factor 1"] = every("routed_scaling_factor", 1.0)
    if (getattr(cfg, "n_group", None) or 1) > 1:
        if cfg.model_type == "deepseek_v2":
            out["no groups"] = every("topk_method", "greedy")
        else:
            out["no groups"] = every("topk_group", cfg.n_group)
    post = [layer.mlp for layer in core.layers if hasattr(layer.mlp, "post_mlp_layernorm")]
    out["no post_mlp_layernorm"] = [(mlp, "post_mlp_layernorm", torch.nn.Identity()) for mlp in post]
    out["post_mlp_layernorm eps 1e-6"] = [(mlp.post_mlp_layernorm, "variance_epsilon", 1e-6) for mlp in post]
    if cfg.model_type == "mistral4":
        rope = cfg.rope_parameters
        out["no query scaling"] = [(cfg, "rope_parameters", {**rope, "llama_4_scaling_beta": 0.0})]
        out["query scaling by max_position_embeddings"] = [
            (cfg, "rope_parameters", {**rope, "original_max_position_embeddings": cfg.max_position_embeddings})]
    if cfg.model_type == "longcat_flash":
        out["queries not scaled"] = every("mla_scale_q_lora", 1.0)
        out["latents not scaled"] = every("mla_scale_kv_lora", 1.0)
        nothing = torch.nn.Identity()
        nothing.forward = torch.zeros_like
        out["zero experts add nothing"] = [(m, "identity_expert", nothing) for m in mods if hasattr(m, "identity_expert")]
    gates = [m for m in mods if getattr(m, "e_score_correction_bias", None) is not None]
    out["no correction bias"] = [(m, "e_score_correction_bias", 0.0) for m in gates]
    for role in ("q_a_proj", "kv_a_proj_with_mqa", "o_proj", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "down_proj"):
        lin = [m for n, m in model.named_modules() if n.endswith("." + role) and getattr(m, "bias", None) is not None]
        out[f"no {role} bias"] = [(m, "bias", 0.0) for m in lin]
    for role in ("q_norm", "k_norm", "q_a_layernorm", "kv_a_layernorm"):
        out[f"{role} weight 1"] = [(m, "weight", 1.0) for n, m in model.named_modules() if n.endswith("." + role)]
    if hasattr(core.layers[-1].mlp, "shared_experts"):
        out["no shared experts"] = [(layer.mlp.shared_experts.down_proj, "weight", 0.0) for layer in core.layers
                                    if hasattr(layer.mlp, "shared_experts")]
    res = {k: changed(v) for k, v in out.items() if v}
    if (getattr(cfg, "n_group", None) or 1) > 1 and cfg.model_type != "deepseek_v2":
        res["groups masked with 0.0"] = mask_zero()
    if cfg.model_type == "longcat_flash":
        res["experts added after the first block"] = early_experts(core)
    return res
