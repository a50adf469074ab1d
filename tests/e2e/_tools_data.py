"""_tools_data.py NIBBLE SOURCE DIR - train/tools.py against the program that will serve its model: the
text that is trained on is what the chat template renders, its ids are what the tokenizer gives, calls are
of declared tools, and nothing held out is in the training text."""
import json
import os
import subprocess
import sys

nibble, src, d = sys.argv[1:4]
sys.path.insert(0, os.path.join(src, "train"))
sys.dont_write_bytecode = True
import tools

tiny = os.path.join(src, "models/nibble-tiny")
config = json.load(open(os.path.join(tiny, "config.json")))
config.update(vocab_size=tools.VOCAB)
json.dump(config, open(os.path.join(d, "config.json"), "w"))
tok = json.load(open(os.path.join(tiny, "tokenizer_config.json")))
tok.update(chat_template=tools.TEMPLATE)
json.dump(tok, open(os.path.join(d, "tokenizer_config.json"), "w"))
tools.extend_tokenizer(os.path.join(tiny, "tokenizer.json"), os.path.join(d, "tokenizer.json"))
coder = tools.Coder(os.path.join(d, "tokenizer.json"))


def run(*a):
    r = subprocess.run([nibble, *a], capture_output=True, text=True, encoding="utf-8")
    if r.returncode:
        sys.exit("nibble %s: %s" % (a[0], r.stderr.strip()))
    return r.stdout


def check(name, t):
    request = dict(messages=t.messages)
    if t.tools:
        request["tools"] = t.tools
    path = os.path.join(d, "request.json")
    json.dump(request, open(path, "w"))
    want = "".join(x for x, _ in tools.pieces(t))
    got = run("render", d, "--messages", path, "--no-generation-prompt")
    if got.rstrip("\n") != want:
        sys.exit("%s: the template renders\n%s\nthe generator writes\n%s" % (name, got, want))
    path = os.path.join(d, "text")
    open(path, "w").write(want)
    got = json.loads(run("tokenize", d, "--file", path, "--parse-special", "--json"))
    if got != [i for x, _ in tools.pieces(t) for i in coder.encode(x)]:
        sys.exit("%s: other ids for\n%s" % (name, want))
    declared = {x["function"]["name"]: x["function"]["parameters"] for x in t.tools}
    for m in t.messages:
        for c in m.get("tool_calls", ()):
            f = c["function"]
            p = declared[f["name"]]
            if set(p["required"]) - set(f["arguments"]) or set(f["arguments"]) - set(p["properties"]):
                sys.exit("%s: the call %s does not fit its tool" % (name, json.dumps(f)))


n_calls = 0
for seed in range(12):
    t = tools.conversation(tools.Source(seed))
    check("conversation %d" % seed, t)
    n_calls += t.n_calls
for i, (kind, t) in enumerate(tools.prompts(16, 1)):
    check("prompt %d (%s)" % (i, kind), t)
    if kind in ("call", "two", "second") and not t.messages[-1].get("tool_calls"):
        sys.exit("prompt %d (%s) does not end with a call" % (i, kind))
assert n_calls > 5

words = [tools.Source(s).person() + " " + tools.Source(s).place() for s in range(2000)]
held = [w for x in words for w in x.split() if tools.held(w) and w not in ("New", "Old", "Port", "Saint", "North", "Lake")]
if held:
    sys.exit("held-out words in the training text: %s" % held[:5])
s = tools.Source(1, out=True)
assert all(tools.held(s.word()) for _ in range(200))
gen = tools.rows(tools.Source(3), coder)
for _ in range(3):
    ids, w = next(gen)
    assert len(ids) == len(w) == tools.T and max(ids) < tools.VOCAB and set(w) <= {0, 1, 12}
