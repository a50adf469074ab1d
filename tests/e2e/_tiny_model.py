#!/usr/bin/env python3
"""_tiny_model.py CASE_DIR OUT_DIR - a checkpoint of tests/parity with a tokenizer and a template.

The checkpoints of tests/parity are random and have no text.  Here they get a byte-level BPE
tokenizer with as many tokens as the model has, so that commands that read and write text can be
run without a trained model.  --no-template leaves the chat template out.
"""
import json
import os
import sys

SPECIAL = ["<bos>", "<eos>", "<user>", "<assistant>", "<system>"]
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{{ '<' + m['role'] + '>' }}{{ m['content'] }}"
            "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")


def byte_letters():
    """GPT-2's letters for the 256 bytes: printable ones are themselves."""
    own = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    other = iter(range(256, 512))
    return [chr(b) if b in own else chr(next(other)) for b in range(256)]


def tokenizer(n_vocab):
    letters = byte_letters()
    tokens = SPECIAL + letters
    merges = []
    pairs = ((a, b) for a in "etaoinsh" for b in "etaoinshrd")
    while len(tokens) < n_vocab:
        a, b = next(pairs)
        merges.append(f"{a} {b}")
        tokens.append(a + b)
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, t in enumerate(SPECIAL)]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}},
                                      {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                                    {"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {"<bos>": {"id": "<bos>", "ids": [0],
                                                        "tokens": ["<bos>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges},
    }


def main(argv):
    plain = "--no-template" in argv
    case, out = [a for a in argv if not a.startswith("--")]
    os.makedirs(out, exist_ok=True)
    for name in os.listdir(case):
        if name != "expected.safetensors":
            os.symlink(os.path.abspath(os.path.join(case, name)), os.path.join(out, name))
    with open(os.path.join(case, "config.json"), encoding="utf-8") as f:
        n_vocab = json.load(f)["vocab_size"]
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>",
              "eos_token": "<eos>", "clean_up_tokenization_spaces": False}
    if not plain:
        config["chat_template"] = TEMPLATE
    with open(os.path.join(out, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(tokenizer(n_vocab), f)
    with open(os.path.join(out, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)


main(sys.argv[1:])
