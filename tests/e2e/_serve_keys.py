"""Who may ask a server for what; called by serve_keys.sh.

    python3 _serve_keys.py NIBBLE MODEL FOLDER
"""
import itertools
import os
import re

from _server import MODEL, Server, ask, run_tests

NAME = os.path.basename(MODEL)
# Method, path, whether it is open without a key where keys are set.
ROUTES = [
    ("POST", "/v1/chat/completions", False),
    ("POST", "/v1/completions", False),
    ("POST", "/v1/chat/completions/render", False),
    ("POST", "/v1/completions/render", False),
    ("POST", "/v1/responses", False),
    ("POST", "/v1/messages", False),
    ("POST", "/v1/messages/count_tokens", False),
    ("GET", "/v1/models", False),
    ("GET", f"/v1/models/{NAME}", False),
    ("POST", "/tokenize", False),
    ("POST", "/detokenize", False),
    ("GET", "/tokenizer_info", False),
    ("GET", "/health", True),
    ("GET", "/ping", True),
    ("POST", "/ping", True),
    ("GET", "/version", True),
    ("GET", "/load", True),
    ("GET", "/metrics", True),
    ("POST", "/reset_prefix_cache", False),
    ("GET", "/api/check", False),
    ("GET", "/api/config", False),
    ("GET", "/api/stats", False),
    ("GET", "/api/cache", False),
    ("GET", "/api/block", False),
    ("GET", "/", True),
]
KEYS = {None: {}, "wrong": {"Authorization": "Bearer wrong"}, "right": {"x-api-key": "right"}}
ORIGINS = {"none": {}, "own": {}, "foreign": {"Origin": "https://other.example"},
           "site": {"Sec-Fetch-Site": "cross-site"}}
HOSTS = ["localhost", "rebound.example"]


def status_of(connection, method, path, headers):
    body = "{}" if method == "POST" else None
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    if body:
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body.encode() if body else None)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def expected(keys, key, method, is_open, origin, host):
    """401, 403, or None for an answer of the route itself."""
    if keys:
        return None if is_open or key == "right" else 401
    if host == "rebound.example":
        return 403
    return 403 if method == "POST" and origin in ("foreign", "site") else None


def check(server, keys):
    wrong, n = [], 0
    connection = server.connect()
    for (method, path, is_open), key, origin, host in itertools.product(ROUTES, KEYS, ORIGINS, HOSTS):
        headers = {"Host": f"{host}:{server.port}", **KEYS[key], **ORIGINS[origin]}
        if origin == "own":
            headers["Origin"] = f"http://{host}:{server.port}"
        status = status_of(connection, method, path, headers)
        want = expected(keys, key, method, is_open, origin, host)
        n += 1
        if status != want if want else status in (401, 403):
            wrong.append((method, path, key, origin, host, status, want))
    assert not wrong, wrong
    assert n == len(ROUTES) * 3 * 4 * 2


def test_with_keys():
    for more in ([], ["--dev-endpoints"]):
        with Server(MODEL, "--port", "0", "--api-key", "right", *more) as s:
            check(s, True)
            assert s.stop() == 0


def test_without_keys():
    with Server(MODEL, "--port", "0") as s:
        check(s, False)
        assert s.stop() == 0


def test_every_route_is_here():
    """ROUTES is what the server's tables have."""
    folder = os.path.join(MODEL, "../../src/serve")
    with open(os.path.join(folder, "serve.c"), encoding="utf-8") as f:
        rows = re.findall(r'\{ "([A-Z]+)", "(/[^"]*)", \w+, (true|false) \}', f.read())
    with open(os.path.join(folder, "page.c"), encoding="utf-8") as f:
        rows += [("GET", p, "false") for p in re.findall(r'DATA\("(/[^"]*)"', f.read())]
    told = {(m, p, o == "true") for m, p, o in rows if p != "/"}
    own = {r for r in ROUTES if r[1] not in ("/", f"/v1/models/{NAME}")}
    assert told == own, told ^ own


def test_proxies():
    """A proxy on this machine does not make its clients local."""
    with Server(MODEL, "--port", "0") as s:
        c = s.connect()
        assert ask(c, "/reset_prefix_cache", {})[0] == 200
        for name, value in (("X-Forwarded-For", "203.0.113.7"), ("Forwarded", "for=203.0.113.7"),
                            ("Via", "1.1 proxy"), ("X-Real-IP", "203.0.113.7"), ("Host", "box")):
            headers = {"Host": f"localhost:{s.port}", name: value}
            assert status_of(c, "POST", "/reset_prefix_cache", headers) == 403, name
        assert s.stop() == 0
    with Server(MODEL, "--port", "0", "--dev-endpoints") as s:
        assert status_of(s.connect(), "POST", "/reset_prefix_cache",
                         {"Host": "localhost", "X-Forwarded-For": "203.0.113.7"}) == 200
        assert s.stop() == 0


run_tests(globals())
