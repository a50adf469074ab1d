"""Gives `nibble serve` every option of tests/data/server_options; called by server_options.sh.

    python3 _server_options.py NIBBLE FOLDER

No server comes up: the model does not exist, so an option that is accepted ends with exit code 1
and a line about the model, a refused one with exit code 2 and the reason.
"""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

NIBBLE, FOLDER = sys.argv[1:3]
NONE = "/nowhere/model"
PATHS = {"--config", "--model", "--model-path", "--model_path"}
VALUES = {"value": "x", "list": "x", "maybe": "x", "json": '{"a": {"b": 1}}'}


def serve(*words):
    """Exit code and error line."""
    done = subprocess.run([NIBBLE, "serve", NONE, *words], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert done.stdout == "" and done.stderr.count("\n") == 1, (words, done)
    assert done.returncode in (1, 2), (words, done)
    return done.returncode, done.stderr


def known(words):
    """The option is known, and an answer about it says why."""
    code, line = serve(*words)
    assert "unknown option" not in line and "no option of" not in line, (words, line)
    if words[0].split("=")[0] == "--device":
        assert "expected auto, cpu, cuda" in line, (words, line)
    elif code == 1:
        assert NONE in line or words[0].split("=")[0] in PATHS, (words, line)
    else:
        assert words[0].split("=")[0].split(".")[0].lstrip("-").replace("_", "-") in line, (words, line)
        assert len(line.split()) >= 6, f"no reason: {words}: {line}"
    return line


def check(row):
    name, kind, *short = row
    forms = ["--" + name, "--" + name.replace("-", "_")] + short
    for form in forms:
        if kind == "flag":
            known([form])
            continue
        known([form, VALUES[kind]])
        known([form + "=" + VALUES[kind]] if form != "-O" else ["-O3"])
        if kind == "json":
            known([form + ".a_b.c=1"])
            known([form + ".a_b", "text"])
        line = serve(form)[1]
        if kind == "maybe":
            assert "missing" not in line, (form, line)
        else:
            assert "missing" in line, f"{form} takes no value: {line}"
    if kind == "flag":
        known(["--no-" + name])
    if kind == "list":
        line = known(["--" + name, "x", "y", "z"])
        assert "unexpected" not in line, (name, line)


def rows(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as f:
        return [line.split() for line in f if not line.startswith("#")]


def failure(row):
    """What is wrong with an option, or None."""
    try:
        check(row)
    except AssertionError as e:
        return str(e)
    return None


def main():
    every = [row for name in ("vllm.txt", "vllm_older.txt", "sglang.txt") for row in rows(name)]
    assert len(every) > 400, len(every)
    if os.environ.get("NB_SANITIZE"):
        every = every[::8]  # a sanitizer takes its time at every start
    with ThreadPoolExecutor(4) as pool:
        wrong = [e for e in pool.map(failure, every) if e]
    assert not wrong, "\n".join(wrong)
    for name, _, short, own in rows("llama_server.txt"):
        for form in ["--" + name] + [short] * (short != "-"):
            code, line = serve(form, "x")
            assert code == 2 and "llama.cpp" in line and own in line, (form, line)


main()
