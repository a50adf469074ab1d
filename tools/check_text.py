#!/usr/bin/env python3
"""check_text.py - what must not stand in a source or a document.

Blanks at line ends, tabs, CRLF, invisible characters, paths of somebody's machine, debts without an
issue number, links to files or headings that do not exist, names (nb_x, NB_X) in documents that no
source has, long lines of prose, two sentences on a line of a guide, a long README, #ifdef where #if is
meant.
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
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
OUR_NAME = re.compile(r"\b(?:nb|NB)_\w+")
PROSE_CHARS = 200 # of a line in Markdown, without link targets, tables and code
README_LINES = 150
GUIDES = ("README.md", "docs/", "deploy/") # one sentence per line, outside lists
NO_PARAGRAPH = re.compile(r"\||    |#|<!--|\s*([-*>]|\d+\.) ")
HEADING = re.compile(r"^#{1,6} +(.*?)[ #]*$", re.M)


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
        check_prose(report, path, text)


def anchors(text):
    """The names under which the headings of a Markdown text can be linked, by GitHub's rule."""
    seen = {}
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        n = seen.get(name, 0)
        seen[name] = n + 1
        yield f"{name}-{n}" if n else name


def check_links(report, root, path, text):
    for match in LINK.finditer(re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))):
        target, anchor = match.groups()
        if re.match(r"[a-z]+:", target):
            continue
        file = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if not os.path.exists(os.path.join(root, file)):
            report.bad(path, 0, f"link to {target}, which does not exist")
        elif anchor and file.endswith(".md") and anchor not in anchors(tree.read(root, file) or ""):
            report.bad(path, 0, f"link to {target}#{anchor}, but there is no such heading")


def check_prose(report, path, text):
    blank = FENCE.sub(lambda m: "\n" * m.group(0).count("\n"), text)
    for n, line in enumerate(blank.split("\n"), 1):
        chars = 0 if line.startswith(("|", "    ")) else len(re.sub(r"\]\([^)]*\)", "]", line))
        if chars > PROSE_CHARS:
            report.bad(path, n, f"a line of {chars} characters: one sentence per line, at most {PROSE_CHARS}")
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "X", line))
        if path.startswith(GUIDES) and not NO_PARAGRAPH.match(line) and re.search(r"[.!?] (?=[A-Z])", plain):
            report.bad(path, n, "two sentences on a line")
    if path == "README.md" and text.count("\n") > README_LINES:
        report.bad(path, README_LINES, f"{text.count(chr(10))} lines, at most {README_LINES}: it is for newcomers")


def check_names(report, documents, names):
    """A name in a document, or the beginning of one, is in a source."""
    for path, text in documents.items():
        for name in sorted(set(OUR_NAME.findall(FENCE.sub("", text))) - names):
            if not any(n.startswith(name) for n in names):
                report.bad(path, 0, f"{name} is in no source")


def main():
    args = tree.arguments(__doc__)
    report = tree.Report("check_text")
    names, documents = set(), {}
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
            if path.endswith(".md"):
                documents[path] = text
            else:
                names.update(OUR_NAME.findall(text))
    check_names(report, documents, names)
    report.close()


main()
