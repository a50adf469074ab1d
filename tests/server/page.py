#!/usr/bin/env python3
"""page.py - what the page asks for, without a browser: its files plain, compressed and unchanged, and /api.

    page.py NIBBLE SOURCE_DIR

tests/web looks at the page; this also runs under sanitizers, which a browser would only slow down.
"""
import gzip
import http.client
import json
import os
import re
import subprocess
import sys

SKIPPED = 77


def start(nibble, source):
    command = [nibble, "serve", os.path.join(source, "models", "nibble-tiny"), "--port", "0",
               "--kv-cache-dtype", "nvfp4", "--kv-cache-memory-bytes", "32M"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    log = ""
    for line in process.stderr:
        log += line
        match = re.search(r"listening on http://127\.0\.0\.1:(\d+)/", line)
        if match:
            return process, int(match.group(1))
    raise SystemExit("page: the server did not start:\n" + log)


def ask(port, path, body=None, **headers):
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    headers = {k.replace("_", "-"): v for k, v in headers.items()}
    if body:
        headers["Content-Type"] = "application/json"
    link.request("POST" if body else "GET", path, body and json.dumps(body), headers)
    answer = link.getresponse()
    data = answer.read()
    link.close()
    return answer.status, answer.headers, data


def files(port):
    status, headers, text = ask(port, "/")
    assert status == 200
    if not headers["Content-Type"].startswith("text/html"):
        print("this build has no page: its files are not asked for")
        return
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    names = set(re.findall(rb'(?:src|href)="\.?/?([\w.-]+\.(?:js|css))"', text))
    assert names, "the page names no files"
    for name in ["", *(n.decode() for n in names)]:
        status, headers, plain = ask(port, "/" + name)
        assert status == 200 and plain, name
        again, _, empty = ask(port, "/" + name, If_None_Match=headers["ETag"])
        assert (again, empty) == (304, b""), name
        _, headers, packed = ask(port, "/" + name, Accept_Encoding="br, GZIP;q=0.5")
        assert headers["Content-Encoding"] == "gzip" and gzip.decompress(packed) == plain, name
        _, headers, _ = ask(port, "/" + name, Accept_Encoding="gzip;q=0")
        assert headers["Content-Encoding"] is None, name
    assert ask(port, "/nothing.js")[0] == 404


def api(port):
    def get(path):
        status, _, data = ask(port, "/api/" + path)
        return status, json.loads(data)

    assert get("block")[0] == 404  # nothing has run
    for bad in ("block?layer=x", "block?layer=-1", "block?tok=99999999999999999999"):
        assert get(bad)[0] == 400, bad
    assert get("config")[0] == get("stats")[0] == get("cache")[0] == 200
    for prompt in ("Once upon a time", "Once there was a little fox who lived near the lake. " * 12):
        question = {"prompt": prompt, "max_tokens": 20, "ignore_eos": True}
        assert ask(port, "/v1/completions", question)[0] == 200
        status, cache = get("cache")
        used = sum(c != "." for c in cache["state"])
        assert status == 200 and len(cache["state"]) == cache["n_block"]
        assert len(cache["parent"]) == used and len(cache["keys"]) == 8 * used
    assert used, "no page of the second prompt was kept"
    n_layer = get("config")[1]["engine"]["n_layer"]
    for layer in range(n_layer):
        status, block = get(f"block?layer={layer}&tok=0")
        assert status == 200 and block["layer"] == layer
        for record in block["records"]:
            assert len(record["decoded"]) == block["n_values"], record["dtype"]
    assert get(f"block?layer={n_layer}")[0] == 400
    stats = get("stats")[1]
    assert stats["running"] == 0 and stats["generated_tokens"] == 40


def main():
    nibble, source = os.path.abspath(sys.argv[1]), sys.argv[2]
    if not os.path.exists(os.path.join(source, "models", "nibble-tiny", "config.json")):
        print("page: skipped: no bundled model")
        return SKIPPED
    process, port = start(nibble, source)
    try:
        files(port)
        api(port)
        process.terminate()
        process.stderr.read()
        assert process.wait(60) == 0, "its end"
    finally:
        process.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
