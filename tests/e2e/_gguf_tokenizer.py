"""_gguf_tokenizer.py DIR PRE HF_OUT OUT.gguf - a tokenizer.json (or what tests/unit/test_tok_vectors.c makes one of) as a
folder and as the metadata of a GGUF, as llama.cpp's converter writes it."""
import json
import lzma
import os
import sys

from _gguf import BOOL, I32, STR, Gguf

folder, pre, hf, out = sys.argv[1:5]


def text(name):
    path = os.path.join(folder, name)
    if os.path.exists(path + ".xz"):
        with lzma.open(path + ".xz", "rt", encoding="utf-8") as f:
            return f.read()
    with open(path, encoding="utf-8") as f:
        return f.read()


def write(vocab, merges, added):
    g = Gguf()
    n = 1 + max(max(vocab.values()), max((a["id"] for a in added), default=0))
    tokens, kinds = [f"[PAD{i}]" for i in range(n)], [5] * n
    for word, i in vocab.items():
        tokens[i], kinds[i] = word, 1
    for a in added:
        tokens[a["id"]], kinds[a["id"]] = a["content"], 3 if a["special"] else 4
    g.add("tokenizer.ggml.model", STR, "gpt2")
    g.add("tokenizer.ggml.pre", STR, pre)
    g.add_list("tokenizer.ggml.tokens", STR, tokens)
    g.add_list("tokenizer.ggml.token_type", I32, kinds)
    g.add_list("tokenizer.ggml.merges", STR, [m if isinstance(m, str) else " ".join(m) for m in merges])
    g.add("tokenizer.ggml.add_bos_token", BOOL, False)
    g.write(out)


names = os.listdir(folder)
if "tokenizer.json.xz" in names:
    t = json.loads(text("tokenizer.json"))
    with open(os.path.join(hf, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(t, f)
    write(t["model"]["vocab"], t["model"]["merges"], t["added_tokens"] or [])
elif "vocab.json.xz" in names:
    lines = [x for x in text("merges.txt").split("\n") if x and not x.startswith("#version")]
    added = [{"id": int(i), "content": w, "special": int(i) < 100002} for i, w in json.loads(text("added_tokens.json")).items()]
    write(json.loads(text("vocab.json")), lines, added)
else:
    sys.exit("no tokenizer that is known")
