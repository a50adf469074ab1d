#!/usr/bin/env python3
"""check_scripts.py - every shell script, Python file and JSON file of ours parses."""
import json
import os
import subprocess

import tree

JSON_DIRS = ("models/", "bench/", "docs/", "tools/")


def shell_of(text):
    first = text.split("\n", 1)[0]
    if not first.startswith("#!"):
        return None
    if "bash" in first:
        return "bash"
    return "sh" if first.rstrip().endswith("sh") else None


def problem(root, path):
    full = os.path.join(root, path)
    if path.endswith(".py"):
        try:
            compile(tree.read(root, path) or "", path, "exec")
        except (SyntaxError, ValueError) as e:
            return f"Python: {e}"
    elif path.endswith(".json"):
        if "/" in path and not path.startswith(JSON_DIRS):
            return None
        try:
            json.loads(tree.read(root, path) or "")
        except ValueError as e:
            return f"JSON: {e}"
    else:
        shell = shell_of(tree.read(root, path) or "") or ("bash" if path.endswith(".sh") else None)
        if shell:
            done = subprocess.run([shell, "-n", full], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False)
            if done.returncode:
                return f"{shell} -n: {done.stdout.strip()}"
    return None


def main():
    args = tree.arguments(__doc__)
    report = tree.Report("check_scripts")
    for path in tree.files(args.root):
        base = os.path.basename(path)
        if not (path.endswith((".py", ".json", ".sh")) or "." not in base):
            continue
        if os.path.getsize(os.path.join(args.root, path)) > 8 << 20:
            continue
        report.n_seen += 1
        what = problem(args.root, path)
        if what:
            report.bad(path, 0, what)
        executable = os.access(os.path.join(args.root, path), os.X_OK)
        if base in ("start.sh", "test.sh") and not executable:
            report.bad(path, 0, "not executable (chmod +x)")
    report.close()


main()
