"""_convert_family.py - models and comparisons for convert_gguf_families.sh (standard library).

  _convert_family.py folder CASE OUT CHANGES     a parity case with fields of config.json changed; those of the dictionary
                                                 of the rotation, if it has them, there
  _convert_family.py compare A.f32 B.f32 E [last]  logits agree to E of the largest; last: A has the last row of B only
  _convert_family.py spm MODEL.gguf FOLDER       tokenizer.json as transformers makes it of SentencePiece's scores
  _convert_family.py spoil FOLDER OUT HOW        the folder with a tokenizer.json that has no equal in llama.cpp
  _convert_family.py tensors A.gguf B.gguf       the same tensors, and the same tokens
  _convert_family.py deep FAMILY OUT             a random model of 16 layers with whole blocks of 256 columns
  _convert_family.py types A.gguf B.gguf         every tensor has the same type in both
"""
import array
import json
import os
import random
import shutil
import struct
import sys

from _convert import gguf
from _gguf import BAR


def load(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def save(path, o):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(o, f)


def folder(case, out, changes):
    os.makedirs(out)
    for name in os.listdir(case):
        if name.startswith("model"):
            shutil.copy(os.path.join(case, name), out)
    c = load(os.path.join(case, "config.json"))
    rope = c.get("rope_scaling") or c.get("rope_parameters") or {}
    for key, v in json.loads(changes).items():
        (rope if key in rope and key not in c else c)[key] = v
    save(os.path.join(out, "config.json"), c)


def compare(a, b, bound, last=None):
    x, y = (array.array("f", open(p, "rb").read()) for p in (a, b))
    if last:
        y = y[len(y) - len(x):]
    top = max(map(abs, x))
    worst = max(abs(p - q) for p, q in zip(x, y)) / top
    print("%.1e of %.2f" % (worst, top))
    sys.exit(len(x) != len(y) or not x or not worst <= float(bound))


# ---- SentencePiece

def metadata(path):
    kv = dict(gguf(path)[0])

    def items(key):
        raw = kv["tokenizer.ggml." + key]
        kind, n = struct.unpack_from("<IQ", raw, 4)
        at, out = 16, []
        for _ in range(n):
            if kind == 8:
                size = struct.unpack_from("<Q", raw, at)[0]
                out.append(raw[at + 8:at + 8 + size].decode())
                at += 8 + size
            else:
                out.append(struct.unpack_from("<f" if kind == 6 else "<i", raw, at)[0])
                at += 4
        return out

    return items("tokens"), items("scores"), items("token_type")


def spm(model, out):
    tokens, scores, types = metadata(model)
    ids = {t: i for i, t in enumerate(tokens)}
    merges = []
    for t, s, kind in zip(tokens, scores, types):
        if kind != 1:
            continue
        own = [(t[:i], t[i:]) for i in range(1, len(t)) if t[:i] in ids and t[i:] in ids]
        merges += [(s, a, b) for a, b in own]
    merges.sort(key=lambda m: -m[0])
    replace = lambda a, b: {"type": "Replace", "pattern": {"String": a}, "content": b}
    save(os.path.join(out, "tokenizer.json"), {
        "added_tokens": [{"id": i, "content": tokens[i], "special": True, "normalized": False} for i in range(3)],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": BAR}, replace(" ", BAR)]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                                    {"Sequence": {"id": "A", "type_id": 0}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [replace(BAR, " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                                                     {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": ids,
                  "merges": [a + " " + b for _, a, b in merges]}})
    save(os.path.join(out, "tokenizer_config.json"), {"add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>",
                                                      "unk_token": "<unk>"})


def spoil(source, out, how):
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(source, out)
    path = os.path.join(out, "tokenizer.json")
    t = load(path)
    m = t["model"]
    merges = m["merges"]
    if how == "order":
        many = next(i for i in range(len(merges) - 1) if merges[i].replace(" ", "") == merges[i + 1].replace(" ", ""))
        merges.append(merges.pop(many))
    elif how == "missing":
        many = next(i for i in range(len(merges) - 1) if merges[i].replace(" ", "") == merges[i + 1].replace(" ", ""))
        merges.pop(many)
    elif how == "nothing":
        merges.append("zzz qqq")
    elif how == "pair":
        merges.append("zzz")
    elif how == "prefix":
        t["normalizer"]["normalizers"].insert(0, {"type": "NFKC"})
    elif how == "ignore":
        m["ignore_merges"] = True
    else:
        t["normalizer"] = None
        t["pre_tokenizer"] = {"type": "Metaspace", "replacement": BAR, "prepend_scheme": "first", "split": False}
    save(path, t)


def tensors(a, b):
    x, y = gguf(a)[1], gguf(b)[1]
    assert sorted(x) == sorted(y), set(x) ^ set(y)
    for name in x:
        assert x[name][0] == y[name][0] and list(x[name][1]) == list(y[name][1]) and x[name][2] == y[name][2], name
    (t, s, k), (t2, s2, k2) = metadata(a), metadata(b)
    assert t == t2 and k == k2
    order = lambda scores, kinds: [i for i in sorted(range(len(scores)), key=lambda i: -scores[i]) if kinds[i] == 1]
    made = [i for i in order(s2, k2) if s2[i] > -1e30]
    assert made == [i for i in order(s, k) if i in set(made)], "the order of scores"


# ---- types

def deep(family, out):
    rng = random.Random(7)
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    n, hidden, inter, heads, kv, vocab = 16, 256, 256, 8, 2 if family == "llama" else 4, 320
    d = hidden // heads
    c = {"model_type": family, "num_hidden_layers": n, "hidden_size": hidden, "intermediate_size": inter,
         "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab, "max_position_embeddings": 512,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": family == "qwen2", "hidden_act": "silu"}
    rows = {"self_attn.q_proj": [hidden, hidden], "self_attn.k_proj": [kv * d, hidden], "self_attn.v_proj": [kv * d, hidden]}
    if family == "minicpm3":
        c.update(num_key_value_heads=heads, q_lora_rank=256, kv_lora_rank=256, qk_nope_head_dim=16, qk_rope_head_dim=16,
                 v_head_dim=32, scale_emb=12, scale_depth=1.4, dim_model_base=256)
        rows = {"self_attn.q_a_proj": [256, hidden], "self_attn.q_b_proj": [heads * 32, 256], "self_attn.q_a_layernorm": [256],
                "self_attn.kv_a_proj_with_mqa": [272, hidden], "self_attn.kv_a_layernorm": [256],
                "self_attn.kv_b_proj": [heads * 48, 256]}
    rows.update({"self_attn.o_proj": [hidden, hidden], "mlp.gate_proj": [inter, hidden], "mlp.up_proj": [inter, hidden],
                 "mlp.down_proj": [hidden, inter], "input_layernorm": [hidden], "post_attention_layernorm": [hidden]})
    t = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    if not c["tie_word_embeddings"]:
        t["lm_head.weight"] = [vocab, hidden]
    for i in range(n):
        for name, shape in rows.items():
            t["model.layers.%d.%s.weight" % (i, name)] = shape
        for name in ("q", "k", "v") if family == "qwen2" else ():
            t["model.layers.%d.self_attn.%s_proj.bias" % (i, name)] = [rows["self_attn.%s_proj" % name][0]]
    # values of 0.01 to 0.06 and their negatives, in BF16
    pool = b"".join(struct.pack("<f", rng.choice((-1, 1)) * rng.uniform(0.01, 0.06))[2:] for _ in range(1 << 17))
    head, data, at = {}, [], 0
    for name, shape in t.items():
        size = 2 * (shape[0] * shape[1] if len(shape) > 1 else shape[0])
        begin = 2 * rng.randrange((len(pool) - size) // 2 + 1) if size < len(pool) else 0
        raw = (pool + pool)[begin:begin + size] if len(shape) > 1 or "bias" in name else b"\x80\x3f" * shape[0]
        assert len(raw) == size, name
        head[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
        data.append(raw)
    h = json.dumps(head).encode()
    with open(os.path.join(out, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + b"".join(data))
    save(os.path.join(out, "config.json"), c)


def types(a, b):
    x, y = gguf(a)[1], gguf(b)[1]
    assert sorted(x) == sorted(y)
    for name in x:
        assert x[name][0] == y[name][0], "%s: %s, llama.cpp has %s" % (name, x[name][0], y[name][0])
    print("%s: %s" % (os.path.basename(a), sorted({v[0] for v in x.values()})))


if __name__ == "__main__":
    {"folder": folder, "compare": compare, "spm": spm, "spoil": spoil, "tensors": tensors, "deep": deep,
     "types": types}[sys.argv[1]](*sys.argv[2:])
