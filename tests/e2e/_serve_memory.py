"""Memory of a server that gets large bodies; called by serve_memory.sh.

    python3 _serve_memory.py NIBBLE MODEL FOLDER
"""
import re
import time

from _server import MODEL, WAIT, Server, ask, complete, run_tests

MIB = 1 << 20
SIZE = 16 * MIB - 200
SAY = '[{"role": "user", "content": "Hi"}]'
PEAK, KEPT = 256 * MIB, 48 * MIB  # above the idle server


def many(item, n_bytes=SIZE):
    return ",".join([item] * (n_bytes // (len(item) + 1)))


def members(n_bytes=SIZE):
    return ",".join(f'"{i:06x}":1' for i in range(n_bytes // 11))


# Bodies, most of almost 16 MiB; True: it must be refused.
BODIES = [
    ("objects", "/v1/chat/completions", f'{{"messages": [{many("{}")}]}}', True),
    ("arrays", "/v1/chat/completions", f'{{"messages": [{many("[]")}]}}', True),
    ("messages", "/v1/chat/completions",
     f'{{"messages": [{many(chr(123) + chr(34) + "role" + chr(34) + ":1}")}]}}', True),
    ("nested", "/v1/chat/completions", '{"messages": ' + "[" * (SIZE // 2) + "]" * (SIZE // 2) + "}", True),
    ("members", "/v1/chat/completions", f'{{"messages": {SAY}, "metadata": {{{members()}}}}}', True),
    ("strings", "/v1/completions", '{"prompt": [' + many('""') + "]}", True),
    ("nulls", "/v1/completions", f'{{"prompt": "a", "other": [{many("null")}]}}', None),
    ("digits", "/v1/completions", f'{{"prompt": [{many("1")}]}}', None),
    ("ids", "/v1/completions", f'{{"prompt": [{many("12345")}]}}', None),
    ("text", "/v1/completions", '{"prompt": "' + "x" * (SIZE - 100) + '"}', None),
    ("chat text", "/v1/chat/completions",
     '{"messages": [{"role": "user", "content": "' + "word " * (SIZE // 5 - 30) + '"}]}', None),
    ("escapes", "/tokenize", '{"prompt": "' + "\\u00e9" * (SIZE // 6 - 30) + '"}', None),
    ("valid ids", "/v1/completions", f'{{"prompt": [{many("1234")}]}}', None),
    ("turns", "/v1/chat/completions",
     f'{{"messages": [{many(SAY[1:-1], 33 * 90000)}]}}', None),
    ("parts", "/v1/chat/completions", '{"messages": [{"role": "user", "content": [' +
     many('{"type": "text", "text": "x"}', 30 * 90000) + "]}]}", None),
    ("broken", "/v1/chat/completions", '{"messages": [' + many('{"a":1}'), True),
]


def memory(server, name):
    with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as f:
        return int(re.search(rf"{name}:\s+(\d+) kB", f.read())[1]) << 10


def forget_peak(server):
    with open(f"/proc/{server.process.pid}/clear_refs", "w", encoding="utf-8") as f:
        f.write("5")


def post(connection, path, text):
    connection.request("POST", path, text, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_large_bodies():
    with Server(MODEL, "--port", "0") as s:
        c = s.connect()
        complete(c)
        idle = memory(s, "VmRSS")
        wrong = []
        for name, path, text, refused in BODIES:
            assert len(text) < 16 * MIB, name
            forget_peak(s)
            status, answer = post(c, path, text)
            peak = memory(s, "VmHWM") - idle
            deadline = time.monotonic() + WAIT
            while (kept := memory(s, "VmRSS") - idle) > KEPT and time.monotonic() < deadline:
                time.sleep(0.02)
            print(f"  {name}: status {status}, {peak / MIB:.0f} MiB at most, {kept / MIB:.0f} MiB kept")
            if status not in (200, 400, 413) or (refused and status == 200):
                wrong.append((name, status, answer[:200]))
            if peak > PEAK or kept > KEPT:
                wrong.append((name, peak, kept))
        assert not wrong, wrong
        assert ask(c, "/health")[0] == 200
        assert s.stop() == 0


run_tests(globals())
