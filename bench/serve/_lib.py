"""Shared by the server benchmarks: the machine line, a server, runs, medians, results."""
import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time
import urllib.request

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(SOURCE, "models", "nibble-tiny")
RESULTS = os.path.join(SOURCE, "bench", "results")


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, cwd=SOURCE, check=False)
    return done.stdout.strip()


def machine(nibble):
    """One line: processor, cores, instruction sets, memory, compiler, commit."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        cpu = re.search(r"^model name\s*: (.*)$", f.read(), re.M)
    with open("/proc/meminfo", encoding="utf-8") as f:
        memory = int(re.search(r"^MemTotal:\s*(\d+)", f.read(), re.M).group(1)) / (1 << 20)
    version = output(nibble, "--version")
    compiler = re.search(r"\((.*)\)", version)
    isa = re.search(r"this machine: (.*)", version)
    dirty = "+" if output("git", "status", "--porcelain", "--untracked-files=no") else ""
    return (f"{cpu.group(1) if cpu else 'unknown CPU'}, {os.cpu_count()} cores, "
            f"{isa.group(1) if isa else '?'}, {memory:.1f} GiB, {compiler.group(1) if compiler else '?'}, "
            f"commit {output('git', 'rev-parse', '--short', 'HEAD')}{dirty}")


def load():
    """The load average, so that a figure from a busy machine shows it."""
    return round(os.getloadavg()[0], 2)


class Server:
    """`nibble serve` with the bundled model on a free port."""

    def __init__(self, nibble, *options):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen([nibble, "serve", MODEL, "--port", "0", "--dev-endpoints", *options],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log)
        self.port = None
        until = time.monotonic() + 120
        while self.port is None:
            with open(self.log.name, encoding="utf-8") as f:
                text = f.read()
            match = re.search(r"listening on http://127\.0\.0\.1:(\d+)", text)
            if match:
                self.port = int(match.group(1))
            elif self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit("the server did not start:\n" + text)
            else:
                time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def ask(self, path, data=None, method=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method,
                                         data=None if data is None else json.dumps(data).encode(),
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.read().decode()

    def metric(self, name, label=""):
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.ask("/metrics").split("\n")
                   if line.startswith((name + "{", name + " ")) and label in line)

    def proc(self, name, key):
        with open(f"/proc/{self.process.pid}/{name}", encoding="ascii") as f:
            for line in f:
                if line.startswith(key + ":"):
                    return int(line.split()[1])
        raise KeyError(key)

    def resident(self):
        """KiB."""
        return self.proc("status", "VmRSS")

    def cpu_s(self, loop=False):
        """CPU time of the process, or only of the thread that serves connections."""
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/stat" if loop else f"/proc/{pid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bench(nibble, *options):
    """The result of `nibble bench ...` as a dictionary."""
    with tempfile.TemporaryDirectory() as folder:
        command = [nibble, "bench", *options, "--quiet", "--save-result", "--result-dir", folder,
                   "--result-filename", "r.json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
        with open(os.path.join(folder, "r.json"), encoding="utf-8") as f:
            return json.load(f)


def median(values):
    return statistics.median(values)


def spread(values):
    """Largest distance from the median, relative to it."""
    m = median(values)
    return max(abs(v - m) for v in values) / m if m else 0.0


def save(name, nibble, what, figures):
    """Writes bench/results/<name>.json and prints its path."""
    os.makedirs(RESULTS, exist_ok=True)
    path = os.path.join(RESULTS, name + ".json")
    doc = {"what": what, "machine": machine(nibble), "date": time.strftime("%Y-%m-%d"), **figures}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(doc, f, indent=1)
        f.write("\n")
    print(f"\n{doc['machine']}\nwritten to {os.path.relpath(path, SOURCE)}")
