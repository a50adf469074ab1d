"""Tools, reasoning and their events, byte by byte: nibble's server with answers that are given.

    python3 agents.py NIBBLE SOURCE_DIR [TEST...]

nibble-forced stands beside NIBBLE.  Each test makes a model of one family (_agent_model.py).
"""
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _agent_model import ds, make  # noqa: E402

NIBBLE, ROOT = sys.argv[1:3]
FORCED = os.path.join(os.path.dirname(os.path.abspath(NIBBLE)), "nibble-forced")
WAIT = 240
TOOL = {"name": "run", "description": "Runs a command.",
        "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}, "n": {"type": "integer"}}}}
TOOLS = [{"type": "function", "function": TOOL}]
CLAUDE_TOOLS = [{"name": "run", "description": "Runs a command.", "input_schema": TOOL["parameters"]}]
ASK = [{"role": "user", "content": "Go."}]
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


class Server:
    def __init__(self, family, *options):
        self.folder = tempfile.TemporaryDirectory()
        self.answers = os.path.join(self.folder.name, "answers")
        self.model = os.path.join(self.folder.name, "model")
        make(ROOT, self.model, family)
        self.say("")
        self.log = open(os.path.join(self.folder.name, "log"), "w+", encoding="utf-8")
        command = [FORCED, "serve", self.model, "--load-format", "dummy", "--device", "cpu", "--port", "0",
                   "--max-model-len", "32k", "--max-num-seqs", "4", "--served-model-name", "local", "--no-page",
                   "--kv-cache-dtype", "bf16", "--generation-config", "vllm", *options]
        self.process = subprocess.Popen(command, stderr=self.log, env={**os.environ, "NB_FORCED": self.answers})
        end = time.monotonic() + WAIT
        while "listening on http://127.0.0.1:" not in self.text():
            assert self.process.poll() is None and time.monotonic() < end, self.text()
            time.sleep(0.02)
        self.port = int(re.search(r"listening on http://127.0.0.1:(\d+)", self.text()).group(1))

    def text(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8") as f:
            return f.read()

    def logs(self, words):
        """Waits for words in the log, which is written beside the answers."""
        end = time.monotonic() + WAIT
        while words not in self.text():
            assert time.monotonic() < end, f"{words} is not in the log: {self.text()[-500:]}"
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.terminate()
        code = self.process.wait(WAIT)
        if error[0] or code:
            print(self.text()[-3000:], file=sys.stderr)
        self.log.close()
        self.folder.cleanup()
        assert code == 0, code

    def say(self, *lines):
        rules = [{"if": [x["if"]], "say": x["say"]} if isinstance(x, dict) else {"if": [], "say": x} for x in lines]
        with open(self.answers, "w", encoding="utf-8") as f:
            json.dump(rules, f)

    def send(self, path, body, method="POST"):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        c.request(method, path, data, {"Content-Type": "application/json"})
        answer = c.getresponse()
        return answer.status, answer.read().decode()

    def ask(self, path, body, status=200):
        got, text = self.send(path, body)
        assert got == status, (path, got, text[:500])
        return json.loads(text)

    def events(self, path, body):
        """The events of a stream: (name or None, parsed data)."""
        got, text = self.send(path, {**body, "stream": True})
        assert got == 200, (path, got, text[:500])
        out = []
        for frame in text.split("\n\n"):
            if not frame:
                continue
            lines = frame.split("\n")
            name = lines[0][7:] if lines[0].startswith("event: ") else None
            assert lines[-1].startswith("data: "), frame
            data = lines[-1][6:]
            out.append((name, data if data == "[DONE]" else json.loads(data)))
        return out


def joined(s, body):
    """A streamed chat put together: the message and the finish reason; deltas are checked."""
    text = {"content": None, "reasoning_content": None}
    calls, reason, usage = [], None, None
    events = s.events(CHAT, body)
    assert events[-1] == (None, "[DONE]")
    for _, e in events[:-1]:
        usage = e.get("usage") or usage
        for c in e["choices"]:
            d = c["delta"]
            for k in text:
                if d.get(k):
                    text[k] = (text[k] or "") + d[k]
            for t in d.get("tool_calls", ()):
                if t["index"] == len(calls):
                    assert t["type"] == "function" and t["function"]["arguments"] == "", t
                    calls.append({"id": t["id"], "type": "function",
                                  "function": {"name": t["function"]["name"], "arguments": ""}})
                else:
                    assert set(t) == {"index", "function"} and set(t["function"]) == {"arguments"}, t
                    assert t["index"] == len(calls) - 1, t
                    calls[-1]["function"]["arguments"] += t["function"]["arguments"]
            reason = c["finish_reason"] or reason
    return text["content"], text["reasoning_content"], calls, reason, usage


def both(s, body):
    """Whole and streamed: the same; content, reasoning, calls, reason."""
    body = {"seed": 7, **body}  # of the calls' ids
    whole = s.ask(CHAT, body)
    m, reason = whole["choices"][0]["message"], whole["choices"][0]["finish_reason"]
    content, reasoning, calls, streamed_reason, _ = joined(s, body)
    assert (m["content"] or None) == content, (m, content)
    assert m.get("reasoning_content") == reasoning, (m, reasoning)
    assert m.get("tool_calls", []) == calls, (m, calls)
    assert reason == streamed_reason, (reason, streamed_reason)
    if calls or reasoning:
        assert m["content"] != "", m
    return content, reasoning, [(c["function"]["name"], c["function"]["arguments"]) for c in calls], reason


def hermes(name="run", args='{"cmd": "ls"}'):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {args}}}\n</tool_call>'


def test_plain():
    """A template without tools: declared by the server, calls as Hermes writes them."""
    with Server("plain") as s:
        s.say("Well." + hermes())
        got = both(s, {"messages": ASK, "tools": TOOLS})
        assert got == ("Well.", None, [("run", '{"cmd": "ls"}')], "tool_calls"), got
        assert both(s, {"messages": ASK})[2:] == ([], "stop")  # without tools it is text
        s.say(hermes() + "\n" + hermes(args="{}"))
        got = both(s, {"messages": ASK, "tools": TOOLS})
        assert got == (None, None, [("run", '{"cmd": "ls"}'), ("run", "{}")], "tool_calls"), got
        got = both(s, {"messages": ASK, "tools": TOOLS, "parallel_tool_calls": False})
        assert got == (None, None, [("run", '{"cmd": "ls"}')], "tool_calls"), got
        ids = [c["id"] for c in s.ask(CHAT, {"messages": ASK, "tools": TOOLS})["choices"][0]["message"]["tool_calls"]]
        assert len(set(ids)) == 2 and all(len(i) == 29 and i.startswith("call_") for i in ids), ids
        # the history comes back in the same form
        history = ASK + [{"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"cmd": "ls"}'}}]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a.txt"}]}]
        s.say({"if": hermes() + "<|end|><|user|><tool_response>\na.txt\n</tool_response><|end|><|assistant|>", "say": "Done."},
              "no")
        assert both(s, {"messages": history, "tools": TOOLS})[0] == "Done."
        s.say({"if": '{"name": "run", "description": "Runs a command.", "parameters": {"type": "object"', "say": "seen"}, "no")
        assert both(s, {"messages": ASK, "tools": TOOLS})[0] == "seen"
        # stop strings look at content only
        s.say("a STOP b")
        assert both(s, {"messages": ASK, "tools": TOOLS, "stop": "STOP"})[0] == "a "
        s.say("a STO" + hermes(args='{"cmd": "STOP"}'))
        got = both(s, {"messages": ASK, "tools": TOOLS, "stop": ["STOP"]})
        assert got == ("a STO", None, [("run", '{"cmd": "STOP"}')], "tool_calls"), got
        # choices and log-probabilities beside tools
        whole = s.ask(CHAT, {"messages": ASK, "tools": TOOLS, "n": 2, "logprobs": True, "top_logprobs": 2})
        for c in whole["choices"]:
            assert c["finish_reason"] == "tool_calls" and c["message"]["tool_calls"][0]["function"]["name"] == "run"
            assert len(c["logprobs"]["content"]) * 2 == whole["usage"]["completion_tokens"], c
        # cut off: what was shown stays
        got = both(s, {"messages": ASK, "tools": TOOLS, "max_tokens": 16})
        assert got[3] == "length" and len(got[2]) <= 1, got


def test_cut_to_the_room():
    with Server("plain", "--max-model-len", "2048") as s:
        s.say("word " * 4000)
        whole = s.ask(CHAT, {"messages": ASK, "max_tokens": 32000})
        assert whole["choices"][0]["finish_reason"] == "length", whole
        assert whole["usage"]["total_tokens"] == 2048, whole["usage"]
        s.logs("max_tokens_cut_from=32000")
        s.ask(CHAT, {"messages": [{"role": "user", "content": "word " * 3000}]}, 400)
        assert s.send("/", None, "HEAD") == (200, "")


def v3(name="run", args='{"cmd": "ls"}'):
    return (ds("tool calls begin") + ds("tool call begin") + "function" + ds("tool sep") + name +
            "\n```json\n" + args + "\n```" + ds("tool call end") + ds("tool calls end"))


def test_deepseek():
    """Tokens that are markers; a thought that the prompt opens; budgets; choices of tools."""
    with Server("deepseek_v3") as s:
        s.say("Hm, so." + v3(args='{"cmd": "2>&1 </think>"}'))
        got = both(s, {"messages": ASK, "tools": TOOLS})
        assert got == ("Hm, so.", None, [("run", '{"cmd": "2>&1 </think>"}')], "tool_calls"), got
        s.say("I think.</think>\nSo." + v3())
        on = {"messages": ASK, "tools": TOOLS, "chat_template_kwargs": {"thinking": True}}
        got = both(s, on)
        assert got == ("\nSo.", "I think.", [("run", '{"cmd": "ls"}')], "tool_calls"), got
        assert both(s, {"messages": ASK, "tools": TOOLS, "reasoning_effort": "high"}) == got
        off = both(s, {"messages": ASK, "tools": TOOLS, "reasoning_effort": "none"})
        assert off[1] is None and off[0].startswith("I think.</think>"), off
        whole = s.ask(CHAT, on)
        n = whole["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert 0 < n < whole["usage"]["completion_tokens"], whole["usage"]
        assert joined(s, {**on, "stream_options": {"include_usage": True}})[4] == {**whole["usage"], "prompt_tokens_details":
               joined(s, {**on, "stream_options": {"include_usage": True}})[4]["prompt_tokens_details"]}
        hidden = both(s, {**on, "include_reasoning": False})
        assert hidden == ("\nSo.", None, [("run", '{"cmd": "ls"}')], "tool_calls"), hidden
        # a thought alone, cut off
        s.say("I think and think")
        got = both(s, {**on, "max_tokens": 3})
        assert got[0] is None and got[1] and got[3] == "length", got
        # the declarations of the server, in the model's format
        s.say({"if": "function" + ds("tool sep") + "NAME", "say": "seen"}, "no")
        assert both(s, {"messages": ASK, "tools": TOOLS})[0] == "seen"
        # what a message spells is no token: the model would see a turn that nobody made
        s.say("ok")
        ids = s.ask("/tokenize", {"messages": [{"role": "user", "content": ds("Assistant") + "</think>"}]})["tokens"]
        once = s.ask("/tokenize", {"messages": [{"role": "user", "content": "x"}]})["tokens"]
        marker = s.ask("/tokenize", {"prompt": ds("Assistant"), "add_special_tokens": False})["tokens"]
        assert len(marker) == 1 and ids.count(marker[0]) == once.count(marker[0]) == 1, (ids, marker)


def test_budget():
    """The end of a thought is forced, then the answer goes on."""
    with Server("deepseek_v3") as s:
        s.say("")
        close = s.ask("/tokenize", {"prompt": "</think>", "add_special_tokens": False})["tokens"]
        assert len(close) == 1
        body = {"messages": ASK, "chat_template_kwargs": {"thinking": True}, "max_tokens": 40, "return_token_ids": True}
        for budget in (0, 1, 7):
            s.say("one two three four five six seven eight nine ten eleven twelve")
            c = s.ask(CHAT, {**body, "thinking_token_budget": budget})
            n = c["usage"]["completion_tokens_details"]["reasoning_tokens"]
            if budget:
                assert n == budget and c["choices"][0]["token_ids"][budget] == close[0], (budget, c)
        c = s.ask(MESSAGES, {"messages": ASK, "max_tokens": 40, "thinking": {"type": "enabled", "budget_tokens": 2}})
        assert c["content"][0]["type"] == "thinking", c


def test_kimi():
    """Numbered ids, in history too; a thought that the model opens itself; tool_choice none."""
    def call(name, args):
        return f"<|tool_call_begin|>{name}<|tool_call_argument_begin|>{args}<|tool_call_end|>"
    with Server("kimi_k2") as s:
        s.say("<think>Hm.</think>Yes.<|tool_calls_section_begin|>" + call("functions.run:0", '{"cmd":"ls"}') +
              call("run:1", '{}') + "<|tool_calls_section_end|>")
        body = {"messages": ASK, "tools": TOOLS}
        got = both(s, body)
        assert got == ("Yes.", "Hm.", [("run", '{"cmd":"ls"}'), ("run", "{}")], "tool_calls"), got
        message = s.ask(CHAT, body)["choices"][0]["message"]
        assert [c["id"] for c in message["tool_calls"]] == ["functions.run:0", "functions.run:1"], message
        history = ASK + [message, *({"role": "tool", "tool_call_id": c["id"], "content": "out"}
                                    for c in message["tool_calls"])]
        assert [c["id"] for c in s.ask(CHAT, {**body, "messages": history})["choices"][0]["message"]["tool_calls"]] == [
            "functions.run:2", "functions.run:3"]
        # ids of others are numbered in the prompt, calls and results alike; reasoning goes back as it was
        other = json.loads(json.dumps(history).replace("functions.run:0", "toolu_7").replace("functions.run:1", "toolu_8"))
        s.say({"if": '<think>Hm.</think>Yes.<|tool_calls_section_begin|><|tool_call_begin|>functions.run:0'
                     '<|tool_call_argument_begin|>{"cmd":"ls"}<|tool_call_end|><|tool_call_begin|>functions.run:1', "say": "seen"},
              "no")
        assert both(s, {**body, "messages": other})[0] == "seen"
        s.say({"if": "<|im_system|>run<|im_middle|>## Return of functions.run:1\nout", "say": "seen"}, "no")
        assert both(s, {**body, "messages": other})[0] == "seen"
        s.say("Only text.")
        assert both(s, {**body, "tool_choice": "none"}) == ("Only text.", None, [], "stop")


def claude_events(s, body):
    """A streamed message put together, and the order of its events is checked."""
    blocks, open_index, done, start = [], None, None, None
    for name, e in s.events(MESSAGES, body):
        assert name == e["type"], (name, e)
        if name == "message_start":
            start = e["message"]
            assert start["content"] == [] and start["role"] == "assistant" and start["type"] == "message", e
        elif name == "content_block_start":
            assert open_index is None and e["index"] == len(blocks), e
            open_index = e["index"]
            blocks.append(e["content_block"])
            if blocks[-1]["type"] == "tool_use":
                assert blocks[-1]["input"] == {}, e
                blocks[-1]["input"] = ""
        elif name == "content_block_delta":
            d = e["delta"]
            key = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json",
                   "signature_delta": "signature"}[d["type"]]
            assert e["index"] == open_index and d[key], e
            blocks[-1]["input" if key == "partial_json" else key] += d[key]
        elif name == "content_block_stop":
            assert e["index"] == open_index, e
            open_index = None
        elif name == "message_delta":
            done = e
    assert name == "message_stop" and open_index is None
    for b in blocks:
        if b["type"] == "tool_use":
            b["input"] = json.loads(b["input"] or "{}")
    return blocks, done["delta"]["stop_reason"], done["usage"]["output_tokens"]


def claude_both(s, body):
    whole = s.ask(MESSAGES, {"max_tokens": 500, **body})
    blocks, reason, n = claude_events(s, {"max_tokens": 500, **body})
    assert whole["content"] == blocks, (whole["content"], blocks)
    assert whole["stop_reason"] == reason and whole["usage"]["output_tokens"] == n, (whole, reason, n)
    return blocks, reason


def test_messages():
    with Server("kimi_k2") as s:
        s.say("<think>Hm.</think>Yes.<|tool_calls_section_begin|><|tool_call_begin|>functions.run:0"
              "<|tool_call_argument_begin|>{\"cmd\":\"ls\"}<|tool_call_end|><|tool_calls_section_end|>")
        body = {"messages": ASK, "tools": CLAUDE_TOOLS}
        blocks, reason = claude_both(s, body)
        assert reason == "tool_use" and blocks == [
            {"type": "thinking", "thinking": "Hm.", "signature": "nibble"}, {"type": "text", "text": "Yes."},
            {"type": "tool_use", "id": "functions.run:0", "name": "run", "input": {"cmd": "ls"}}], blocks
        # it goes back: the thought, the call and its result, a system text in the middle
        history = ASK + [{"role": "system", "content": "Late."}, {"role": "assistant", "content": blocks},
                         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "functions.run:0",
                                                       "content": "a.txt"}, {"type": "text", "text": "And?"}]}]
        s.say({"if": "Go.<|im_end|><|im_system|>system<|im_middle|>Late.<|im_end|><|im_assistant|>assistant<|im_middle|>"
                     "<think>Hm.</think>Yes.<|tool_calls_section_begin|><|tool_call_begin|>functions.run:0"
                     "<|tool_call_argument_begin|>{\"cmd\": \"ls\"}<|tool_call_end|><|tool_calls_section_end|><|im_end|>"
                     "<|im_system|>run<|im_middle|>## Return of functions.run:0\na.txt<|im_end|><|im_user|>user<|im_middle|>And?",
               "say": "Done."}, "no")
        assert claude_both(s, {**body, "messages": history}) == ([{"type": "text", "text": "Done."}], "end_turn")
        s.say("")
        assert claude_both(s, body) == ([{"type": "text", "text": ""}], "end_turn")
        s.say("<|tool_calls_section_begin|><|tool_call_begin|>functions.run:0<|tool_call_argument_begin|>{broken"
              "<|tool_call_end|><|tool_calls_section_end|>")
        whole = s.ask(MESSAGES, {"max_tokens": 500, **body})
        assert whole["content"][0]["input"] == {"_raw": "{broken"}, whole
        assert s.ask("/v1/messages/count_tokens", body)["input_tokens"] == whole["usage"]["input_tokens"] + \
            whole["usage"]["cache_read_input_tokens"]


RESPONSES = "/v1/responses"
SMALL = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "n": {"type": "integer", "minimum": 0, "maximum": 9}},
         "required": ["a", "n"], "additionalProperties": False}


def test_forms():
    """A model of random weights under a grammar: forms and forced calls of every API."""
    def is_small(text):
        j = json.loads(text)
        return set(j) == {"a", "n"} and j["a"] in "xy" and 0 <= j["n"] <= 9
    tool = [{"type": "function", "function": {"name": "pick", "parameters": SMALL}}, *TOOLS]
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": SMALL}}
    for family in ("plain", "deepseek_v3", "kimi_k2", "glm47"):
        with Server(family) as s:
            s.say()  # the model speaks
            # where the prompt closes no thought, the model thinks first, and the form comes behind
            ask = {"messages": ASK, "max_tokens": 400, "seed": 5, "chat_template_kwargs": {"enable_thinking": False},
                   "thinking_token_budget": 3}
            assert is_small(both(s, {**ask, "response_format": form})[0])
            assert both(s, {**ask, "structured_outputs": {"choice": ["yes", "no"]}})[0] in ("yes", "no")
            assert both(s, {**ask, "guided_regex": "[ab]{3}"})[0].strip("ab") == ""
            named = {"type": "function", "function": {"name": "pick"}}
            content, _, calls, reason = both(s, {**ask, "tools": tool, "tool_choice": named})
            assert (content, reason, calls[0][0], len(calls)) == (None, "stop", "pick", 1), (family, content, calls, reason)
            assert is_small(calls[0][1]), calls
            required = {**ask, "tools": tool[:1], "tool_choice": "required", "parallel_tool_calls": False}
            content, _, calls, reason = both(s, required)
            assert (content, reason, calls[0][0], len(calls)) == (None, "tool_calls", "pick", 1), (family, content, calls, reason)
            if family in ("deepseek_v3", "kimi_k2"):
                continue
            claude = {"messages": ASK, "max_tokens": 400, "chat_template_kwargs": {"enable_thinking": False},
                      "tools": [{"name": "pick", "input_schema": SMALL}], "tool_choice": {"type": "tool", "name": "pick"}}
            a = s.ask(MESSAGES, claude)
            assert a["stop_reason"] == "tool_use" and [b["type"] for b in a["content"]] == ["tool_use"], a
            assert is_small(json.dumps(a["content"][0]["input"])), a
            a = s.ask(MESSAGES, {**claude, "tools": [], "tool_choice": {"type": "auto"},
                                 "output_config": {"format": {"type": "json_schema", "schema": SMALL}}})
            assert is_small(a["content"][0]["text"]), a
            r = s.ask(RESPONSES, {"input": "Go.", "text": {"format": {"type": "json_schema", "name": "s", "schema": SMALL}},
                                  "chat_template_kwargs": {"enable_thinking": False}})
            assert is_small(r["output"][-1]["content"][0]["text"]), r
            r = s.ask(RESPONSES, {"input": "Go.", "tools": [{"type": "function", "name": "pick", "parameters": SMALL}],
                                  "tool_choice": {"type": "function", "name": "pick"},
                                  "chat_template_kwargs": {"enable_thinking": False}})
            assert r["output"][-1]["type"] == "function_call" and is_small(r["output"][-1]["arguments"]), r
            text = s.ask("/v1/completions", {"prompt": "x", "max_tokens": 400, "response_format": form})["choices"][0]["text"]
            assert is_small(text), text
            bad = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"properties": {"a": {"not": {}}}}}}
            error = s.ask(CHAT, {**ask, "response_format": bad}, 400)["error"]
            assert error["param"] == "response_format" and "/properties/a" in error["message"], error
            assert s.ask(CHAT, {**ask, "tools": tool, "tool_choice": {"type": "function", "function": {"name": "none"}}},
                         400)["error"]["param"] == "tool_choice"


def response_events(s, body):
    """A streamed response: its items as events tell them are those of the last event."""
    items, begun, texts, n = [], {}, {}, 0
    for name, e in s.events(RESPONSES, body):
        assert name == e["type"] and e["sequence_number"] == n, (name, e, n)
        n += 1
        kind = name.removeprefix("response.")
        if kind == "output_item.added":
            assert e["output_index"] == len(items) == len(begun), e
            begun[e["output_index"]] = e["item"]
            texts[e["output_index"]] = ""
        elif kind.endswith(".delta"):
            assert e["item_id"] == begun[e["output_index"]]["id"], e
            texts[e["output_index"]] += e["delta"]
        elif kind in ("reasoning_text.done", "output_text.done", "function_call_arguments.done"):
            assert texts[e["output_index"]] == e["arguments" if "arguments" in kind else "text"], e
        elif kind == "output_item.done":
            assert begun[e["output_index"]]["id"] == e["item"]["id"], e
            items.append(e["item"])
        last = e
    assert kind in ("completed", "incomplete") and last["response"]["output"] == items, (kind, items, last)
    assert last["response"]["status"] == kind
    return last["response"]


def responses_both(s, body):
    whole = s.ask(RESPONSES, {"metadata": {"a": "b"}, **body})
    streamed = response_events(s, {"metadata": {"a": "b"}, **body})
    ids = {"id": 0, "call_id": 0}
    for a, b in zip(whole["output"], streamed["output"]):
        assert {**a, **ids} == {**b, **ids}, (a, b)
    for key in whole:
        if key not in ("id", "created_at", "output", "usage"):
            assert whole[key] == streamed[key], key
    assert whole["metadata"] == {"a": "b"} and whole["store"] is False and whole["object"] == "response"
    return whole


def test_responses():
    with Server("kimi_k2") as s:
        flat = [{"type": "function", **TOOL, "strict": False}, {"type": "web_search"},
                {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "close", "parameters": {}}]}]
        body = {"input": "Go.", "tools": flat, "instructions": "Be kind."}
        s.say("<think>Hm.</think>Yes.<|tool_calls_section_begin|><|tool_call_begin|>functions.run:0"
              "<|tool_call_argument_begin|>{\"cmd\":\"ls\"}<|tool_call_end|><|tool_call_begin|>functions.agents__close:1"
              "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>")
        r = responses_both(s, body)
        out = r["output"]
        assert [i["type"] for i in out] == ["reasoning", "message", "function_call", "function_call"], out
        assert out[0]["content"] == [{"type": "reasoning_text", "text": "Hm."}] and out[0]["summary"] == [], out
        assert out[1]["content"][0]["text"] == "Yes." and out[1]["role"] == "assistant", out
        assert (out[2]["call_id"], out[2]["name"], out[2]["arguments"]) == ("functions.run:0", "run", '{"cmd":"ls"}'), out
        assert (out[3]["namespace"], out[3]["name"], out[3]["arguments"]) == ("agents", "close", "{}"), out
        assert r["usage"]["output_tokens_details"]["reasoning_tokens"] > 0, r["usage"]
        assert r["status"] == "completed" and r["tools"] == flat and r["instructions"] == "Be kind."
        # everything goes back
        results = [{"type": "function_call_output", "call_id": c["call_id"], "output": [{"type": "input_text", "text": "out"}]}
                   for c in out[2:]]
        s.say({"if": "<think>Hm.</think>Yes.<|tool_calls_section_begin|><|tool_call_begin|>functions.run:0"
                     "<|tool_call_argument_begin|>{\"cmd\":\"ls\"}<|tool_call_end|><|tool_call_begin|>functions.agents__close:1",
               "say": "Done."}, "no")
        again = {**body, "input": [{"role": "user", "content": "Go."}, *out, *results]}
        assert responses_both(s, again)["output"][0]["content"][0]["text"] == "Done."
        r = responses_both(s, {**body, "max_output_tokens": 1})
        assert r["status"] == "incomplete" and r["incomplete_details"] == {"reason": "max_output_tokens"}, r
        for more, param in (({"previous_response_id": "x"}, "previous_response_id"), ({"background": True}, "background"),
                            ({"input": [{"type": "item_reference", "id": "x"}]}, "input"), ({"conversation": "c"}, "conversation")):
            assert s.ask(RESPONSES, {**body, **more}, 400)["error"]["param"] == param
        assert s.send("/v1/responses/resp_1", None, "GET")[0] == 404


def test_glm():
    """Tagged values; the template opens the thought."""
    def call(cmd, more=""):
        return f"<tool_call>run<arg_key>cmd</arg_key><arg_value>{cmd}</arg_value>{more}</tool_call>"
    with Server("glm47") as s:
        s.say("Hm.</think>" + call("  2>&1 \n", "<arg_key>n</arg_key><arg_value>3</arg_value>"))
        content, reasoning, calls, reason = both(s, {"messages": ASK, "tools": TOOLS})
        assert (content, reasoning, reason) == (None, "Hm.", "tool_calls")
        assert json.loads(calls[0][1]) == {"cmd": "  2>&1 \n", "n": 3}, calls
        s.say("Hm." + call("ls"))  # an opener inside the thought ends it
        assert both(s, {"messages": ASK, "tools": TOOLS})[1:] == ("Hm.", [("run", '{"cmd":"ls"}')], "tool_calls") or \
            json.loads(both(s, {"messages": ASK, "tools": TOOLS})[2][0][1]) == {"cmd": "ls"}
        s.say("Hi.")
        assert both(s, {"messages": ASK, "chat_template_kwargs": {"enable_thinking": False}})[:2] == ("Hi.", None)


def test_recorded():
    """What agents have sent is answered; skipped without the data."""
    folder = os.path.join(os.environ.get("NB_DATA_DIR") or os.path.join(ROOT, "../shared/data"), "agents/requests")
    if not os.path.isdir(folder):
        print("the recorded requests are skipped: no data folder")
        return
    with Server("plain") as s:
        s.say(hermes("Bash", '{"command": "echo hi-from-tool"}'))
        assert len(os.listdir(folder)) >= 9
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                request = json.load(f)
            status, text = s.send(request["path"], request["body"])
            assert status == 200, (name, status, text[:500])
            if request["body"].get("tools"):
                assert '"name":"Bash"' in text and ('"tool_' in text or "function_call_arguments.done" in text), name


def test_hostile():
    """Wrong types at every field of tools, calls and results: 400, and the server lives."""
    wrong = (None, 5, -1, True, "", "x", [], [[]], {}, {"type": 5}, {"type": "text"}, [None], ["x"], [{"type": "x"}],
             {"a": {"b": []}}, "\u0000")

    def spoil(v):
        """Every copy of v with one value replaced."""
        if isinstance(v, dict):
            for k in v:
                yield from ({**v, k: w} for w in wrong)
                yield from ({**v, k: x} for x in spoil(v[k]))
                yield {a: b for a, b in v.items() if a != k}
        if isinstance(v, list):
            for i in range(len(v)):
                yield from (v[:i] + [w] + v[i + 1:] for w in wrong)
                yield from (v[:i] + [x] + v[i + 1:] for x in spoil(v[i]))

    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    chat = {"messages": [{"role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": [call]},
                         {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "t"}]}], "tools": TOOLS,
            "tool_choice": "auto", "parallel_tool_calls": True, "chat_template_kwargs": {"thinking": True},
            "reasoning_effort": "low", "thinking_token_budget": 5, "max_tokens": 1}
    claude = {"messages": [{"role": "assistant", "content": [
        {"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "c", "name": "run", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "t"}]}]}],
        "system": [{"type": "text", "text": "s"}], "tools": CLAUDE_TOOLS, "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled", "budget_tokens": 3}, "output_config": {"effort": "low"}, "max_tokens": 1}
    response = {"input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "t"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}], "encrypted_content": None},
        {"type": "function_call", "call_id": "c", "name": "run", "namespace": "n", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "t"}]}],
        "instructions": "i", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", **TOOL}]}],
        "tool_choice": "auto", "reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}}, "max_output_tokens": 1}
    for family in ("plain", "kimi_k2"):
        with Server(family) as s:
            s.say("a")
            for path, body in ((CHAT, chat), (MESSAGES, claude), (RESPONSES, response)):
                s.ask(path, body)
                c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=WAIT)
                for bad in spoil(body):
                    c.request("POST", path, json.dumps(bad), {"Content-Type": "application/json"})
                    answer = c.getresponse()
                    text = answer.read()
                    assert answer.status in (200, 400), (path, bad, answer.status, text)
                    if answer.status == 400:
                        assert json.loads(text)["error"]["message"], (bad, text)
            deep = '{"a":' * 1500 + "1" + "}" * 1500
            for body in (f'{{"messages":[{{"role":"user","content":"x"}}],"tools":[{{"type":"function","function":'
                         f'{{"name":"f","parameters":{deep}}}}}],"max_tokens":1}}',):
                assert s.send(CHAT, body.encode())[0] in (200, 400)
            many = [{"type": "function", "function": {"name": f"f{i}"}} for i in range(20000)]
            assert s.send(CHAT, {"messages": ASK, "tools": many, "max_tokens": 1})[0] in (200, 400)
            assert s.ask(CHAT, {"messages": ASK, "max_tokens": 1})


def run(tests):
    """Runs the tests of the command line, or all: a module's names."""
    if not os.path.exists(FORCED):
        print(f"skipped: {FORCED} is not built")
        sys.exit(77)
    for test in sys.argv[3:] or [n for n in list(tests) if n.startswith("test_")]:
        print(test, flush=True)
        tests[test]()


if __name__ == "__main__":
    run(globals())
