"""Extreme numbers in requests; called by serve_values.sh.

    python3 _serve_values.py NIBBLE MODEL FOLDER
"""
import itertools
import json
import os

from _server import MODEL, Server, ask, run_tests

# As text: Python would not write some of them.
NUMBERS = ["0", "-0.0", "1", "-1", "0.5", "1e-5", "1e-6", "1e-7", "1e-37", "1e-38", "1e-45", "1e-46", "5e-324",
           "1e-400", "-1e-38", "-5e-324", "2", "100", "1e3", "1e6", "1e7", "1e15", "1e30", "3.5e38", "1e308",
           "1e309", "-1e30", "-1e308", "2147483647", "2147483648", "4294967296", "-2147483649",
           "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
           "-9223372036854775809", "18446744073709551616", "1" + "0" * 400, "0." + "0" * 400 + "1",
           "0.99999999999999999", "1.0000000000000002", "true", "[]", '"1"']
TEXT, CHAT, MESSAGES = "/v1/completions", "/v1/chat/completions", "/v1/messages"
SAY = [{"role": "user", "content": "Hello"}]
BODIES = {TEXT: {"prompt": "Once upon a time", "max_tokens": 3},
          CHAT: {"messages": SAY, "max_tokens": 3},
          MESSAGES: {"messages": SAY, "max_tokens": 3}}
SHARED = ["temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
          "repetition_penalty", "seed", "n", "max_tokens", "min_tokens", "priority",
          "truncate_prompt_tokens", "prompt_logprobs"]
FIELDS = {TEXT: [*SHARED, "logprobs", "best_of"],
          CHAT: [*SHARED, "max_completion_tokens", "top_logprobs"],
          MESSAGES: ["temperature", "top_p", "top_k", "max_tokens"]}
N_VOCAB = json.load(open(os.path.join(MODEL, "config.json"), encoding="utf-8"))["vocab_size"]


def post(connection, path, text):
    connection.request("POST", path, text, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    body = answer.read().decode()
    return answer.status, body


def with_field(path, field, value, **more):
    body = {k: v for k, v in {**BODIES[path], **more}.items() if k != field}
    return json.dumps(body)[:-1] + f', "{field}": {value}}}'


class Sweep:
    def __init__(self, server):
        self.server, self.connection = server, server.connect()
        self.wrong, self.seen = [], {200: 0, 400: 0}

    def try_body(self, path, text):
        status, body = post(self.connection, path, text)
        if status not in (200, 400) or not json.loads(body):
            self.wrong.append((path, text[-300:], status, body[:300]))
        else:
            self.seen[status] += 1
        return status

    def end(self):
        assert not self.wrong, "\n".join(map(str, self.wrong))
        assert min(self.seen.values()) > 0, self.seen
        assert ask(self.connection, "/health")[0] == 200
        assert self.server.stop() == 0
        bad = [line for line in self.server.log if " WARN " in line or " ERROR " in line]
        assert not [line for line in bad if "status=5" in line], bad[:5]


def test_single_fields():
    with Server(MODEL, "--port", "0", "--max-model-len", "256") as s:
        w = Sweep(s)
        for path, fields in FIELDS.items():
            for field, number in itertools.product(fields, NUMBERS):
                w.try_body(path, with_field(path, field, number))
        for number in NUMBERS:
            w.try_body(TEXT, with_field(TEXT, "logit_bias", '{"5": %s}' % number))
            w.try_body(TEXT, with_field(TEXT, "logit_bias", '{"%s": 1}' % number.strip('"')))
            w.try_body(TEXT, with_field(TEXT, "stop_token_ids", f"[{number}]"))
            w.try_body(TEXT, with_field(TEXT, "prompt", f"[{number}]"))
            w.try_body(TEXT, with_field(TEXT, "temperature", number, repetition_penalty=1e-6,
                                        presence_penalty=-2, frequency_penalty=2))
            w.try_body("/detokenize", '{"tokens": [%s]}' % number)
        w.end()


def test_bounds_together():
    """The ends of all ranges at once, with the log-probabilities that they lead to."""
    ends = {"temperature": [0, 9e-6, 1e-5, 1e6], "top_p": [5e-324, 1], "min_p": [0, 5e-324, 1],
            "repetition_penalty": [1e-6, 1e6], "frequency_penalty": [-2, 2],
            "presence_penalty": [-2, 2]}
    with Server(MODEL, "--port", "0", "--max-model-len", "256") as s:
        w = Sweep(s)
        for values in itertools.product(*ends.values()):
            body = {**BODIES[TEXT], **dict(zip(ends, values)), "logprobs": 2,
                    "logit_bias": {"7": 100, "8": -100, "9": 5e-324}}
            assert w.try_body(TEXT, json.dumps(body)) == 200, body
        w.try_body(TEXT, json.dumps({**BODIES[TEXT], "repetition_penalty": 1e-38}))
        w.end()


def test_no_token_left():
    """Every token is an end, and the answer must not end."""
    ids = list(range(N_VOCAB))
    with Server(MODEL, "--port", "0", "--max-model-len", "256") as s:
        w = Sweep(s)
        for some in (ids[:4096], ids[-4096:]):
            for least in (0, 2):
                w.try_body(TEXT, json.dumps({**BODIES[TEXT], "stop_token_ids": some,
                                             "min_tokens": least}))
        w.try_body(TEXT, json.dumps({**BODIES[TEXT], "logit_bias": {str(i): -100 for i in ids}}))
        w.try_body(TEXT, json.dumps({**BODIES[TEXT], "min_tokens": 4}))
        w.end()


run_tests(globals())
