"""Tool calls of DeepSeek V3.2 and V4 (DSML) with their vendor's tokenizer and prompts, on all three ways of the API.

    python3 agents_dsml.py NIBBLE SOURCE_DIR [TEST...]

The vocabulary and the template come from the data folder ($NB_DATA_DIR, else ../shared/data); V4's prompts are the
program's own.  The answers are given (forced.c), but for those that a grammar makes.
"""
import json
import lzma
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import _agent_model  # noqa: E402
import agents  # noqa: E402
from agents import ASK, CLAUDE_TOOLS, MESSAGES, ROOT, TOOL, TOOLS, Server, both, claude_events, responses_both  # noqa: E402

DATA = os.path.join(os.environ.get("NB_DATA_DIR") or os.path.join(ROOT, "../shared/data"), "tokenizers")
BAR = "\uff5c"
MORE = ["<think>", "</think>", f"{BAR}DSML{BAR}"]  # which the tokenizer of V3 lacks
FAMILIES = {"deepseek_v32": ("v32", "function_calls"), "deepseek_v4": ("v4", "tool_calls")}


def make(root, out, family):
    shape, _ = FAMILIES[family]
    os.makedirs(out)
    with lzma.open(f"{DATA}/deepseek_v3/tokenizer.json.xz", "rt", encoding="utf-8") as f:
        tokenizer = json.load(f)
    added = tokenizer["added_tokens"]
    spare = [t for t in added if "place" in t["content"]]
    for token, text in zip(spare, MORE):
        token.update(content=text, special=False)
    with open(f"{DATA}/deepseek_v3/tokenizer_config.json", encoding="utf-8") as f:
        config = json.load(f)
    config.pop("chat_template", None)
    if family == "deepseek_v32":
        with open(f"{DATA}/templates/deepseek-ai-DeepSeek-V3.2.jinja", encoding="utf-8") as f:
            config["chat_template"] = f.read()
    with open(f"{root}/tests/parity/{shape}/config.json", encoding="utf-8") as f:
        model = json.load(f)
    model.update(vocab_size=1 + max(t["id"] for t in added), max_position_embeddings=65536, bos_token_id=0, eos_token_id=1)
    for name, doc in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config), ("config.json", model)):
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            json.dump(doc, f)


agents.make = make


def dsml(word, name, **arguments):
    d = f"{BAR}DSML{BAR}"
    values = "".join(f'<{d}parameter name="{k}" string="{str(isinstance(v, str)).lower()}">'
                     f"{v if isinstance(v, str) else json.dumps(v)}</{d}parameter>\n" for k, v in arguments.items())
    return f'<{d}{word}>\n<{d}invoke name="{name}">\n{values}</{d}invoke>\n</{d}{word}>'


def told(calls):
    return [(name, json.loads(text)) for name, text in calls]


def check(family):
    word = FAMILIES[family][1]
    args = {"cmd": "ls 2>&1 | grep '</think>' && echo \u00fc\n", "n": 3}
    call = dsml(word, "run", **args)
    with Server(family) as s:
        # text, then a call; the same in pieces (both: whole and streamed)
        s.say("So.\n\n" + call)
        off = {"messages": ASK, "tools": TOOLS, "chat_template_kwargs": {"thinking": False}}
        content, thought, calls, reason = both(s, off)
        assert (content, thought, told(calls), reason) == ("So.", None, [("run", args)], "tool_calls"), (content, thought, calls)
        two = dsml(word, "run", cmd="a")[:-len(f"</{BAR}DSML{BAR}{word}>")] + dsml(word, "run", cmd="b").split("\n", 1)[1]
        s.say(two)
        content, _, calls, _ = both(s, off)
        assert content is None and told(calls) == [("run", {"cmd": "a"}), ("run", {"cmd": "b"})], (content, calls)
        # a thought that the prompt opens
        s.say("I think.</think>So.\n\n" + call)
        on = {**off, "chat_template_kwargs": {"thinking": True}}
        content, thought, calls, reason = both(s, on)
        assert (content, thought, told(calls), reason) == ("So.", "I think.", [("run", args)], "tool_calls"), (content, thought, calls)
        # Anthropic's messages and OpenAI's responses
        claude = {"messages": ASK, "tools": CLAUDE_TOOLS, "thinking": {"type": "enabled", "budget_tokens": 400}}
        whole = s.ask(MESSAGES, {"max_tokens": 500, **claude})
        blocks, reason, _ = claude_events(s, {"max_tokens": 500, **claude})
        assert [{**b, "id": 0} for b in whole["content"]] == [{**b, "id": 0} for b in blocks], (whole, blocks)
        assert whole["stop_reason"] == reason, whole
        assert [b["type"] for b in blocks] == ["thinking", "text", "tool_use"] and reason == "tool_use", blocks
        assert blocks[0]["thinking"] == "I think." and blocks[2]["input"] == args and blocks[2]["name"] == "run", blocks
        flat = [{"type": "function", **TOOL}]
        r = responses_both(s, {"input": "Go.", "tools": flat, "chat_template_kwargs": {"thinking": True}})
        assert [i["type"] for i in r["output"]] == ["reasoning", "message", "function_call"], r["output"]
        assert json.loads(r["output"][2]["arguments"]) == args, r["output"]
        # calls and results go back in the model's own words
        plain = {"cmd": "ls", "n": 3}
        seen = dsml(word, "run", **plain)
        s.say({"if": seen, "say": "Done."}, "no")
        turn = [{"role": "assistant", "content": "So.", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "run", "arguments": json.dumps(plain)}}]},
            {"role": "tool", "tool_call_id": "c", "content": "a.txt"}]
        assert both(s, {**off, "messages": ASK + turn})[0] == "Done."
        use = [{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "run", "input": plain}]},
               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "a.txt"}]}]
        assert s.ask(MESSAGES, {"messages": ASK + use, "tools": CLAUDE_TOOLS, "max_tokens": 50})["content"][-1]["text"] == "Done."
        # what the grammar makes: the model speaks
        s.say()
        small = {"name": "pick", "parameters": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
                                                "required": ["a"], "additionalProperties": False}}
        forced = {**off, "tools": [{"type": "function", "function": small}], "tool_choice": "required",
                  "parallel_tool_calls": False, "max_tokens": 200, "seed": 5}
        content, _, calls, reason = both(s, forced)
        assert content is None and reason == "tool_calls" and [c[0] for c in told(calls)] == ["pick"], (content, calls, reason)
        assert 0 <= told(calls)[0][1]["a"] <= 9, calls


def test_v32():
    check("deepseek_v32")


def test_v4():
    check("deepseek_v4")


if __name__ == "__main__":
    if not os.path.exists(f"{DATA}/deepseek_v3/tokenizer.json.xz"):
        print("skipped: no tokenizers in the data folder")
        sys.exit(77)
    agents.run(globals())
