"""_tools_model.py NIBBLE MODEL FOLDER AGENT - a real model that calls tools, through the chat endpoint:
calls, thoughts and JSON, streamed as not streamed; then examples/agent.mjs where node is there.
"""
import json
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
from _server import MODEL, Server

AGENT = sys.argv[4]


def tool(name, parameter, description):
    return dict(type="function", function=dict(name=name, description=description, parameters=dict(
        type="object", properties={parameter: dict(type="string")}, required=[parameter])))


TOOLS = [tool("get_weather", "city", "Get the current weather"), tool("calculator", "expression", "A calculator")]


def post(server, body):
    c = server.connect()
    c.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    r = c.getresponse()
    text = r.read().decode()
    assert r.status == 200, text
    return text


def whole(server, body):
    j = json.loads(post(server, body))
    return j["choices"][0]["message"], j["choices"][0]["finish_reason"], j["usage"]


def streamed(server, body):
    """the message that the chunks add up to, and the finish_reason"""
    m, reason = dict(content="", reasoning_content="", tool_calls=[]), None
    for line in post(server, dict(body, stream=True)).splitlines():
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        c = json.loads(line[6:])["choices"][0]
        d = c["delta"]
        reason = c["finish_reason"] or reason
        for k in ("content", "reasoning_content"):
            m[k] += d.get(k) or ""
        for t in d.get("tool_calls", ()):
            if t["index"] == len(m["tool_calls"]): # T1: the first delta has id, type and the whole name
                assert t["id"] and t["type"] == "function" and t["function"]["name"], t
                m["tool_calls"].append(dict(t["function"]))
            else:
                assert set(t) == {"index", "function"} and set(t["function"]) == {"arguments"}, t
                m["tool_calls"][t["index"]]["arguments"] += t["function"]["arguments"]
    return m, reason


def ask(server, text, tools=TOOLS, thinking=False, **more):
    body = dict(messages=[dict(role="user", content=text)], temperature=0,
                chat_template_kwargs=dict(thinking=thinking), **more)
    if tools:
        body["tools"] = tools
    m, reason, usage = whole(server, body)
    s, s_reason = streamed(server, body)
    calls = [t["function"] for t in m.get("tool_calls") or []]
    assert (s["content"], s["reasoning_content"], s["tool_calls"], s_reason) == \
        (m["content"] or "", m.get("reasoning_content") or "", calls, reason), (m, s)
    for special in ("<think>", "</think>", "\uff5c"):
        assert special not in json.dumps(m, ensure_ascii=False), m
    return m, [(c["name"], json.loads(c["arguments"])) for c in calls], reason, usage


with Server(MODEL, "--port", "0", "--kv-cache-memory-bytes", "32M", "--kv-cache-dtype", "bf16", small=False) as server:
    m, calls, reason, usage = ask(server, "What is the weather in Oslo?")
    assert calls == [("get_weather", {"city": "Oslo"})] and reason == "tool_calls", m
    assert m["content"] is None and not m.get("reasoning_content"), m

    # Forced calls satisfy the schema, also after a thought; the model alone would leave `unit` out.
    unit = tool("get_weather", "city", "Get the current weather")
    unit["function"]["parameters"]["properties"]["unit"] = {"enum": ["c", "f"]}
    unit["function"]["parameters"]["required"] = ["city", "unit"]
    for thinking in (False, True):
        m, calls, reason, _ = ask(server, "What is the weather in Oslo?", [unit, TOOLS[1]], thinking, tool_choice="required")
        assert [c[0] for c in calls] == ["get_weather"] and reason == "tool_calls", m
        assert set(calls[0][1]) >= {"city", "unit"} and calls[0][1]["unit"] in ("c", "f"), m
        assert bool(m.get("reasoning_content")) == thinking, m
    strict = json.loads(json.dumps(unit))
    strict["function"]["strict"] = True
    m, calls, reason, _ = ask(server, "What is the weather in Oslo?", [strict])
    assert calls[0][1].get("unit") in ("c", "f") and reason == "tool_calls", m
    m, calls, reason, _ = ask(server, "Hello!", tool_choice=dict(type="function", function=dict(name="calculator")))
    assert [c[0] for c in calls] == ["calculator"] and "expression" in calls[0][1] and reason == "stop", m

    m, calls, reason, usage = ask(server, "What is the weather in Oslo?", thinking=True)
    assert calls == [("get_weather", {"city": "Oslo"})] and m["reasoning_content"], m
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"], usage

    m, calls, reason, usage = ask(server, "What is the weather in Paris and Rome?")
    assert calls == [("get_weather", {"city": c}) for c in ("Paris", "Rome")], m

    m, calls, reason, usage = ask(server, "What is the weather in Paris and Rome?", parallel_tool_calls=False)
    assert calls == [("get_weather", {"city": "Paris"})] and reason == "tool_calls", m

    m, calls, reason, usage = ask(server, "What is the weather in Oslo?", max_tokens=3)
    assert reason == "length" and not calls, m

    m, calls, reason, usage = ask(server, "Hello!")
    assert not calls and reason == "stop" and m["content"], m

    m, calls, reason, usage = ask(server, "Answer in JSON with the keys age, name: the age is 7, the name is Anna.", tools=None)
    assert json.loads(m["content"]) == {"age": 7, "name": "Anna"}, m

    if shutil.which("node"):
        r = subprocess.run(["node", AGENT, "--url", f"http://{server.host}:{server.port}/v1",
                            "What is the weather in Oslo?", "What is 12 times 7?"], capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        assert 'weather({"city": "Oslo"})' in r.stderr and 'calculator({"expression": "12 * 7"})' in r.stderr, r.stderr
        assert "23" in r.stdout and "84" in r.stdout, r.stdout
