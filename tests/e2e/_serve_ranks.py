"""A server on several ranks, and ranks that fail under load; called by serve_ranks.sh.

    python3 _serve_ranks.py NIBBLE MODEL FOLDER
"""
import os

from _server import MODEL, TMP, Server, break_under_load, complete, expect_failed, metrics, run_tests


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
    path = os.path.join(TMP, name)

    def inject():
        with open(path + ".new", "w") as f:
            f.write(fault)
        os.rename(path + ".new", path)

    with Server(MODEL, "--port", "0", "--device", "cpu", "-tp", "2", env={"NB_RANK_FAULT": path}) as s:
        break_under_load(s, inject, words)
        expect_failed(s, words)


def test_a_rank_that_fails():
    killed("reports", "reports 1", "rank 1 of 2: a failure made by a test")


def test_a_rank_that_is_lost():
    killed("lost", "lost 1", "rank 1 of 2: no sign of it for 1 seconds")


run_tests(globals())
