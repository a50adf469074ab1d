#!/usr/bin/env python3
"""check_text.py - what must not stand in a source or a document.

Blanks at line ends, tabs, CRLF, characters that cannot be seen, paths of somebody's machine, debts
without an issue number, links to files that do not exist, #ifdef where #if is meant.
"""
import os
import re

import tree

SUFFIXES = tree.C_SUFFIXES + (".py", ".sh", ".cmake", ".in", ".md", ".yml", ".yaml", ".toml",
                               ".ts", ".mjs", ".css", ".html", ".svg")
NAMES = {"CMakeLists.txt", "CMakePresets.json", ".gitignore", ".clang-format", ".clang-tidy",
         ".editorconfig", "run", "pre-commit", "size_exceptions.txt"}
# Data: bytes are what they are.  Paths of a machine are looked for even there.
DATA = ("tests/data/", "tests/fuzz/corpus/", "models/", "train/data/", "bench/results/")
DATA_SUFFIXES = (".json", ".jsonl", ".txt", ".log", ".csv", ".jinja")

INVISIBLE = re.compile("[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u00a0\u00ad\u061c\u180e"
                       "\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")
MACHINE = re.compile(r"(?<![\w.$})~-])/(work|home|root|Users)/\w[\w.-]*")
DEBT = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))")
IFDEF = re.compile(r"^[ \t]*#[ \t]*(ifn?def[ \t]+NB_HAVE_\w*|if.*\bdefined[ (]+NB_HAVE_\w*)")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")


def is_ours(path):
    return os.path.basename(path) in NAMES or path.endswith(SUFFIXES)


def check_line(report, path, n, line):
    if line.endswith("\r"):
        report.bad(path, n, "CRLF line end")
        line = line[:-1]
    if line != line.rstrip(" \t"):
        report.bad(path, n, "blank at the end of the line")
    if "\t" in line:
        report.bad(path, n, "tab")
    hidden = INVISIBLE.search(line)
    if hidden:
        report.bad(path, n, f"invisible character U+{ord(hidden.group(0)):04X}")
    if DEBT.search(line) and not path.endswith("check_text.py"):
        report.bad(path, n, f"{DEBT.search(line).group(1)} without an issue number: (#N)")


def check_ours(report, root, path, text):
    lines = text.split("\n")
    for n, line in enumerate(lines, 1):
        check_line(report, path, n, line)
        if path.endswith(tree.C_SUFFIXES) and IFDEF.match(line):
            report.bad(path, n, "NB_HAVE_* is always defined: use #if")
    if text and not text.endswith("\n"):
        report.bad(path, len(lines), "no newline at the end of the file")
    if path.endswith(tree.C_SUFFIXES) and not text.startswith("/*"):
        report.bad(path, 1, "a source file starts with a comment that says what it is")
    if path.endswith(".md"):
        check_links(report, root, path, text)


def check_links(report, root, path, text):
    for match in LINK.finditer(re.sub(r"`[^`\n]*`", "", text)):
        target = match.group(1)
        if re.match(r"[a-z]+:", target):
            continue
        if not os.path.exists(os.path.join(root, os.path.dirname(path), target)):
            report.bad(path, 0, f"link to {target}, which does not exist")


def main():
    args = tree.arguments(__doc__)
    report = tree.Report("check_text")
    for path in tree.files(args.root):
        data = path.startswith(DATA)
        ours = is_ours(path) and not data
        if not ours and not path.endswith(DATA_SUFFIXES):
            continue
        if path.startswith("tests/fuzz/corpus/"):
            continue
        report.n_seen += 1
        text = tree.read(args.root, path)
        if text is None:
            if ours:
                report.bad(path, 0, "not UTF-8")
            continue
        for n, line in enumerate(text.split("\n"), 1):
            match = MACHINE.search(line) if len(line) < 100000 else None
            if match:
                report.bad(path, n, f"path of one machine: {match.group(0)}")
        if ours:
            check_ours(report, args.root, path, text)
    report.close()


main()
