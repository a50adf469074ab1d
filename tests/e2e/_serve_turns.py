"""A chat of four turns and its cached tokens; called by serve_turns.sh.

    python3 _serve_turns.py NIBBLE MODEL FOLDER
"""
import os
import time

from _server import MODEL, WAIT, Server, ask, metrics, run_tests

EMU = os.environ.get("NB_EMU")
QUESTIONS = [f"Tell me a story about a {animal}." for animal in ("fox", "bear", "mouse", "owl")]


def counted(connection, name):
    return sum(v for k, v in metrics(connection).items() if k.startswith(f"nibble:{name}{{"))


def settle(connection):
    """Until no answer waits to be computed again."""
    deadline = time.monotonic() + WAIT
    while counted(connection, "num_refills_waiting"):
        assert time.monotonic() < deadline, "answers wait for ever"
        time.sleep(0.02)


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def chat(connection, between, n_token, **more):
    """Four turns.  Of each: its tokens, log-probabilities and text; the tokens found; those that could be."""
    messages, out, before = [], [], []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        status, answer = ask(connection, "/v1/chat/completions", {
            "messages": messages, "max_tokens": n_token, "temperature": 0.7, "seed": 5, "logprobs": True,
            "top_logprobs": 2, "return_token_ids": True, **more})
        assert status == 200, answer
        choice, prompt = answer["choices"][0], answer["prompt_token_ids"]
        out.append(([choice["token_ids"], choice["logprobs"], choice["message"]["content"]],
                    answer["usage"]["prompt_tokens_details"]["cached_tokens"],
                    min(common(before, prompt), len(prompt) - 1) // 64 * 64))
        # The template gives the history back as it was: else the test would not test much.
        assert common(before, prompt) >= len(before) - 1, (len(before), common(before, prompt))
        before = prompt + choice["token_ids"]
        messages.append({"role": "assistant", "content": choice["message"]["content"]})
        between(connection)
    return out


def check(n_token, *args, tenants=False):
    with Server(MODEL, "--port", "0", "--kv-cache-memory-bytes", "64M", "--no-enable-prefix-caching", *args,
                small=False) as s:
        want = [essence for essence, _, _ in chat(s.connect(), lambda c: None, n_token)]
    with Server(MODEL, "--port", "0", "--kv-cache-memory-bytes", "64M", *args, small=False) as s:
        c = s.connect()
        got = chat(c, settle, n_token)
        assert [essence for essence, _, _ in got] == want, "other answers than without a prefix cache"
        found, could = [f for _, f, _ in got], [k for _, _, k in got]
        assert found == could and found[1] and found[-1] >= 3 * n_token // 64 * 64, (found, could)
        assert counted(c, "refill_tokens_total") > 0
        if tenants:  # another one finds nothing of this one's, and gets the same answers
            other = chat(c, settle, n_token, cache_salt="another")
            assert [essence for essence, _, _ in other] == want and [f for _, f, _ in other] == could
        assert s.stop() == 0


def test_bf16():
    check(70)


def test_nvfp4():
    check(70, "--kv-cache-dtype", "nvfp4", tenants=True)


def test_fp8():
    check(70, "--kv-cache-dtype", "fp8")


def ids(connection, between, n_turn=2, n_token=50):
    """The same with token ids, for a model without a tokenizer."""
    text, out, history = [], [], 0
    for turn in range(n_turn):
        text += [(turn * 40 + i) % 300 for i in range(20)]
        status, answer = ask(connection, "/v1/completions", {
            "prompt": text, "max_tokens": n_token, "temperature": 0, "logprobs": 2, "ignore_eos": True,
            "return_token_ids": True})
        assert status == 200, answer
        choice = answer["choices"][0]
        out.append(([choice["token_ids"], choice["logprobs"]],
                    answer["usage"]["prompt_tokens_details"]["cached_tokens"], history // 64 * 64))
        text += choice["token_ids"]
        history = len(text)
        between(connection)
    return out


def test_gpu():
    if not EMU:
        return
    model = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../parity/v2_lite")
    args = [model, "--port", "0", "--max-model-len", "256", "--num-gpu-blocks-override", "16", "--max-num-seqs", "2",
            "--max-num-batched-tokens", "64", "--skip-tokenizer-init", "--kv-cache-dtype", "nvfp4", "--device", "cuda",
            "--cuda-library", EMU]
    with Server(*args, "--no-enable-prefix-caching", small=False) as s:
        want = [essence for essence, _, _ in ids(s.connect(), lambda c: None)]
    with Server(*args, small=False) as s:
        got = ids(s.connect(), settle)
    assert [essence for essence, _, _ in got] == want, "other answers than without a prefix cache"
    assert [f for _, f, _ in got] == [k for _, _, k in got] == [0, 64], got


def test_no_time_between():
    """The next turn comes at once: it computes the answer itself, and nothing is computed twice."""
    with Server(MODEL, "--port", "0", "--kv-cache-memory-bytes", "64M", small=False) as s:
        c = s.connect()
        got = chat(c, lambda c: None, 70)
        assert all(f <= k for _, f, k in got), got
        settle(c)


def test_off():
    with Server(MODEL, "--port", "0", "--kv-cache-memory-bytes", "64M", "--no-cache-answers", small=False) as s:
        c = s.connect()
        got = chat(c, settle, 70)
        assert got[1][1] == 0 and got[3][1] < got[3][2], got
        assert counted(c, "refill_tokens_total") == 0


def test_reset_and_stop():
    """A reset empties the cache for good; the end does not wait for answers."""
    with Server(MODEL, "--port", "0", "--kv-cache-memory-bytes", "64M", small=False) as s:
        c = s.connect()

        def reset(connection):
            assert ask(connection, "/reset_prefix_cache", {})[0] == 200
            assert counted(connection, "num_refills_waiting") == 0
        assert all(f == 0 for _, f, _ in chat(c, reset, 70))
        chat(c, lambda c: None, 70)
        assert s.stop() == 0


if __name__ == "__main__":
    run_tests(globals())
