"""Starts `nibble serve` in several ways and talks to it; called by serve_start.sh.

    python3 _serve.py NIBBLE MODEL FOLDER
"""
import http.client
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import time

from _server import MODEL, NIBBLE, TMP, WAIT, Server, ask, complete, metrics, run_tests, stream

STORY = "Once upon a time there was a little fox who lived at the edge of a large forest. " * 5


def test_basics():
    with Server(MODEL, "--port", "0") as s:
        c = s.connect()
        for words in ("KV cache dtype: nvfp4", "bytes per token", "KV record layout",
                      "KV cache size: ", "Maximum concurrency for 4,096 tokens per request: 1.",
                      "weights", "workspace", "open pages"):
            assert words in s.text(), f"no `{words}` in: {s.text()}"
        assert ask(c, "/health") == (200, "")
        assert ask(c, "/ping") == (200, "")
        assert re.match(r"\d+\.\d+", ask(c, "/version")[1]["version"])
        assert ask(c, "/load") == (200, {"server_load": 0})
        assert ask(c, "/nowhere")[0] == 404
        assert ask(c, "/v1/models")[1]["data"][0]["id"] == os.path.basename(MODEL)
        before = metrics(c)
        answer = complete(c)
        assert answer["usage"]["completion_tokens"] == 16, answer
        assert len(answer["choices"][0]["text"]) > 16, answer
        after = metrics(c)
        label = '{model_name="%s",engine="0"}' % os.path.basename(MODEL)
        assert after["vllm:generation_tokens_total" + label] == 16
        assert before["vllm:generation_tokens_total" + label] == 0
        assert after["vllm:num_requests_running" + label] == 0
        assert after["vllm:kv_cache_usage_perc" + label] == 0
        assert after["vllm:e2e_request_latency_seconds_count" + label] == 1
        assert after["vllm:inter_token_latency_seconds_count" + label] == 15
        done = 'vllm:request_success_total' + label[:-1] + ',finished_reason="length"}'
        assert after[done] == 1
        assert after['http_requests_total{handler="/health",method="GET",status="2xx"}'] == 1
        assert after['http_requests_total{handler="none",method="GET",status="4xx"}'] == 1
        assert s.stop() == 0


def test_reset():
    with Server(MODEL, "--port", "0") as s:
        c = s.connect()
        answers = [complete(c, STORY) for _ in range(2)]
        status, reset = ask(c, "/reset_prefix_cache", {})
        assert status == 200 and reset["blocks"] > 0, reset
        answers.append(complete(c, STORY))
        cached = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers]
        assert cached[0] == 0 and cached[1] >= 64 and cached[2] == 0, cached
        assert len({a["choices"][0]["text"] for a in answers}) == 1, answers
        # Gone before the answer comes: nothing breaks.
        for _ in range(20):
            with socket.create_connection((s.host, int(s.port)), WAIT) as raw:
                raw.sendall(b"POST /reset_prefix_cache HTTP/1.1\r\nHost: localhost\r\n"
                            b"Content-Length: 0\r\n\r\n")
        assert ask(c, "/health")[0] == 200
        assert s.stop() == 0
    with Server(MODEL, "--port", "0", "--no-enable-prefix-caching") as s:
        c = s.connect()
        cached = [complete(c, STORY)["usage"]["prompt_tokens_details"]["cached_tokens"]
                  for _ in range(2)]
        assert cached == [0, 0], cached
        assert 'enable_prefix_caching="False"' in ask(c, "/metrics")[1]
        assert s.stop(signal.SIGINT) == 0


def test_drain():
    with Server(MODEL, "--port", "0", "--drain-timeout", "600") as s:
        idle = s.connect()
        assert ask(idle, "/health")[0] == 200
        answer = stream(s, 300)
        s.process.send_signal(signal.SIGTERM)
        text = answer.read().decode()
        assert text.endswith("data: [DONE]\n\n"), text[-200:]
        assert text.count('"text"') == 299, text.count('"text"')
        try:  # closed, or told that it ends
            assert ask(idle, "/health")[0] == 503
        except (http.client.HTTPException, OSError):
            pass
        assert s.end() == 0
    with Server(MODEL, "--port", "0") as s:
        answers = [stream(s, 4000) for _ in range(3)]
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert s.process.poll() is None
        s.process.send_signal(signal.SIGTERM)
        assert s.end() == 0
        for answer in answers:
            try:
                assert b"[DONE]" not in answer.read()
            except (http.client.HTTPException, OSError):
                pass
    with Server(MODEL, "--port", "0", "--drain-timeout", "0.2") as s:
        answer = stream(s, 4000)
        assert s.stop() == 0


def test_socket():
    path = os.path.join(TMP, "socket")
    with Server(MODEL, "--uds", path) as s:
        c = http.client.HTTPConnection("localhost", timeout=WAIT)
        c.sock = socket.socket(socket.AF_UNIX)
        c.sock.connect(path)
        assert complete(c)["usage"]["completion_tokens"] == 16
        assert ask(c, "/reset_prefix_cache", {})[0] == 200
        assert s.stop() == 0
    assert not os.path.exists(path), "the socket's file was left behind"


def test_keys():
    with Server(MODEL, "--port", "0", "--api-key", "one", "two") as s:
        c = s.connect()
        assert ask(c, "/v1/models")[0] == 401
        assert ask(c, "/v1/models", Authorization="Bearer three")[0] == 401
        assert ask(c, "/v1/models", Authorization="Bearer one")[0] == 200
        assert ask(c, "/v1/models", x_api_key="two")[0] == 200
        for path in ("/health", "/metrics", "/version", "/ping", "/load"):
            assert ask(c, path)[0] == 200, path
        assert s.stop() == 0
    for name in ("VLLM_API_KEY", "NIBBLE_API_KEY"):
        with Server(MODEL, "--port", "0", env={name: "secret"}) as s:
            c = s.connect()
            assert ask(c, "/v1/models")[0] == 401
            assert ask(c, "/v1/models", Authorization="Bearer secret")[0] == 200
            assert "secret" not in s.text()
            assert s.stop() == 0


def test_tls():
    cert, key = os.path.join(TMP, "cert.pem"), os.path.join(TMP, "key.pem")
    try:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key,
                        "-out", cert, "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True,
                       stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        print("no openssl command: TLS is not tried")
        return
    with Server(MODEL, "--port", "0", "--ssl-certfile", cert, "--ssl-keyfile", key) as s:
        context = ssl.create_default_context(cafile=cert)
        c = http.client.HTTPSConnection("127.0.0.1", int(s.port), timeout=WAIT, context=context)
        assert complete(c)["usage"]["completion_tokens"] == 16
        try:  # plain text on a TLS port: no answer, and no harm
            plain = s.connect()
            assert ask(plain, "/health")[0] >= 400
        except (http.client.HTTPException, OSError):
            pass
        assert ask(c, "/health")[0] == 200
        assert s.stop() == 0
    wrong = subprocess.run([NIBBLE, "serve", MODEL, "--port", "0", "--ssl-certfile", key,
                            "--ssl-keyfile", key, "--kv-cache-memory-bytes", "64M"], text=True,
                           stderr=subprocess.PIPE, stdout=subprocess.PIPE, check=False)
    assert wrong.returncode == 1 and "key.pem" in wrong.stderr, wrong


def test_config():
    path = os.path.join(TMP, "serve.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"model: {json.dumps(MODEL)}\nport: 0\nserved_model_name: [first, second]\n"
                "log-format: json\nenforce-eager: true\napi-key:\n  - from-file\n"
                "max-model-len: 1k\nkv_cache_memory_bytes: 64M\nmax-num-seqs: 8\n")
    with Server("--config", path, "--api-key", "from-line") as s:
        c = s.connect()
        assert ask(c, "/v1/models", Authorization="Bearer from-file")[0] == 401
        status, models = ask(c, "/v1/models", Authorization="Bearer from-line")
        assert status == 200
        assert [m["id"] for m in models["data"]] == ["first", "second"], models
        assert models["data"][0]["max_model_len"] == 1000, models
        assert 'model_name="first"' in ask(c, "/metrics")[1]
        assert s.stop() == 0
        lines = [json.loads(line) for line in s.log]
        assert {"time", "level", "event", "message"} <= set(lines[0]), lines[0]
        warned = [m["message"] for m in lines if m["level"] == "warn"]
        assert any("enforce-eager has no effect" in m for m in warned), warned


def test_refusals():
    with Server(MODEL, "--port", "0") as s:
        second = subprocess.run([NIBBLE, "serve", MODEL, "--port", s.port,
                                 "--kv-cache-memory-bytes", "64M"], text=True,
                                stderr=subprocess.PIPE, stdout=subprocess.PIPE, check=False)
        assert second.returncode == 1, second
        assert s.port in second.stderr and second.stderr.count("\n") == 1, second.stderr
        assert s.stop() == 0
    for args, words in ((["--max-model-len", "auto", "--kv-cache-memory-bytes", "1M"], "384 tok"),
                        (["--gpu-memory-utilization", "0.01"], "listening on"),
                        (["--num-gpu-blocks-override", "100"], "6,400 tokens")):
        args += ["--kv-cache-dtype", "nvfp4"]
        with Server(MODEL, "--port", "0", *args, small=False) as s:
            assert words in s.text(), s.text()
            assert complete(s.connect())["usage"]["completion_tokens"] == 16
            assert s.stop() == 0


def test_service_manager():
    for name in (os.path.join(TMP, "notify"), "@nibble-test-" + str(os.getpid())):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(name.replace("@", "\0", 1))
            manager.settimeout(WAIT)
            with Server(MODEL, "--port", "0", env={"NOTIFY_SOCKET": name}) as s:
                assert manager.recv(4096) == b"READY=1"
                assert ask(s.connect(), "/health")[0] == 200
                s.process.send_signal(signal.SIGTERM)
                assert manager.recv(4096) == b"STOPPING=1"
                assert s.end() == 0
    with Server(MODEL, "--port", "0", env={"NOTIFY_SOCKET": os.path.join(TMP, "nobody")}) as s:
        assert s.stop() == 0


def test_few_files():
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
    with Server(MODEL, "--port", "0", preexec=limit) as s:
        assert "instead of 4096: the limit of open files" in s.text(), s.text()
        assert complete(s.connect())["usage"]["completion_tokens"] == 16
        assert s.stop() == 0


run_tests(globals())
