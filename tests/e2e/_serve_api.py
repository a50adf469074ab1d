"""Asks a running `nibble serve` what its API promises; called by serve_api.sh.

    python3 _serve_api.py NIBBLE MODEL [TEST...]
"""
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

NIBBLE, MODEL = sys.argv[1:3]
WAIT = 300  # seconds for what takes one; nothing is measured
STORY = {"messages": [{"role": "user", "content": "Tell me a story."}]}
LONG = "Once upon a time there was a little fox who lived at the edge of a large forest. " * 8


class Server:
    def __init__(self, *args):
        command = [NIBBLE, "serve", MODEL, "--port", "0", "--kv-cache-memory-bytes", "32M",
                   "--kv-cache-dtype", "nvfp4", "--served-model-name", "tiny", "other", *args]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            match = re.search(r"listening on http://127.0.0.1:(\d+)/", line)
            if match:
                break
        self.port = int(match.group(1))
        self.log = []
        self.thread = threading.Thread(target=self.log.extend, args=(self.process.stderr,))
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.terminate()
        code = self.process.wait(WAIT)
        self.thread.join(WAIT)
        if error[0] or code:
            print("".join(self.log[-30:]), file=sys.stderr)
        assert code == 0, code

    def send(self, path, body=None, **headers):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        fields = {"Content-Type": "application/json"}
        fields.update({k.replace("_", "-"): v for k, v in headers.items()})
        c.request("GET" if body is None else "POST", path, data, fields)
        return c.getresponse()

    def ask(self, path, body=None, status=200, **headers):
        answer = self.send(path, body, **headers)
        text = answer.read()
        assert answer.status == status, (path, str(body)[:200], answer.status, text[:400])
        self.headers = answer.headers
        return json.loads(text)

    def chat(self, **more):
        return self.ask("/v1/chat/completions", {**STORY, "temperature": 0, **more})

    def complete(self, prompt, **more):
        return self.ask("/v1/completions", {"prompt": prompt, "temperature": 0, **more})

    def stream(self, path, body):
        """The data of each frame; the bytes are checked."""
        answer = self.send(path, {**body, "stream": True})
        assert answer.status == 200, answer.read()
        assert answer.getheader("Content-Type") == "text/event-stream; charset=utf-8"
        text = answer.read().decode()
        assert text.endswith("\n\n"), text[-100:]
        frames = text[:-2].split("\n\n")
        if path == "/v1/messages":
            pairs = [f.split("\n") for f in frames]
            assert all(len(p) == 2 and p[0].startswith("event: ") for p in pairs), text
            events = [json.loads(p[1].removeprefix("data: ")) for p in pairs]
            assert all(p[0] == "event: " + e["type"] for p, e in zip(pairs, events)), text
            return events
        assert all(f.startswith("data: ") and "\n" not in f for f in frames), text
        assert frames[-1] == "data: [DONE]", frames[-1]
        return [json.loads(f[6:]) for f in frames[:-1]]

    def busy(self):
        """What a scrape tells of requests and their blocks; empty when there are none."""
        text = self.send("/metrics").read().decode()
        lines = re.findall(r"^vllm:(num_requests_running|num_requests_waiting|"
                           r"kv_cache_usage_perc)\{.*\} (\S+)$", text, re.M)
        assert len(lines) == 3, text
        return {name: value for name, value in lines if float(value)}

    def wait_idle(self):
        end = time.monotonic() + WAIT
        while self.busy():
            assert time.monotonic() < end, f"clients have left, but there is: {self.busy()}"
            time.sleep(0.02)

    def leave(self, path, body, seconds):
        """Sends a request and closes."""
        data = json.dumps(body).encode()
        with socket.create_connection(("127.0.0.1", self.port), WAIT) as s:
            s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
            time.sleep(seconds)


CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
REFUSED = [  # path, body, param
    (CHAT, {}, "messages"), (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
    (CHAT, {**STORY, "model": 5}, "model"), (CHAT, {**STORY, "temperature": "hot"}, "temperature"),
    (CHAT, {**STORY, "tool_choice": "required"}, "tool_choice"),
    (CHAT, {**STORY, "response_format": {"type": "xml"}}, "response_format"),
    (CHAT, {**STORY, "response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}}, "response_format"),
    (CHAT, {**STORY, "guided_regex": "(?=a)b"}, "guided_regex"), (TEXT, {"prompt": "x", "grammar": "root = x"}, "grammar"),
    (CHAT, {**STORY, "tools": [{"type": "function"}]}, "tools"),
    (CHAT, {**STORY, "functions": [{"name": "f"}]}, "functions"),
    (CHAT, {**STORY, "guided_choice": [""]}, "guided_choice"),
    (CHAT, {"messages": [{"role": "critic", "content": "Be kind."}] + STORY["messages"]}, "messages"),
    ("/tokenize", {**STORY, "tools": [{"type": "function"}]}, "tools"),
    (CHAT, b"", None), (CHAT, b'{"a":1', None), (CHAT, b'{"messages":"\xff"}', None),
    (CHAT, b"[" * 100000, None), (TEXT, {}, "prompt"), (TEXT, {"prompt": []}, "prompt"),
    (TEXT, {"prompt": [[]]}, "prompt"), (TEXT, {"prompt": [4096]}, "prompt"),
    (TEXT, {"prompt": {"a": 1}}, "prompt"), (TEXT, {"prompt": ["a", 3]}, "prompt"),
    (TEXT, {"prompt": "x", "suffix": "y"}, "suffix"), (TEXT, {"prompt": [1] * 5000}, "prompt"),
    (TEXT, {"prompt": [1] * 4096}, "prompt"), (TEXT, {"prompt": ["x"] * 3000}, "prompt"),
    (TEXT, {"prompt": [1] * 4090, "max_tokens": 10}, "max_tokens"),
    (TEXT, {"prompt": "a " * 200000}, "prompt"), (TEXT, {"prompt": "x", "max_tokens": 0}, "max_tokens"),
    (TEXT, {"prompt": "x", "min_tokens": 17}, "min_tokens"), ("/tokenize", {}, "prompt"),
    ("/detokenize", {}, "tokens"), ("/detokenize", {"tokens": [9999]}, "tokens"),
]


def test_refusals(s):
    for path, body, param in REFUSED:
        error = s.ask(path, body, 400)["error"]
        assert error["param"] == param and error["code"] == 400, (path, str(body)[:100], error)
        assert error["type"] == "BadRequestError" and error["message"], error
    error = s.ask(CHAT, {**STORY, "model": "gpt"}, 404)["error"]
    assert error["type"] == "NotFoundError" and error["param"] == "model", error
    s.ask(CHAT, STORY, 400, Content_Type="text/plain")
    for body in ({"messages": STORY["messages"]}, {"max_tokens": 3, "messages": []},
                 {"max_tokens": 3, "messages": [{"role": "user", "content": [{"type": "image"}]}]}):
        error = s.ask("/v1/messages", body, 400)
        assert error["type"] == "error" and error["error"]["type"] == "invalid_request_error", error
    error = s.ask("/v1/messages", {"model": "claude", "max_tokens": 3}, 404)
    assert error["error"]["type"] == "not_found_error", error


def test_paths(s):
    """404 names the paths that there are, or the one that is meant."""
    for path in ("/nowhere", "/v1/embeddings", "/v1/chat", "/" + "x" * 500):
        error = s.ask(path, None, 404)["error"]
        assert error["type"] == "NotFoundError" and error["code"] == 404, error
        for word in ("/v1/chat/completions", "/v1/models", "/tokenize", "/health", "/metrics"):
            assert error["message"].count(word + ",") == 1, error
        assert "/api/check" not in error["message"], error  # is there with --dev-endpoints only
    for path in ("/chat/completions", "/completions", "/messages"):
        error = s.ask(path, {}, 404)["error"]
        assert error["message"].endswith(f"did you mean /v1{path}?"), error
    error = s.ask("/v1/messages/none", {}, 404)
    assert error["type"] == "error" and "/v1/messages/count_tokens" in error["error"]["message"], error


def test_ignored_fields(s):
    """What has no effect and may be missed is logged once for each field, whoever sends it."""
    def warned(field):
        return sum(f"field {field} of a request has no effect" in line for line in s.log)
    for _ in range(3):
        s.chat(max_tokens=1, verbosity="low", store=True, user="u", metadata={"a": "b"})
        s.chat(max_tokens=1, chat_template_kwargs={"enable_thinking": False}, service_tier="auto")
    fields = "verbosity", "store", "chat_template_kwargs"
    end = time.monotonic() + WAIT
    while not all(map(warned, fields)) and time.monotonic() < end:
        time.sleep(0.02)  # the log is written aside
    assert [warned(f) for f in fields] == [1, 1, 1], s.log
    assert not sum(warned(f) for f in ("user", "metadata", "service_tier")), s.log


def test_models(s):
    cards = s.ask("/v1/models")["data"]
    assert [c["id"] for c in cards] == ["tiny", "other"], cards
    assert cards[0]["max_model_len"] == 4096 and cards[0]["root"] == MODEL, cards
    assert s.ask("/v1/models/other") == cards[1]
    s.ask("/v1/models/none", None, 404)
    assert s.chat(model="other", max_tokens=1)["model"] == "tiny"


def test_completions(s):
    ids = s.ask("/tokenize", {"prompt": "Once upon a time"})["tokens"]
    one = s.complete("Once upon a time", max_tokens=8)
    assert one["id"].startswith("cmpl-") and one["object"] == "text_completion", one
    assert s.complete(ids, max_tokens=8)["choices"][0]["text"] == one["choices"][0]["text"]
    both = s.complete(["Once upon a time", "The dog"], max_tokens=8)
    assert [c["index"] for c in both["choices"]] == [0, 1]
    assert both["choices"][0] == one["choices"][0]
    assert both["usage"]["prompt_tokens"] == len(ids) + len(s.ask(
        "/tokenize", {"prompt": "The dog"})["tokens"]), both
    assert s.complete([ids, ids], max_tokens=8)["choices"][1]["text"] == one["choices"][0]["text"]
    assert s.complete("Once")["usage"]["completion_tokens"] <= 16
    assert s.complete("Once upon a time", truncate_prompt_tokens=2)["usage"]["prompt_tokens"] == 2
    if not os.environ.get("NB_SANITIZE"):  # a minute there; refused lengths cost nothing
        full = s.complete([1] * 4095, max_tokens=1)
        assert full["usage"]["total_tokens"] == 4096, full


def test_echo(s):
    a = s.complete("Once upon a time", echo=True, max_tokens=0, logprobs=2, prompt_logprobs=1,
                   return_token_ids=True)
    c, usage = a["choices"][0], a["usage"]
    assert c["text"] == "Once upon a time" and usage["completion_tokens"] == 0, a
    p = c["logprobs"]
    assert p["tokens"][1:] == ["Once", " upon", " a", " time"], p
    assert p["token_logprobs"][0] is None and p["top_logprobs"][0] is None, p
    assert all(-30 < x <= 0 for x in p["token_logprobs"][1:]), p
    assert len(p["text_offset"]) == usage["prompt_tokens"] == len(c["prompt_logprobs"])
    for i, row in enumerate(c["prompt_logprobs"]):
        if i == 0:
            assert row is None
            continue
        entry = row[str(c["prompt_token_ids"][i])]
        assert entry["logprob"] == p["token_logprobs"][i], (row, p)
        assert entry["decoded_token"] == p["tokens"][i], (row, p)
    b = s.complete("Once upon a time", echo=True, max_tokens=4, logprobs=2)
    plain = s.complete("Once upon a time", max_tokens=4, logprobs=2)
    assert b["choices"][0]["text"] == "Once upon a time" + plain["choices"][0]["text"]
    tail = b["choices"][0]["logprobs"]
    assert tail["token_logprobs"][-4:] == plain["choices"][0]["logprobs"]["token_logprobs"]
    frames = s.stream(TEXT, {"prompt": "Once upon a time", "temperature": 0, "echo": True,
                             "max_tokens": 4, "logprobs": 2})
    assert len(frames) == 4
    assert "".join(f["choices"][0]["text"] for f in frames) == b["choices"][0]["text"]
    for key in tail:
        assert sum((f["choices"][0]["logprobs"][key] for f in frames), []) == tail[key], key


def test_chat(s):
    a = s.chat(max_tokens=12, logprobs=True, top_logprobs=3)
    c = a["choices"][0]
    assert a["id"].startswith("chatcmpl-") and a["object"] == "chat.completion", a
    assert a["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}, a
    assert a["system_fingerprint"].startswith("nibble-"), a
    assert c["message"]["role"] == "assistant" and c["finish_reason"] == "length", a
    tokens = c["logprobs"]["content"]
    assert len(tokens) == a["usage"]["completion_tokens"] == 12
    assert b"".join(bytes(t["bytes"]) for t in tokens).decode() == c["message"]["content"]
    for t in tokens:
        assert len(t["top_logprobs"]) == 3
        assert t["top_logprobs"][0]["logprob"] == t["logprob"], t  # greedy
    parts = [{"type": "text", "text": "Tell me a story."}]
    b = s.chat(messages=[{"role": "user", "content": parts}], max_tokens=12)
    assert b["choices"][0]["message"] == c["message"]
    for key in ("max_tokens", "max_completion_tokens"):
        assert s.chat(**{key: 3})["usage"]["completion_tokens"] == 3
    assert s.ask(CHAT, {**STORY, "max_tokens": 1}, X_Request_Id="abc-1")["id"] == "chatcmpl-abc-1"
    assert s.chat(max_tokens=1, request_id="r9")["id"] == "chatcmpl-r9"


def test_structured(s):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 70},
              "c": {"enum": ["red", "blue"]}}, "required": ["n", "c"], "additionalProperties": False}

    def content(**more):
        c = s.chat(max_tokens=100, **more)["choices"]
        assert all(k["finish_reason"] == "stop" for k in c), c
        return [k["message"]["content"] for k in c]
    for more in ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}},
                 {"structured_outputs": {"json": schema}}, {"guided_json": json.dumps(schema)},
                 {"json_schema": schema, "n": 3, "temperature": 1, "seed": 7, "logprobs": True}):
        for text in content(**more):
            v = json.loads(text)
            assert set(v) == {"n", "c"} and 3 <= v["n"] <= 70 and v["c"] in ("red", "blue"), v
    assert isinstance(json.loads(content(response_format={"type": "json_object", "schema": {
        "type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": False}})[0]), dict)
    assert content(guided_choice=["left", "right"])[0] in ("left", "right")
    assert re.fullmatch("[A-F]{2}-[0-9]{3}", content(structured_outputs={"regex": "[A-F]{2}-[0-9]{3}"})[0])
    assert content(grammar='root ::= "x" [0-9]{3} "."')[0][:1] == "x"
    done = s.complete("Once", max_tokens=30, guided_regex="[a-c]{5}")["choices"][0]
    assert re.fullmatch("[a-c]{5}", done["text"]) and done["finish_reason"] == "stop", done
    form = {"type": "json_schema", "name": "x", "schema": {"const": {"a": 1}}}
    a = s.ask("/v1/responses", {"input": "q", "text": {"format": form}})
    assert json.loads(a["output"][-1]["content"][0]["text"]) == {"a": 1}, a
    a = s.ask("/v1/messages", {**STORY, "max_tokens": 30, "output_config": {"format": form}})
    assert json.loads(a["content"][-1]["text"]) == {"a": 1} and a["stop_reason"] == "end_turn", a
    parts = s.stream(CHAT, {**STORY, "guided_choice": ["a story"]})
    assert "".join(p["choices"][0]["delta"].get("content") or "" for p in parts if p["choices"]) == "a story"


def test_stops(s):
    whole = s.chat(max_tokens=30)["choices"][0]["message"]["content"]
    word = whole.split()[3]
    a = s.chat(max_tokens=30, stop=["no such", word])["choices"][0]
    assert a["finish_reason"] == "stop" and a["stop_reason"] == word, a
    assert a["message"]["content"] == whole[:whole.index(word)], a
    a = s.chat(max_tokens=30, stop=word, include_stop_str_in_output=True)["choices"][0]
    assert a["message"]["content"] == whole[:whole.index(word)] + word, a
    frames = s.stream(CHAT, {**STORY, "temperature": 0, "max_tokens": 30, "stop": word,
                             "include_stop_str_in_output": True})
    assert "".join(f["choices"][0]["delta"].get("content", "") for f in frames) == \
        whole[:whole.index(word)] + word
    ids = s.chat(max_tokens=30, return_token_ids=True)["choices"][0]["token_ids"]
    a = s.chat(max_tokens=30, stop_token_ids=[ids[5]], return_token_ids=True)["choices"][0]
    assert a["stop_reason"] == ids[5] and a["token_ids"] == ids[:ids.index(ids[5]) + 1], a
    a = s.chat(max_tokens=30, logit_bias={str(ids[0]): -100}, return_token_ids=True)["choices"][0]
    assert ids[0] not in a["token_ids"], a


def test_streams(s):
    body = {**STORY, "max_tokens": 12, "seed": 1, "n": 3}
    whole = s.ask(CHAT, body)
    frames = s.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
    assert frames[-1]["choices"] == [] and frames[-1]["usage"]["completion_tokens"] == \
        whole["usage"]["completion_tokens"], frames[-1]
    for i, choice in enumerate(whole["choices"]):
        own = [f["choices"][0] for f in frames[:-1] if f["choices"][0]["index"] == i]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}, own[0]
        assert "".join(c["delta"].get("content", "") for c in own) == choice["message"]["content"]
        assert [c["finish_reason"] for c in own[:-1]] == [None] * (len(own) - 1)
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        assert len({f["id"] for f in frames}) == 1
    # One chunk per token, to the end of the text too; usage as it grows.
    text = {"prompt": "<|user|>Hi<|end|><|assistant|>", "max_tokens": 400, "temperature": 0}
    frames = s.stream(TEXT, {**text, "stream_options": {"include_usage": True,
                                                        "continuous_usage_stats": True}})
    n = frames[-1]["usage"]["completion_tokens"]
    assert [f["usage"]["completion_tokens"] for f in frames[:-1]] == list(range(1, n + 1)), n
    assert frames[-2]["choices"][0]["finish_reason"] == "stop", frames[-2]
    assert s.ask(TEXT, text)["usage"]["completion_tokens"] == n


def test_prefix_cache(s):
    body = {"prompt": LONG, "max_tokens": 20, "seed": 3}
    answers = [s.ask(TEXT, b) for b in (body, body, {**body, "cache_salt": "tenant"})]
    cached = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers]
    assert cached[0] == 0 and cached[1] >= 64 and cached[2] == 0, cached
    assert len({a["choices"][0]["text"] for a in answers}) == 1, answers
    free = {s.ask(TEXT, {"prompt": "Once", "max_tokens": 12})["choices"][0]["text"] for _ in range(4)}
    assert len(free) > 1, "requests without a seed are all the same"


def test_messages(s):
    body = {"max_tokens": 12, "temperature": 0, "messages": STORY["messages"]}
    a = s.ask("/v1/messages", body)
    assert a["type"] == "message" and a["stop_reason"] == "max_tokens", a
    assert a["usage"]["output_tokens"] == 12 and a["usage"]["cache_read_input_tokens"] == 0, a
    text = a["content"][0]["text"]
    assert text == s.chat(max_tokens=12)["choices"][0]["message"]["content"]
    events = s.stream("/v1/messages", body)
    kinds = [e["type"] for e in events if e["type"] not in ("ping", "content_block_delta")]
    assert kinds == ["message_start", "content_block_start", "content_block_stop", "message_delta",
                     "message_stop"], kinds
    assert "".join(e["delta"]["text"] for e in events if e["type"] == "content_block_delta") == text
    n = a["usage"]["input_tokens"]
    assert s.ask("/v1/messages/count_tokens", {"messages": STORY["messages"]}) == {"input_tokens": n}
    kind = [{"type": "text", "text": "x-anthropic-billing-header: v=1; cch=%d;"},
            {"type": "text", "text": "You are kind.", "cache_control": {"type": "ephemeral"}}]
    counts = []
    for system in (kind, "You are kind.", kind[1:], "x-anthropic-billing-header: 7\nYou are kind."):
        counts.append(s.ask("/v1/messages/count_tokens", {**body, "system": system})["input_tokens"])
    assert len(set(counts)) == 1 and counts[0] > n, counts
    stop = s.ask("/v1/messages", {**body, "max_tokens": 30, "stop_sequences": [text.split()[2]]})
    assert stop["stop_reason"] == "stop_sequence" and stop["stop_sequence"] == text.split()[2], stop
    tools = [{"role": "user", "content": "Weather?"},
             {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"},
                                               {"type": "tool_use", "id": "t1", "name": "weather",
                                                "input": {"city": "Rome"}}]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1",
                                           "content": [{"type": "text", "text": "sunny"}]}]}]
    schema = [{"name": "weather", "input_schema": {"type": "object"}}]
    # The bundled model's template shows neither tools nor calls nor their results: the server does.
    hosted = [{"type": "web_search_20250305", "name": "w"}]
    for more in ({"tools": schema}, {"messages": tools}, {"messages": tools[2:]}, {"tools": hosted},
                 {"messages": [{"role": "system", "content": "Be kind."}] + tools}):
        s.ask("/v1/messages", {**body, **more})
    error = s.ask("/v1/messages", {**body, "output_config": {"format": {"type": "json_schema"}}}, 400)
    assert "output_config" in error["error"]["message"], error
    s.ask("/v1/messages", {**body, "tools": schema, "tool_choice": {"type": "none"}, "cache_salt": "x",
                           "chat_template_kwargs": {"x": 1}, "output_config": {"effort": "low"}})
    assert s.ask("/v1/messages", {**body, "cache_salt": ""}, 400)["error"]["message"]


def test_text(s):
    a = s.ask("/tokenize", {"prompt": "Once upon a time", "return_token_strs": True})
    assert a["count"] == len(a["tokens"]) == len(a["token_strs"]) and a["max_model_len"] == 4096, a
    assert s.ask("/detokenize", {"tokens": a["tokens"][1:]}) == {"prompt": "Once upon a time"}
    bare = s.ask("/tokenize", {"prompt": "Once upon a time", "add_special_tokens": False})
    assert bare["tokens"] == a["tokens"][1:], bare
    chat = s.ask("/tokenize", STORY)["tokens"]
    assert s.ask(CHAT + "/render", STORY)["token_ids"] == chat
    rows = s.ask(TEXT + "/render", {"prompt": ["Once upon a time", "x"]})
    assert len(rows) == 2 and rows[0]["token_ids"] == a["tokens"], rows
    large = s.ask("/tokenize", {"prompt": "word " * 40000})  # read on the helper thread
    assert large["count"] > 40000, large["count"]
    assert s.ask("/tokenizer_info")["tokenizer_class"]


def test_large(s):
    """Short requests cannot ask for much; large answers are written aside and are as any other."""
    stops = ["%02d" % i + "x" * 4000 for i in range(64)]
    assert "choices" in s.complete("a", max_tokens=1, n=2, stop=stops)
    many = {"prompt": ["a"] * 32, "n": 128, "max_tokens": 1}
    assert s.ask("/v1/completions", {**many, "stop": stops}, 400)["error"]["param"] == "n"
    ids = [10 + i * 7 % 4000 for i in range(1400)]
    for field in [{"echo": True, "logprobs": 20}, {"prompt_logprobs": 20}]:
        wide = {"prompt": ids, "n": 128, "max_tokens": 1, **field}
        assert "too large" in s.ask("/v1/completions", wide, 400)["error"]["message"]
    whole = s.complete(ids, max_tokens=1, echo=True, logprobs=6)["choices"][0]  # > INLINE_SHOWN
    assert [len(c) for c in whole["logprobs"].values()] == [1401] * 4
    frames = s.stream("/v1/completions", {"prompt": ids, "temperature": 0, "max_tokens": 1,
                                          "echo": True, "logprobs": 6})
    assert frames[0]["choices"][0]["logprobs"] == whole["logprobs"]
    text = "word " * 20000
    n = s.ask("/tokenize", {"prompt": text, "add_special_tokens": False})
    assert n["count"] == len(n["tokens"]) > 8192
    assert s.ask("/detokenize", {"tokens": n["tokens"]})["prompt"] == text
    s.leave("/tokenize", {"prompt": text * 20}, 0.01)


def test_clients_leave(s):
    endless = {**STORY, "ignore_eos": True, "max_tokens": 4000}
    s.wait_idle()
    for streams in (False, True):
        for seconds in (0, 0.01, 0.2):
            s.leave(CHAT, {**endless, "stream": streams}, seconds)
            s.wait_idle()
    s.leave(CHAT, {**endless, "n": 8, "stream": True}, 0.2)
    s.wait_idle()
    large = {"messages": [{"role": "user", "content": "word " * 3000}]}
    for i in range(8):
        s.leave(CHAT, large, 0.002 * i)
    s.leave(CHAT, {"messages": [{"role": "user", "content": "word " * 300000}]}, 0.02)
    s.wait_idle()
    assert s.chat(max_tokens=1)["usage"]["completion_tokens"] == 1


def test_overload(_):
    with Server("--max-num-queued-reqs", "8") as s:
        answers = []

        def one():
            answer = s.send(TEXT, {"prompt": "Once", "max_tokens": 30, "ignore_eos": True})
            answers.append((answer.status, answer.getheader("Retry-After"), answer.read()))
        threads = [threading.Thread(target=one) for _ in range(60)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(answers) == 60 and {a[:2] for a in answers} <= {(200, None), (503, "1")}, answers
        assert sum(a[0] == 200 for a in answers) >= 8, answers
        s.ask(TEXT, {"prompt": ["a"] * 9}, 503)
        assert len(s.ask(TEXT, {"prompt": "a", "n": 8, "max_tokens": 1})["choices"]) == 8
    with Server("--max-num-queued-tokens", "100") as s:
        assert s.complete("word " * 300, max_tokens=1)["usage"]["prompt_tokens"] > 100


def main():
    chosen = sys.argv[3:] or [n for n in globals() if n.startswith("test_")]
    with Server() as server:
        for name in chosen:
            print(name, flush=True)
            globals()[name](server)


main()
