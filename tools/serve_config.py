#!/usr/bin/env python3
"""serve_config.py NIBBLE CONFIG - the installed configuration serves: on a free port, told to be ready as a service
manager would be, it answers one question and ends on SIGTERM."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request

nibble, config = sys.argv[1:]


def news(manager, server):
    """What the server tells next; ends when it has ended without a word."""
    while True:
        try:
            return manager.recv(100)
        except TimeoutError:
            assert server.poll() is None, f"the server has ended with exit code {server.returncode}"


with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, \
        socket.socket() as port:
    port.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{port.getsockname()[1]}"
    port.close()
    manager.bind(os.path.join(folder, "notify"))
    manager.settimeout(0.5)
    server = subprocess.Popen([nibble, "serve", "--config", config, "--port", address.split(":")[1],
                               "--kv-cache-memory-bytes", "16M"], cwd=folder,
                              env={**os.environ, "NOTIFY_SOCKET": os.path.join(folder, "notify")})
    try:
        assert news(manager, server) == b"READY=1"
        body = json.dumps({"prompt": "Once", "max_tokens": 4}).encode()
        request = urllib.request.Request(f"http://{address}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 4
        server.send_signal(signal.SIGTERM)
        assert news(manager, server) == b"STOPPING=1"
        assert server.wait(120) == 0
    finally:
        server.kill()
        server.wait()
