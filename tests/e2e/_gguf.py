"""_gguf.py - writes GGUF files, for tests: metadata, tensors, split files; and converts two checkpoints.

  _gguf.py stories CHECKPOINT.bin TOKENIZER.bin OUT   llama2.c's format to OUT/hf and OUT/model.gguf, in F32
  _gguf.py folder  MODEL_DIR OUT.gguf [TYPE]          a DeepSeek-V3-shaped folder to GGUF: as it is, F32 or legacy

Source of the layout: ggml/src/gguf.cpp and gguf-py of llama.cpp.
"""
import json
import os
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
PACK = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q", I64: "<q",
        F64: "<d"}
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2), "Q8_0": (8, 32, 34), "Q4_0": (2, 32, 18),
         "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110),
         "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "IQ4_NL": (20, 32, 18),
         "IQ4_XS": (23, 256, 136), "MXFP4": (39, 32, 17), "NVFP4": (40, 64, 36), "IQ2_XXS": (16, 256, 66),
         "IQ2_XS": (17, 256, 74), "IQ3_XXS": (18, 256, 98), "IQ1_S": (19, 256, 50), "IQ3_S": (21, 256, 110),
         "IQ2_S": (22, 256, 82), "IQ1_M": (29, 256, 56)}


def string(s):
    b = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    return string(v) if kind == STR else struct.pack(PACK[kind], v)


class Gguf:
    """Metadata and tensors; sizes in the order of the file, the columns first."""

    def __init__(self, alignment=32, version=3):
        self.kv, self.tensors, self.alignment, self.version = [], [], alignment, version
        if alignment != 32:
            self.add("general.alignment", U32, alignment)

    def add(self, key, kind, v):
        self.kv.append((key, struct.pack("<I", kind) + value(kind, v)))

    def add_list(self, key, kind, values):
        body = b"".join(value(kind, v) for v in values)
        self.kv.append((key, struct.pack("<IIQ", ARR, kind, len(values)) + body))

    def tensor(self, name, kind, ne, data):
        number, block, size = TYPES[kind]
        n = size
        for i, d in enumerate(ne):
            n *= d if i else d // block
        assert n == len(data), (name, kind, ne, n, len(data))
        self.tensors.append((name, number, ne, data))

    def head(self):
        """All that is in front of the tensors' data."""
        pad = lambda n: -n % self.alignment
        head, at = [], 0
        for name, number, ne, data in self.tensors:
            head.append(string(name) + struct.pack("<I", len(ne)) + b"".join(struct.pack("<q", d) for d in ne) +
                        struct.pack("<IQ", number, at))
            at += len(data) + pad(len(data))
        out = b"GGUF" + struct.pack("<Iqq", self.version, len(self.tensors), len(self.kv))
        out += b"".join(string(k) + v for k, v in self.kv) + b"".join(head)
        return out + b"\0" * pad(len(out))

    def bytes(self):
        return self.head() + b"".join(t[3] + b"\0" * (-len(t[3]) % self.alignment) for t in self.tensors)

    def write(self, path):
        with open(path, "wb") as f:
            f.write(self.bytes())

    def write_split(self, stem, n):
        """n shards; the first has the metadata, and no tensors where n is more than there are."""
        paths = []
        for i in range(n):
            part = Gguf(self.alignment, self.version)
            part.kv = list(self.kv) if i == 0 else []
            part.add("split.no", U16, i)
            part.add("split.count", U16, n)
            part.add("split.tensors.count", I32, len(self.tensors))
            part.tensors = self.tensors[len(self.tensors) * i // n:len(self.tensors) * (i + 1) // n]
            paths.append(f"{stem}-{i + 1:05}-of-{n:05}.gguf")
            part.write(paths[-1])
        return paths


# ---- safetensors

class Folder:
    """The tensors of a Hugging Face folder: name -> (dtype, shape, bytes)."""

    def __init__(self, path):
        self.t = {}
        for name in sorted(os.listdir(path)):
            if name.endswith(".safetensors") and name != "expected.safetensors":
                self.read(os.path.join(path, name))

    def read(self, path):
        with open(path, "rb") as f:
            raw = f.read()
        n = struct.unpack("<Q", raw[:8])[0]
        for name, t in json.loads(raw[8:8 + n]).items():
            if name != "__metadata__":
                a, b = t["data_offsets"]
                self.t[name] = (t["dtype"], t["shape"], raw[8 + n + a:8 + n + b])


def write_safetensors(path, tensors):
    head, at = {}, 0
    for name, shape, data in tensors:
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    h = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + b"".join(t[2] for t in tensors))


def to_f32(dtype, data):
    if dtype == "F32":
        return data
    assert dtype == "BF16"
    out = bytearray(2 * len(data))
    out[2::4], out[3::4] = data[0::2], data[1::2]
    return bytes(out)


# ---- stories260K

BAR = "\u2581"


def read_llama2c(path):
    with open(path, "rb") as f:
        raw = f.read()
    dim, hidden, n_layer, n_head, n_kv, n_vocab, seq = struct.unpack("<7i", raw[:28])
    kv, at, t = dim // n_head * n_kv, 28, {}

    def take(name, rows, cols, layers=0):
        nonlocal at
        for i in range(max(layers, 1)):
            n = 4 * rows * cols
            t[(name, i)] = raw[at:at + n]
            at += n

    take("embed", n_vocab, dim)
    for name, rows, cols in (("attn_norm", 1, dim), ("q", dim, dim), ("k", kv, dim), ("v", kv, dim), ("o", dim, dim),
                             ("ffn_norm", 1, dim), ("gate", hidden, dim), ("down", dim, hidden), ("up", hidden, dim)):
        take(name, rows, cols, n_layer)
    take("norm", 1, dim)
    geometry = {"dim": dim, "hidden": hidden, "n_layer": n_layer, "n_head": n_head, "n_kv": n_kv, "kv": kv,
                "n_vocab": n_vocab, "seq": seq}
    return geometry, t


def read_tok(path, n):
    with open(path, "rb") as f:
        raw = f.read()
    at, out = 4, []
    for _ in range(n):
        score, size = struct.unpack("<fi", raw[at:at + 8])
        out.append((raw[at + 8:at + 8 + size].decode(), score))
        at += 8 + size
    return out


def halves(data, n_head, cols):
    """Rows of pairs beside each other to the two halves of Hugging Face."""
    rows = [data[i:i + 4 * cols] for i in range(0, len(data), 4 * cols)]
    d = len(rows) // n_head
    out = []
    for h in range(n_head):
        head = rows[h * d:(h + 1) * d]
        out += head[0::2] + head[1::2]
    return b"".join(out)


def stories(bin_path, tok_path, out):
    g, t = read_llama2c(bin_path)
    dim, hidden, kv = g["dim"], g["hidden"], g["kv"]
    words = [s.replace(" ", BAR) for s, _ in read_tok(tok_path, g["n_vocab"])]
    scores = [score for _, score in read_tok(tok_path, g["n_vocab"])]
    words[0:3] = ["<unk>", "<s>", "</s>"]
    kinds = [2, 3, 3] + [6 if w.startswith("<0x") else 1 for w in words[3:]]
    os.makedirs(os.path.join(out, "hf"), exist_ok=True)
    config = {"model_type": "llama", "vocab_size": g["n_vocab"], "hidden_size": dim, "intermediate_size": hidden,
              "num_hidden_layers": g["n_layer"], "num_attention_heads": g["n_head"], "num_key_value_heads": g["n_kv"],
              "max_position_embeddings": g["seq"], "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "torch_dtype": "float32",
              "tie_word_embeddings": True, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2}
    with open(os.path.join(out, "hf", "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    layer = lambda i: f"model.layers.{i}."
    hf = [("model.embed_tokens.weight", [g["n_vocab"], dim], t["embed", 0]), ("model.norm.weight", [dim], t["norm", 0])]
    f = Gguf()
    f.add("general.architecture", STR, "llama")
    for key, kind, v in (("block_count", U32, g["n_layer"]), ("context_length", U32, g["seq"]),
                         ("embedding_length", U32, dim), ("feed_forward_length", U32, hidden),
                         ("attention.head_count", U32, g["n_head"]), ("attention.head_count_kv", U32, g["n_kv"]),
                         ("attention.layer_norm_rms_epsilon", F32, 1e-5), ("rope.freq_base", F32, 10000.0),
                         ("rope.dimension_count", U32, dim // g["n_head"]), ("vocab_size", U32, g["n_vocab"])):
        f.add("llama." + key, kind, v)
    f.add("tokenizer.ggml.model", STR, "llama")
    f.add("tokenizer.ggml.pre", STR, "default")
    f.add_list("tokenizer.ggml.tokens", STR, words)
    f.add_list("tokenizer.ggml.scores", F32, scores)
    f.add_list("tokenizer.ggml.token_type", I32, kinds)
    for key, v in (("bos", 1), ("eos", 2), ("unknown", 0)):
        f.add(f"tokenizer.ggml.{key}_token_id", U32, v)
    f.tensor("token_embd.weight", "F32", [dim, g["n_vocab"]], t["embed", 0])
    f.tensor("output_norm.weight", "F32", [dim], t["norm", 0])
    for i in range(g["n_layer"]):
        for name, gguf, theirs, rows, cols in (
                ("attn_norm", "attn_norm", "input_layernorm", 1, dim), ("ffn_norm", "ffn_norm", "post_attention_layernorm", 1, dim),
                ("q", "attn_q", "self_attn.q_proj", dim, dim), ("k", "attn_k", "self_attn.k_proj", kv, dim),
                ("v", "attn_v", "self_attn.v_proj", kv, dim), ("o", "attn_output", "self_attn.o_proj", dim, dim),
                ("gate", "ffn_gate", "mlp.gate_proj", hidden, dim), ("down", "ffn_down", "mlp.down_proj", dim, hidden),
                ("up", "ffn_up", "mlp.up_proj", hidden, dim)):
            data = t[name, i]
            f.tensor(f"blk.{i}.{gguf}.weight", "F32", [cols] if rows == 1 else [cols, rows], data)
            if name in "qk":
                data = halves(data, g["n_head"] if name == "q" else g["n_kv"], cols)
            hf.append((layer(i) + theirs + ".weight", [cols] if rows == 1 else [rows, cols], data))
    f.write(os.path.join(out, "model.gguf"))
    f.write_split(os.path.join(out, "split"), 3)
    write_safetensors(os.path.join(out, "hf", "model.safetensors"), hf)


# ---- a folder in the shape of DeepSeek-V3

LAYER = (("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm"), ("attn_q", "self_attn.q_proj"),
         ("attn_q_a", "self_attn.q_a_proj"), ("attn_q_a_norm", "self_attn.q_a_layernorm"),
         ("attn_q_b", "self_attn.q_b_proj"), ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
         ("attn_kv_a_norm", "self_attn.kv_a_layernorm"), ("attn_output", "self_attn.o_proj"),
         ("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj"),
         ("ffn_gate_inp", "mlp.gate"), ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
         ("ffn_up_shexp", "mlp.shared_experts.up_proj"), ("ffn_down_shexp", "mlp.shared_experts.down_proj"))


def deepseek(folder, out, kind=None):
    """kind: None keeps the types, F32 converts; "legacy" keeps kv_b whole, as files before 2025 do."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        c = json.load(f)
    t, g, legacy = Folder(folder).t, Gguf(), kind == "legacy"
    nope, rope, v_dim, lora, heads = (c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"],
                                      c["num_attention_heads"])
    g.add("general.architecture", STR, "deepseek2")
    sigmoid = c.get("scoring_func", "sigmoid" if c["model_type"] != "deepseek_v2" else "softmax") == "sigmoid"
    keys = [("block_count", U32, c["num_hidden_layers"]), ("context_length", U32, c["max_position_embeddings"]),
            ("embedding_length", U32, c["hidden_size"]), ("feed_forward_length", U32, c["intermediate_size"]),
            ("vocab_size", U32, c["vocab_size"]), ("attention.head_count", U32, heads),
            ("attention.head_count_kv", U32, heads if legacy else 1),
            ("attention.layer_norm_rms_epsilon", F32, c["rms_norm_eps"]), ("attention.kv_lora_rank", U32, lora),
            ("attention.key_length", U32, nope + rope if legacy else lora + rope),
            ("attention.value_length", U32, v_dim if legacy else lora), ("expert_count", U32, c["n_routed_experts"]),
            ("expert_used_count", U32, c["num_experts_per_tok"]), ("expert_shared_count", U32, c["n_shared_experts"]),
            ("expert_feed_forward_length", U32, c["moe_intermediate_size"]),
            ("expert_weights_scale", F32, c["routed_scaling_factor"]),
            ("expert_weights_norm", BOOL, sigmoid and bool(c.get("norm_topk_prob"))), ("expert_gating_func", U32, 2 if sigmoid else 1),
            ("expert_group_count", U32, c["n_group"] or 1), ("expert_group_used_count", U32, c["topk_group"] or 1),
            ("leading_dense_block_count", U32, c["first_k_dense_replace"]), ("rope.dimension_count", U32, rope),
            ("rope.freq_base", F32, c.get("rope_theta", (c.get("rope_parameters") or {}).get("rope_theta", 10000.0)))]
    if c.get("q_lora_rank"):
        keys.append(("attention.q_lora_rank", U32, c["q_lora_rank"]))
    if not legacy:
        keys += [("attention.key_length_mla", U32, nope + rope), ("attention.value_length_mla", U32, v_dim)]
    scaling = c.get("rope_scaling") or c.get("rope_parameters")
    if scaling and scaling.get("rope_type", scaling.get("type")) == "yarn":
        assert scaling["mscale"] == scaling["mscale_all_dim"], "a GGUF has only one of them"
        keys += [("rope.scaling.type", STR, "yarn"), ("rope.scaling.factor", F32, scaling["factor"]),
                 ("rope.scaling.original_context_length", U32, scaling["original_max_position_embeddings"]),
                 ("rope.scaling.yarn_log_multiplier", F32, 0.1 * scaling["mscale_all_dim"])]
    for key, k, v in keys:
        g.add("deepseek2." + key, k, v)
    g.add("tokenizer.ggml.model", STR, "none")

    def put(name, dtype, ne, data):
        if kind == "F32" or len(ne) == 1 or "ffn_gate_inp" in name:
            dtype, data = "F32", to_f32(dtype, data)
        g.tensor(name, dtype, ne, data)

    def copy(name, hf):
        if hf in t:
            dtype, shape, data = t[hf]
            put(name, dtype, shape[::-1], data)

    copy("token_embd.weight", "model.embed_tokens.weight")
    copy("output_norm.weight", "model.norm.weight")
    copy("output.weight", "lm_head.weight")
    for i in range(c["num_hidden_layers"]):
        hf = f"model.layers.{i}."
        for name, theirs in LAYER:
            copy(f"blk.{i}.{name}.weight", hf + theirs + ".weight")
        copy(f"blk.{i}.exp_probs_b.bias", hf + "mlp.gate.e_score_correction_bias")
        dtype, _, data = t[hf + "self_attn.kv_b_proj.weight"]
        if legacy:
            put(f"blk.{i}.attn_kv_b.weight", dtype, [lora, heads * (nope + v_dim)], data)
        else:
            kv_b(put, i, dtype, data, (nope, v_dim, lora, heads))
        for part in ("gate", "up", "down"):
            one = [t.get(f"{hf}mlp.experts.{j}.{part}_proj.weight") for j in range(c["n_routed_experts"])]
            if one[0]:
                put(f"blk.{i}.ffn_{part}_exps.weight", one[0][0], one[0][1][::-1] + [len(one)],
                    b"".join(o[2] for o in one))
    g.write(out)
    return g


def kv_b(put, i, dtype, data, geometry):
    """Split into attn_k_b, transposed per head, and attn_v_b."""
    nope, v_dim, lora, heads = geometry
    size = 4 if dtype == "F32" else 2
    row = lora * size
    k, v = [], []
    for h in range(heads):
        at = h * (nope + v_dim) * row
        block = data[at:at + nope * row]
        k += [block[c * size + r * row:c * size + r * row + size] for c in range(lora) for r in range(nope)]
        v.append(data[at + nope * row:at + (nope + v_dim) * row])
    put(f"blk.{i}.attn_k_b.weight", dtype, [nope, lora, heads], b"".join(k))
    put(f"blk.{i}.attn_v_b.weight", dtype, [lora, v_dim, heads], b"".join(v))


if __name__ == "__main__":
    if sys.argv[1] == "stories":
        stories(*sys.argv[2:5])
    else:
        deepseek(*sys.argv[2:])
