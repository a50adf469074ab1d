#!/usr/bin/env python3
"""check_sizes.py - caps on files and functions.

File: 600 lines wished, 1,500 at most; header: 250 at most; function: 60 wished, 120 at most.  What
is larger is listed in tools/size_exceptions.txt with a reason; no function may pass 300 lines.  No
file of the repository is larger than 16 MiB, the bundled model in all not larger than 32 MiB.
"""
import os
import re

import tree

FILE_WISH, FILE_CAP, HEADER_CAP = 600, 1500, 250
FUNC_WISH, FUNC_CAP, FUNC_NEVER = 60, 120, 300
BYTES_CAP, MODEL_CAP = 16 << 20, 32 << 20
CODE = tree.C_SUFFIXES + (".py", ".sh", ".cmake")
EXCEPTIONS = "tools/size_exceptions.txt"
NAME = re.compile(r"(\w+)\s*\([^;{}]*\)\s*(?:\b[A-Z_]+\b(?:\([^()]*\))?\s*)*$")


def functions(text):
    """Yields (name, line of the brace, lines) of each function of a C file."""
    code = tree.strip_c(text)
    # A preprocessor line holds no braces that count (macros may be unbalanced).
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)),
                  code, flags=re.M)
    depth, start, name, last = 0, 0, None, 0
    for match in re.finditer(r"[{}]", code):
        if match.group(0) == "{":
            if depth == 0:
                head = NAME.search(code[last:match.start()])
                name = head.group(1) if head else None
                start = code.count("\n", 0, match.start()) + 1
            depth += 1
        else:
            depth = max(0, depth - 1)
            if depth == 0:
                last = match.end()
                if name:
                    yield name, start, code.count("\n", 0, match.end()) + 2 - start
                name = None


def exceptions(root, report):
    """{path or path:function: line of the list}; each row is `what` and a reason."""
    table = {}
    if not os.path.isfile(os.path.join(root, EXCEPTIONS)):
        return table
    for n, row in enumerate((tree.read(root, EXCEPTIONS) or "").splitlines(), 1):
        if not row.strip() or row.startswith("#"):
            continue
        what, _, reason = row.partition(" ")
        if len(reason.split()) < 3:
            report.bad(EXCEPTIONS, n, f"{what}: a reason in words is missing")
        table[what] = n
    return table


def check_code(report, root, path, excepted, used, notes):
    text = tree.read(root, path)
    if text is None:
        return
    n = text.count("\n")
    cap = HEADER_CAP if path.endswith(".h") and not tree.is_template(text) else FILE_CAP
    if n > cap:
        if path in excepted:
            used.add(path)
        else:
            report.bad(path, 0, f"{n} lines, at most {cap} (or a row in {EXCEPTIONS})")
    elif n > FILE_WISH:
        notes.append(f"note: {path}: {n} lines, wished {FILE_WISH}")
    if not path.endswith(tree.C_SUFFIXES):
        return
    for name, line, n in functions(text):
        if n > FUNC_NEVER:
            report.bad(path, line, f"{name}: {n} lines; over {FUNC_NEVER} there is no exception")
        elif n > FUNC_CAP:
            key = f"{path}:{name}"
            if key in excepted:
                used.add(key)
            else:
                report.bad(path, line, f"{name}: {n} lines, at most {FUNC_CAP} "
                           f"(or a row in {EXCEPTIONS})")
        elif n > FUNC_WISH:
            notes.append(f"note: {path}:{line}: {name}: {n} lines, wished {FUNC_WISH}")


def main():
    args = tree.arguments(__doc__, (["--notes"], {"action": "store_true",
                                                  "help": "also list what is over the wished size"}))
    report = tree.Report("check_sizes")
    excepted, used, notes, model = exceptions(args.root, report), set(), [], 0
    for path in tree.files(args.root):
        report.n_seen += 1
        n_bytes = os.path.getsize(os.path.join(args.root, path))
        if n_bytes > BYTES_CAP:
            report.bad(path, 0, f"{n_bytes} bytes, at most {BYTES_CAP}")
        if path.startswith("models/"):
            model += n_bytes
        if path.endswith(CODE) and not path.startswith("lab/"):
            check_code(report, args.root, path, excepted, used, notes)
    if model > MODEL_CAP:
        report.bad("models/", 0, f"{model} bytes in all, at most {MODEL_CAP}")
    for what in sorted(set(excepted) - used):
        report.bad(EXCEPTIONS, excepted[what], f"{what} needs no exception (any more)")
    if args.notes:
        print("\n".join(notes))
    report.close()


main()
