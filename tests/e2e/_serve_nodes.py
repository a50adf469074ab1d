"""A server as two processes; called by serve_nodes.sh.

    python3 _serve_nodes.py NIBBLE MODEL FOLDER
"""
import contextlib
import os
import re
import shutil
import signal
import socket
import time

from _server import MODEL, TMP, Server, ask, break_under_load, complete, expect_failed, metrics, run_tests

SECRET = "what the processes of this test know"
CLOSED = "rank 1 of 2: its connection was closed"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def process(port, rank, *args, n=2, secret=SECRET, env=None, small=True, model=MODEL):
    """One of n; it is started, and not waited for."""
    env = {"NIBBLE_RENDEZVOUS_SECRET": secret, **(env or {})}
    return Server(model, "--port", "0", "--device", "cpu", "-tp", str(n), "--nnodes", str(n), "--node-rank", str(rank),
                  "--master-addr", "127.0.0.1", "--master-port", str(port), "--distributed-timeout-seconds", "60",
                  *args, env=env, small=small)


@contextlib.contextmanager
def processes(n, *args):
    """Rank 0, which listens, and the others."""
    port = free_port()
    others = [process(port, k, n=n) for k in range(1, n)]
    try:
        with process(port, 0, *args, n=n) as leader:
            yield leader, *others
    finally:
        for p in others:
            if p.process.poll() is None:
                p.process.kill()
                p.process.wait()


def answers(server):
    prompts = ["Once upon a time", "The little dog " * 40, "A"]  # the second fills pages
    return [complete(server.connect(), prompt=p, max_tokens=40, logprobs=3)["choices"] for p in prompts * 2]


def test_same_bits():
    with Server(MODEL, "--port", "0", "--device", "cpu") as s:
        one = answers(s)
        assert s.stop() == 0
    for n in 2, 3:
        with processes(n) as (leader, *others):
            assert answers(leader) == one
            assert {k.split("{")[0]: v for k, v in metrics(leader.connect()).items()}["nibble:ranks"] == n
            assert "this is rank 0" in leader.text()
            assert leader.stop() == 0, leader.text()
            for k, p in enumerate(others, 1):
                assert p.end() == 0 and f"rank {k} of {n}: follows rank 0" in p.text(), p.text()
                assert "listening on" not in p.text()


def test_strangers_then_a_killed_follower():
    port = free_port()
    leader = process(port, 0)
    while "waiting for the other ranks" not in leader.text():
        assert leader.process.poll() is None, leader.text()
        time.sleep(0.02)
    strangers = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(50)]
    for i, s in enumerate(strangers[::2]):
        s.sendall([b"GET / HTTP/1.1\r\n\r\n" * 9, os.urandom(200), b"nibble ranks 1\n\0", b"\0"][i % 4])
    wrong = process(port, 1, secret="a secret that is another one")
    assert wrong.end() == 1 and "another rendezvous secret" in wrong.text(), wrong.text()
    follower = process(port, 1)
    with leader:
        for s in strangers:
            s.close()
        assert "another rendezvous secret" in leader.text()
        start = time.monotonic()
        break_under_load(leader, follower.process.kill, CLOSED)
        expect_failed(leader, CLOSED)
        assert time.monotonic() - start < 30
        follower.process.wait()


def test_a_follower_ends_while_nothing_is_computed():
    with processes(2, "--exit-on-failure") as (leader, follower):
        follower.process.send_signal(signal.SIGKILL)
        assert leader.end() == 1
        assert CLOSED in leader.text(), leader.text()


def test_the_leader_fails_while_nothing_is_computed():
    """Its weights are cut off: the other one must not wait for a step that never comes."""
    port = free_port()
    own = os.path.join(TMP, "own")
    shutil.copytree(MODEL, own)
    follower = process(port, 1)
    with process(port, 0, model=own) as leader:
        for name in os.listdir(own):
            if name.endswith(".safetensors"):
                os.truncate(os.path.join(own, name), 4096)
        assert follower.end() == 1 and "rank 0 of 2: " in follower.text(), follower.text()
        assert ask(leader.connect(), "/health")[0] == 503


def test_the_leader_is_killed():
    with processes(2) as (leader, follower):
        leader.process.kill()
        assert follower.end() == 1
        assert "rank 0 of 2: its connection was closed" in follower.text(), follower.text()


def refused(words, *args, **more):
    """Both end with the same line when rank 1 has these options."""
    port = free_port()
    pair = [process(port, 0), process(port, 1, *args, **more)]
    lines = []
    for p in pair:
        assert p.end() == 1, p.text()
        lines += re.findall(r"rank 1 does not fit rank 0.*", p.text())
    assert len(lines) == 2 and lines[0] == lines[1] and words in lines[0], [p.text() for p in pair]


def test_what_does_not_fit():
    refused("its KV cache record: bf16", "--kv-cache-dtype", "bf16", "--kv-cache-memory-bytes", "64M", small=False)
    refused("its model: ", "--weight-dtype", "int8")
    refused("its kernels: ", "--cpu-caps", "c")
    refused("its sizes: ", "--max-num-seqs", "5")


def test_options():
    def usage(words, *args, env=None):
        p = Server(MODEL, "--port", "0", "--device", "cpu", *args, env=env)
        assert p.end() in (1, 2) and words in p.text(), (words, p.text())

    known = {"NIBBLE_RENDEZVOUS_SECRET": SECRET}
    usage("needs a secret", "--nnodes", "2", "-tp", "2", env={"NIBBLE_RENDEZVOUS_SECRET": "short"})
    usage("each process has one rank", "--nnodes", "2", "--master-addr", "127.0.0.1", env=known)
    usage("needs --master-addr", "--nnodes", "2", "-tp", "2", env=known)
    usage("data-parallel ranks are in one process", "--nnodes", "2", "-dp", "2", "-ep", "--master-addr", "127.0.0.1",
          env=known)
    usage("WORLD_SIZE=many", "--nnodes", "auto", env={"WORLD_SIZE": "many"})
    usage("expected 0 without --nnodes", "--node-rank", "1")
    usage("--nnodes 0: expected", "--nnodes", "0")


def test_from_the_environment():
    """Slurm's variables, the secret in a file."""
    path = os.path.join(TMP, "secret")
    with open(path, "w") as f:
        f.write(SECRET + "\n")
    port = free_port()

    def started(rank):
        env = {"SLURM_NTASKS": "2", "SLURM_PROCID": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return Server(MODEL, "--port", "0", "--device", "cpu", "-tp", "2", "--nnodes", "auto", "--rendezvous-secret-file",
                      path, env=env)

    follower = started(1)
    with started(0) as leader:
        assert ask(leader.connect(), "/health")[0] == 200
        assert leader.stop() == 0
        assert follower.end() == 0


run_tests(globals())
