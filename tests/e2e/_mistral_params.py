"""_mistral_params.py CASE_DIR OUT: a checkpoint of tests/parity/mistral4 in Hugging Face's layout and in Mistral's own.

  OUT/hf, OUT/own        the same numbers; own: params.json and consolidated.safetensors
  OUT/shards             own, in two shards with an index, and a tensor of the vision encoder
  OUT/hf8, OUT/own8      matrices in FP8 with one scale each
  OUT/flat               the text model of CASE_DIR alone, as its config.json has it
"""
import json
import os
import random
import re
import struct
import sys

RENAMES = [
    ("model.embed_tokens.", "tok_embeddings."), ("lm_head.", "output."), (r"model.norm.", "norm."), ("model.layers.", "layers."),
    ("input_layernorm", "attention_norm"), ("post_attention_layernorm", "ffn_norm"), ("self_attn.q_a_proj", "attention.wq_a"),
    ("self_attn.q_a_layernorm", "attention.q_a_norm"), ("self_attn.q_b_proj", "attention.wq_b"),
    ("self_attn.kv_a_proj_with_mqa", "attention.wkv_a_with_mqa"), ("self_attn.kv_a_layernorm", "attention.kv_a_norm"),
    ("self_attn.kv_b_proj", "attention.wkv_b"), ("self_attn.o_proj", "attention.wo"), ("mlp.gate.", "gate."),
    ("mlp.shared_experts.", "shared_experts."), ("mlp.experts.", "experts."), ("mlp.", "feed_forward."), ("gate_proj", "w1"),
    ("down_proj", "w2"), ("up_proj", "w3"), ("weight_scale", "qscale_weight"), ("input_scale", "qscale_act")]


def own_name(name):
    for a, b in RENAMES:
        name = name.replace(a, b)
    return name


def load(path):
    raw = open(path, "rb").read()
    n, = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8:8 + n])
    head.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in head.items()}


def save(path, tensors):
    head, body = {}, b""
    for name, (dtype, shape, data) in sorted(tensors.items(), key=lambda x: x[1][0] == "F8_E4M3"):
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(head).encode()
    head += b" " * (-len(head) % 8)
    open(path, "wb").write(struct.pack("<Q", len(head)) + head + body)


def flat(tensors):
    """The text model alone, an expert's matrices one by one."""
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        if "vision_tower" in name or "multi_modal" in name:
            continue
        name = name.replace("model.language_model.", "model.")
        m = re.match(r"(.*\.mlp\.experts\.)(gate_up_proj|down_proj)$", name)
        if not m:
            out[name] = (dtype, shape, data)
            continue
        parts = ["gate_proj", "up_proj"] if m[2] == "gate_up_proj" else ["down_proj"]
        rows, n = shape[1] // len(parts), len(data) // shape[0] // len(parts)
        for i in range(shape[0] * len(parts)):
            part = parts[i % len(parts)]
            out[f"{m[1]}{i // len(parts)}.{part}.weight"] = (dtype, [rows, shape[2]], data[i * n:(i + 1) * n])
    return out


def fp8(tensors):
    rng, out = random.Random(3), {}
    for name, (dtype, shape, data) in tensors.items():
        if not name.endswith("_proj.weight") and not name.endswith("_with_mqa.weight"):
            out[name] = (dtype, shape, data)
            continue
        codes = bytes(rng.choice(range(40, 73)) | rng.choice((0, 128)) for _ in range(len(data) // 2))
        out[name] = ("F8_E4M3", shape, codes)
        module = name[:-len("weight")]
        scale = 0.2 / shape[1] ** 0.5 * rng.uniform(0.5, 2)
        out[module + "weight_scale"] = ("F32", [], struct.pack("<f", scale))
        out[module + "input_scale"] = ("F32", [], struct.pack("<f", 1.0))
    return out


def params(c, quantised):
    rope = c["rope_parameters"]
    p = {"dim": c["hidden_size"], "n_layers": c["num_hidden_layers"], "head_dim": 32, "hidden_dim": c["intermediate_size"],
         "n_heads": c["num_attention_heads"], "n_kv_heads": c["num_attention_heads"], "rope_theta": rope["rope_theta"],
         "norm_eps": c["rms_norm_eps"], "vocab_size": c["vocab_size"], "tied_embeddings": False,
         "max_position_embeddings": c["max_position_embeddings"],
         "yarn": {"original_max_position_embeddings": rope["original_max_position_embeddings"], "factor": rope["factor"],
                  "apply_scale": False, "beta": rope["beta_fast"], "alpha": rope["beta_slow"]},
         "moe": {"expert_parallel": 1, "route_every_n": 1, "first_k_dense_replace": c["first_k_dense_replace"],
                 "num_experts": c["n_routed_experts"], "num_experts_per_tok": c["num_experts_per_tok"],
                 "num_expert_groups": 1, "num_expert_groups_per_tok": 1, "routed_scale": c["routed_scaling_factor"],
                 "expert_hidden_dim": c["moe_intermediate_size"], "num_shared_experts": c["n_shared_experts"]},
         "llama_4_scaling": {"original_max_position_embeddings": rope["original_max_position_embeddings"],
                             "beta": rope["llama_4_scaling_beta"]}}
    for k in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        p[k] = c[k]
    if quantised:
        p["quantization"] = {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}
    return p


def main():
    case, out = sys.argv[1:]
    config = json.load(open(f"{case}/config.json"))["text_config"]
    tensors = flat(load(f"{case}/model.safetensors"))
    os.makedirs(f"{out}/flat")
    json.dump(config, open(f"{out}/flat/config.json", "w"))
    save(f"{out}/flat/model.safetensors", tensors)
    for end, t in (("", tensors), ("8", fp8(tensors))):
        c = json.loads(json.dumps(config))
        c["rope_parameters"]["apply_yarn_scaling"] = False
        if end:
            c["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "static"}
        os.makedirs(f"{out}/hf{end}")
        os.makedirs(f"{out}/own{end}")
        json.dump(c, open(f"{out}/hf{end}/config.json", "w"))
        json.dump(params(config, end), open(f"{out}/own{end}/params.json", "w"))
        save(f"{out}/hf{end}/model.safetensors", t)
        own = {own_name(k): v for k, v in t.items()}
        save(f"{out}/own{end}/consolidated.safetensors", own)
        if end:
            continue
        os.makedirs(f"{out}/shards")
        json.dump(params(config, end), open(f"{out}/shards/params.json", "w"))
        own["vision_encoder.ln_pre.weight"] = ("BF16", [4], bytes(8))
        names, index = sorted(own), {}
        for i, part in enumerate((names[::2], names[1::2])):
            file = f"consolidated-{i + 1:05d}-of-00002.safetensors"
            save(f"{out}/shards/{file}", {k: own[k] for k in part})
            index.update({k: file for k in part})
        json.dump({"metadata": {}, "weight_map": index}, open(f"{out}/shards/consolidated.safetensors.index.json", "w"))


main()
