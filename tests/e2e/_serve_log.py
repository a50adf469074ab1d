"""Reads the log of `nibble serve` until it listens; called by serve_log.sh.

    python3 _serve_log.py NIBBLE MODEL FOLDER [TEST...]
"""
import json
import os
import re
import socket
import subprocess

from _server import MODEL, NIBBLE, TMP, Server, ask, complete, run_tests

CACHE = ["--kv-cache-dtype", "nvfp4"]


def lines(*args):
    """Level and message of each line of a server that starts with the arguments."""
    with Server(MODEL, "--port", "0", "--log-format", "json", *args, small=False) as s:
        assert s.stop() == 0
        entries = [json.loads(line) for line in s.log]
    return [(e["level"], e["message"]) for e in entries if e["event"] == "start"]


def place(log, words):
    found = [i for i, (_, message) in enumerate(log) if words in message]
    assert found, f"no `{words}` in {log}"
    return found[0]


def warnings(log):
    return [message for level, message in log if level == "warn"]


def nibble(*args):
    done = subprocess.run([NIBBLE, *args], check=True, text=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def bytes_text(x):
    """As the program writes it."""
    unit = 0
    while x >= 1024:
        x /= 1024
        unit += 1
    return f"{x:.1f} {['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}"


def test_order():
    log = lines("--kv-cache-memory-bytes", "16M", *CACHE)
    wanted = ["nibble ", "device: cpu", "memory plan: of ", "KV cache plan: nvfp4", "reading the tokenizer",
              "reading weights: ", "allocating the KV cache: ", "allocating the workspace: ", "model: ",
              "KV cache size: ", "listening on "]
    at = [place(log, w) for w in wanted]
    assert at == sorted(at), (wanted, log)
    assert log[0][1].endswith(MODEL), log[0]
    assert not warnings(log), log


def test_same_figures():
    """The plan, `nibble plan` and what was allocated agree."""
    log = lines("--kv-cache-memory-bytes", "16M", *CACHE)
    memory = log[place(log, "memory plan: ")][1]
    cache = log[place(log, "KV cache plan: ")][1]
    allocated = log[place(log, "KV cache memory: ")][1]
    report = nibble("plan", MODEL, "--memory", "16GiB", "--json", *CACHE)
    record = [r for r in report["cache"]["records"] if r["marked"]][0]
    weights = [t for t in report["weights"]["types"] if t["dtype"] == "checkpoint"][0]
    assert f"nvfp4, {record['bytes_per_token']:,.0f} B/token" in cache, (cache, record)
    assert f"weights {bytes_text(weights['bytes'])}, " in memory, (memory, weights)
    size, n_bytes = re.search(r"KV cache memory: (\S+ \S+) \((\d+) bytes\)", allocated).groups()
    assert size == bytes_text(int(n_bytes)), allocated
    assert f"KV cache {size}" in memory, (memory, allocated)
    tokens = re.search(r"KV cache size: (\S+) tokens", log[place(log, "KV cache size: ")][1]).group(1)
    assert f", {tokens} tokens" in cache, (cache, tokens)


def test_nothing_claimed():
    """Without options no line speaks of one."""
    log = lines()
    assert not [m for _, m in log if "--" in m], log


def test_utilization():
    usual = lines(*CACHE)
    size = usual[place(usual, "KV cache size: ")]
    for name in ("--gpu-memory-utilization", "--mem-fraction-static"):
        log = lines(*CACHE, name, "0.9")
        assert log[place(log, "KV cache size: ")] == size, log
        warned = warnings(log)
        assert len(warned) == 1 and warned[0].startswith(name + " 0.9 has no effect"), warned
        assert "--memory-utilization" in warned[0], warned
    log = lines(*CACHE, "--memory-utilization", "0.01")
    assert not warnings(log), log
    of = re.search(r"memory plan: of (\S+) GiB: (.*)", log[place(log, "memory plan: ")][1])
    parts = [float(x) / (1 if unit == "GiB" else 1024)
             for x, unit in re.findall(r"([\d.]+) (MiB|GiB)", of.group(2))]
    assert abs(sum(parts) - 0.01 * float(of.group(1))) < 0.002, log


def test_ignored():
    """Each option without effect is named once, as it was written, with the reason."""
    log = lines(*CACHE, "-O3", "-O1", "--mm_processor_cache_gb", "4",
                "--compilation-config.mode=3", "--disable-log-stats", "--uvicorn-log-level", "info")
    warned = warnings(log)
    for word in ("-O has", "--mm-processor-cache-gb has", "--compilation-config has",
                 "--disable-log-stats has", "--uvicorn-log-level has"):
        assert sum(word + " no effect: " in w for w in warned) == 1, (word, warned)
    assert len(warned) == 5, warned


def test_refused_before_loading():
    """One line, and no weights are read for it."""
    def refused(words, *args):
        done = subprocess.run([NIBBLE, "serve", MODEL, *args], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, done
        assert all(w in done.stderr for w in words), done.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused([port, "another program"], "--port", port)
    refused(["no-such-host.invalid"], "--host", "no-such-host.invalid")
    refused(["none.pem"], "--ssl-certfile", "none.pem", "--ssl-keyfile", "none.pem")
    refused(["--override-generation-config", "temprature", "temperature"],
            "--override-generation-config", '{"temprature": 0}')
    refused(["--override-generation-config", "top_p", "0 to 1"],
            "--override-generation-config.top_p", "7")
    refused(["--override-generation-config", "object"], "--override-generation-config", "[1]")
    refused(["generation_config.json"], "--generation-config", TMP)


def test_generation_config():
    with Server(MODEL, "--port", "0", "--override-generation-config", '{"max_new_tokens": 3}',
                "--override-generation-config.temperature", "0") as s:
        c = s.connect()
        answers = [ask(c, "/v1/completions", {"prompt": "Once"})[1] for _ in range(3)]
        assert all(a["usage"]["completion_tokens"] == 3 for a in answers), answers
        assert len({a["choices"][0]["text"] for a in answers}) == 1, answers
        assert complete(c, max_tokens=5)["usage"]["completion_tokens"] == 5  # requests count more
        assert s.stop() == 0


def test_chat_options():
    """Variables of the template, the form of content, tools, names of tokens."""
    template = os.path.join(TMP, "chat.jinja")
    with open(template, "w", encoding="utf-8") as f:
        f.write("{% for m in messages %}{% if m.content is string %}S:{{ m.content }}{% else %}"
                "{% for p in m.content %}P:{{ p.text }};{% endfor %}{% endif %}{% endfor %}"
                "|{{ think }}|{{ style }}|{% for t in tools or [] %}T:{{ t.function.name }}"
                "{% endfor %}")
    part = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    tool = [{"type": "function", "function": {"name": "f", "parameters": {}}}]

    def shown(s, content, **more):
        body = {"messages": [{"role": "user", "content": content}], **more}
        status, answer = ask(s.connect(), "/v1/chat/completions/render", body)
        assert status == 200, answer
        status, text = ask(s.connect(), "/detokenize", {"tokens": answer["token_ids"]})
        assert status == 200, text
        return text["prompt"]

    args = [MODEL, "--port", "0", "--chat-template", template]
    with Server(*args) as s:
        assert shown(s, "a") == "S:a|||"
        assert shown(s, part) == "P:a;P:b;|||"
        assert shown(s, "a", tools=tool, tool_choice="none") == "S:a|||T:f"
        assert s.stop() == 0
    with Server(*args, "--default-chat-template-kwargs", '{"think": "no", "style": "x"}',
                "--chat-template-content-format", "string", "--return-tokens-as-token-ids",
                "--exclude-tools-when-tool-choice-none") as s:
        assert shown(s, "a") == "S:a|no|x|"
        assert shown(s, part) == "S:a\nb|no|x|"
        assert shown(s, "a", chat_template_kwargs={"think": "yes"}) == "S:a|yes|x|"
        assert shown(s, "a", tools=tool, tool_choice="none") == "S:a|no|x|"
        assert shown(s, "a", tools=tool) == "S:a|no|x|T:f"
        body = {"prompt": "Once", "max_tokens": 1, "logprobs": 1}
        tokens = ask(s.connect(), "/v1/completions", body)[1]["choices"][0]["logprobs"]["tokens"]
        assert tokens[0].startswith("token_id:"), tokens
        assert s.stop() == 0
    with Server(*args, "--chat-template-content-format", "openai") as s:
        assert shown(s, "a") == "P:a;|||"
        assert s.stop() == 0


run_tests(globals())
