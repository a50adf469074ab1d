"""doc_plan.py - what sources.py and plan_docs.py share: calls of `nibble plan`, Markdown cells, writing and checking pages."""
import argparse
import difflib
import json
import os
import subprocess
import sys

GIB = 1 << 30


class Plan:
    """Calls of `nibble plan --json`; each call runs once."""

    def __init__(self, nibble):
        self.nibble, self.done = nibble, {}

    def __call__(self, *args):
        if args not in self.done:
            out = subprocess.run([self.nibble, "plan", *args, "--json"], capture_output=True, text=True, check=False)
            if out.returncode:
                sys.exit(f"nibble plan {' '.join(args)}: {out.stderr.strip()}")
            self.done[args] = json.loads(out.stdout)
        return self.done[args]


def only(rows, **want):
    """The one row of a list that has these values."""
    found = [r for r in rows if all(r.get(k) == v for k, v in want.items())]
    if len(found) != 1:
        sys.exit(f"{len(found)} rows with {want}: expected 1")
    return found[0]


def result(root, name):
    """A recorded benchmark: bench/results/NAME.json."""
    with open(os.path.join(root, "bench", "results", name + ".json"), encoding="utf-8") as f:
        return json.load(f)


def users(plan, dtype, context):
    return only(only(plan["capacity"], dtype=dtype)["contexts"], context=context)["users"]


def cell(s):
    return str(s).replace("|", "\\|").replace("\n", " ")


def table(head, align, rows):
    """A Markdown table; align has one letter for each column: l or r."""
    lines = [head, ["--:" if a == "r" else "---" for a in align], *([cell(c) for c in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(doc, pages):
    """TOOL NIBBLE writes the pages, TOOL NIBBLE --check compares them; pages(root, nibble, old) gives {path: text}, old reads a page."""
    args = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("nibble")
    args.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    args.add_argument("--check", action="store_true")
    a = args.parse_args()

    def old(path):
        with open(os.path.join(a.root, path), encoding="utf-8") as f:
            return f.read()

    stale = []
    for path, text in pages(a.root, a.nibble, old).items():
        if not a.check:
            with open(os.path.join(a.root, path), "w", encoding="utf-8") as f:
                f.write(text)
        elif old(path) != text:
            stale.append(path)
            sys.stdout.writelines(difflib.unified_diff(old(path).splitlines(True), text.splitlines(True), path, "computed", n=0))
    if stale:
        sys.exit(f"{', '.join(stale)}: not what is computed; run tools/{os.path.basename(sys.argv[0])} NIBBLE and read the difference")
