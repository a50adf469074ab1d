"""A server on several ranks, and ranks that fail under load; called by serve_ranks.sh.

    python3 _serve_ranks.py NIBBLE MODEL FOLDER
"""
import contextlib
import http.client
import os
import threading

from _server import MODEL, TMP, WAIT, Server, ask, complete, metrics, run_tests, stream


def answer_of(*args):
    with Server(MODEL, "--port", "0", "--device", "cpu", *args) as s:
        answer = complete(s.connect(), max_tokens=40, logprobs=3)
        figures = {k.split("{")[0]: v for k, v in metrics(s.connect()).items()}
        log = s.text()
        assert s.stop() == 0, s.text()
    return answer["choices"], figures, log


def test_same_answer():
    one, figures, log = answer_of()
    assert figures["nibble:ranks"] == 1 and "ranks:" not in log, log
    for n in ("2", "4", "8"):
        many, figures, log = answer_of("--tensor-parallel-size", n)
        assert many == one, (n, many, one)
        assert figures["nibble:ranks"] == int(n)
        assert f"ranks: {n}, of " in log, log


def killed(name, fault, words):
    """Four streams run when it happens: each ends with the reason, and so does what comes after them."""
    path = os.path.join(TMP, name)
    with Server(MODEL, "--port", "0", "--device", "cpu", "-tp", "2", env={"NB_RANK_FAULT": path}) as s:
        ends, threads = [], []

        def reader(answer):
            with contextlib.suppress(http.client.HTTPException):
                ends.append(answer.read().decode())

        for _ in range(4):
            threads.append(threading.Thread(target=reader, args=(stream(s, 3000),)))
            threads[-1].start()
        with open(path + ".new", "w") as f:
            f.write(fault)
        os.rename(path + ".new", path)
        for t in threads:
            t.join(WAIT)
        assert len(ends) == 4, s.text()
        for text in ends:
            last = text.strip().split("\n\n")[-2:]
            assert '"code":503' in last[0] and words in last[0] and last[1] == "data: [DONE]", last
        for path, body in (("/health", None), ("/v1/completions", {"prompt": "Once"}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})):
            status, answer = ask(s.connect(), path, body)
            assert status == 503, (path, status, answer)
            assert words in answer["error"]["message"], answer
        assert ask(s.connect(), "/metrics")[0] == 200
        assert s.process.poll() is None
        assert s.stop() == 1, s.text()
        lines = [line for line in s.log if " ERROR engine " in line]
        assert len(lines) == 1 and words in lines[0], s.text()


def test_a_rank_that_fails():
    killed("reports", "reports 1", "rank 1 of 2: a failure made by a test")


def test_a_rank_that_is_lost():
    killed("lost", "lost 1", "rank 1 of 2: no sign of it for 1 seconds")


run_tests(globals())
