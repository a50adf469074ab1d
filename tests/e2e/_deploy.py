"""Compares deploy/ and the Containerfiles with a running server; called by deploy.sh."""
import json
import os
import re
import subprocess

import yaml

from _server import MODEL, NIBBLE, Server, ask, complete, run_tests

SOURCE = os.environ["NB_SOURCE_DIR"]
FUNCTIONS = {"sum", "rate", "max", "by", "le", "histogram_quantile", "increase", "and", "label_values"}
SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)\{(.*)\} \S+$|([a-zA-Z_:][\w:]*) \S+$')
SELECTOR = re.compile(r"([a-zA-Z_][\w]*:?\w*)(\{[^}]*\})?")


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as f:
        return f.read()


def exported():
    """Name of each series and its labels, after a request."""
    with Server(MODEL, "--port", "0") as s:
        complete(s.connect())
        assert ask(s.connect(), "/health")[0] == 200
        series = {}
        for line in ask(s.connect(), "/metrics")[1].splitlines():
            match = SAMPLE.match(line)
            if match and not line.startswith("#"):
                labels = set(re.findall(r'(\w+)="', match.group(2) or ""))
                series.setdefault(match.group(1) or match.group(3), set()).update(labels | {"job", "instance"})
        assert s.stop() == 0
    assert len(series) > 80, series
    return {**series, "up": {"job", "instance"}}


def check_expression(expression, series):
    """What is wrong with it, in words."""
    bad = []
    text = re.sub(r"\[[^\]]*\]", "", expression)
    grouped = re.findall(r"\bby \(([^)]*)\)", text)
    text = re.sub(r"\bby \([^)]*\)", "", text)
    names = []
    for name, selector in SELECTOR.findall(re.sub(r'"[^"]*"', '""', text)):
        if name in FUNCTIONS or not re.search(r"[a-z]", name):
            continue
        names.append(name)
        if name not in series:
            bad.append(f"{name}: the server has no such metric")
        else:
            bad += [f"{name} has no label {label}" for label in re.findall(r"(\w+)[=!]", selector)
                    if label not in series[name]]
    if not names:
        bad.append("no metric in it")
    labels = set().union(*(series.get(n, set()) for n in names))
    return bad + [f"no label {g}" for group in grouped for g in group.split(", ") if g not in labels]


def test_metrics():
    series = exported()
    dashboard = json.loads(read("deploy", "grafana.json"))
    expressions = [t["expr"] for p in dashboard["panels"] for t in p["targets"]]
    expressions += [v["query"].split("(")[1].split(",")[0] for v in dashboard["templating"]["list"]
                    if v["type"] == "query"]
    rules = yaml.safe_load(read("deploy", "prometheus-rules.yml"))
    expressions += [r["expr"] for g in rules["groups"] for r in g["rules"]]
    assert len(expressions) > 20
    bad = [f"{e}: {b}" for e in expressions for b in check_expression(e, series)]
    assert not bad, "\n".join(bad)
    for wrong in ("rate(vllm:no_such_total[5m])", "nibble:steps_total{nope=\"1\"}", "sum by (nope) (up)", "1 > 0"):
        assert check_expression(wrong, series), wrong
    ids = [p["id"] for p in dashboard["panels"]]
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in dashboard["panels"]]
    assert len(set(ids)) == len(ids) == len(set(places))
    scrape = yaml.safe_load(read("deploy", "prometheus.yml"))
    assert [os.path.exists(os.path.join(SOURCE, "deploy", f)) for f in scrape["rule_files"]] == [True]
    jobs = [c["job_name"] for c in scrape["scrape_configs"]]
    assert re.findall(r'job="(\w+)"', read("deploy", "prometheus-rules.yml")) == jobs == ["nibble"]


def known_arguments(arguments):
    """The command knows these options: --help, the last, ends without reading the model."""
    done = subprocess.run([NIBBLE, *arguments, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"nibble {arguments[0]}"), done.stdout[:100]


def test_kubernetes():
    claim, deployment, service = yaml.safe_load_all(read("deploy", "kubernetes.yaml"))
    pod = deployment["spec"]["template"]["spec"]
    container, pull = pod["containers"][0], pod["initContainers"][0]
    known_arguments(container["args"])
    assert pull["args"] == ["pull", container["args"][1]]
    version = re.search(r"project\(nibble VERSION (\S+)", read("CMakeLists.txt")).group(1)
    assert container["image"] == pull["image"] == f"nibble:{version}"
    assert {container[p]["httpGet"]["path"] for p in ("startupProbe", "readinessProbe", "livenessProbe")} == {"/health"}
    assert container["ports"][0]["name"] == service["spec"]["ports"][0]["targetPort"]
    assert deployment["spec"]["template"]["metadata"]["labels"] == service["spec"]["selector"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    drain = int(re.search(r"--drain-timeout=(\d+)", " ".join(container["args"])).group(1))
    sleep = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > drain + sleep
    live = container["livenessProbe"]  # a draining server answers 503 and must not be killed for it
    assert live["periodSeconds"] * live["failureThreshold"] > pod["terminationGracePeriodSeconds"]
    unit = read("packaging", "nibble.service.in")
    assert int(re.search(r"TimeoutStopSec=(\d+)", unit).group(1)) > drain


def instructions(name):
    """The (word, rest) of each instruction."""
    text = re.sub(r"^#.*\n", "", read(name), flags=re.M)
    return [tuple(line.split(None, 1)) for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def healthy(command, port):
    words = [w.replace("/8000", f"/{port}") for w in command]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


def test_containers():
    common = []
    for name in ("Containerfile", "Containerfile.cuda"):
        lines = instructions(name)
        one = dict(lines)
        assert [w for w, _ in lines].count("FROM") == 2
        assert int(one["USER"].split(":")[0]) > 0
        assert one["VOLUME"] == "/var/cache/nibble" and ("ENV", "HF_HOME=/var/cache/nibble") in lines
        assert json.loads(one["ENTRYPOINT"]) == ["nibble"]
        known_arguments(json.loads(one["CMD"]))
        common.append({w: one[w] for w in ("USER", "HEALTHCHECK", "VOLUME", "ENTRYPOINT", "CMD", "EXPOSE", "WORKDIR")})
    assert common[0] == common[1]
    check = json.loads(common[0]["HEALTHCHECK"].split("CMD", 1)[1])
    with Server(MODEL, "--port", "0") as s:
        assert healthy(check, s.port)
        assert s.stop() == 0
        assert not healthy(check, s.port)


run_tests(globals())
