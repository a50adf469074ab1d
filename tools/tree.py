"""tree.py - what the check tools share: the list of files, C without comments, and reports.

Every check is called as  check_X.py [--root DIR] [arguments], prints one line `path:line: what` per
violation and one closing line, and exits with 0 (clean), 1 (violations) or 2 (cannot run).
"""
import argparse
import os
import re
import subprocess
import sys

C_SUFFIXES = (".c", ".h", ".cu", ".cuh", ".cpp")
SKIP_DIRS = {".git", "build", "__pycache__", ".cache"}


def arguments(doc, *extra):
    """Parses the command line: --root and the given (flags, keywords) pairs."""
    parser = argparse.ArgumentParser(description=doc.strip().splitlines()[0])
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--root", default=here, help="the tree to check (default: this one)")
    for flags, keywords in extra:
        parser.add_argument(*flags, **keywords)
    args = parser.parse_args()
    args.root = os.path.abspath(args.root)
    return args


def files(root):
    """Relative paths of all files that git tracks or would track, sorted; without git, all files."""
    try:
        out = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        top = subprocess.run(["git", "-C", root, "rev-parse", "--show-toplevel"], check=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        if os.path.realpath(os.fsdecode(top.strip())) == os.path.realpath(root):
            names = {os.fsdecode(n) for n in out.split(b"\0") if n}
            return sorted(n for n in names if os.path.isfile(os.path.join(root, n)))
    except (OSError, subprocess.CalledProcessError):
        pass
    found = []
    for folder, dirs, names in os.walk(root):
        dirs[:] = sorted(d for d in dirs if d not in SKIP_DIRS)
        found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return sorted(found)


def read(root, path):
    """The text of a file, or None when it is not UTF-8."""
    try:
        with open(os.path.join(root, path), encoding="utf-8", newline="") as f:
            return f.read()
    except UnicodeDecodeError:
        return None


_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def strip_c(text, strings=True):
    """C source with comments (and strings) blanked; line numbers stay."""
    def replace(match):
        token = match.group(0)
        if token[0] == "/":
            return blank(token)
        return token[0] + token[-1] if strings else token
    return _TOKEN.sub(replace, text)


_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
_SCOPE = re.compile(r'(?:\bnamespace\b[\w:\s]*|\bextern\s*"[^"\n]*"\s*|\b(?:struct|class|union)\b[^()=]*)$')


def blank(text):
    """The same text as blanks; line numbers stay."""
    return re.sub(r"[^\n]", " ", text)


def without_directives(code):
    """strip_c's code without preprocessor lines: their braces need not match."""
    return _DIRECTIVE.sub(lambda m: blank(m.group(0)), code)


def blocks(code):
    """Yields (head, open, close) of each {block} at file scope: what stands before it and the offsets of its
    braces.  A namespace, an extern "C" block and the body of a struct count as file scope, since they hold
    functions.  `code` comes from without_directives()."""
    last, start, depth = 0, 0, 0
    for match in re.finditer(r"[{};]", code):
        here = match.start()
        if depth: # inside a block
            depth += {"{": 1, "}": -1, ";": 0}[code[here]]
            if depth == 0:
                yield code[last:start], start, here
                last = here + 1
        elif code[here] == "{" and not _SCOPE.search(code[last:here]):
            start, depth = here, 1
        else:
            last = here + 1


def is_template(text):
    """A header that is included several times with other parameters: it has no include guard, and its
    opening comment says so with the words `included once`."""
    opening = text[:text.find("*/")]
    return ("included once" in re.sub(r"[\s*]+", " ", opening)
            and not re.search(r"^#ifndef (\w+)\n#define \1\b", text, re.M))


class Report:
    """Collects violations and says the closing line."""

    def __init__(self, name, unit="files"):
        self.name, self.unit, self.n_seen, self.n_bad = name, unit, 0, 0

    def bad(self, path, line, what):
        self.n_bad += 1
        print(f"{path}:{line}: {what}" if line else f"{path}: {what}")

    def close(self):
        print(f"{self.name}: {self.n_seen} {self.unit}, {self.n_bad} violations")
        sys.exit(1 if self.n_bad else 0)


def fatal(what):
    print(what, file=sys.stderr)
    sys.exit(2)
