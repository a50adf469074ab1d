#!/usr/bin/env python3
"""check_sizes.py - caps on files and functions.

File: 600 lines wished, 1,500 at most; header: 250 at most; function: 60 wished, 120 at most.  What
is larger is listed in tools/size_exceptions.txt with a reason; no function may pass 300 lines.  No
file of the repository is larger than 16 MiB, the bundled models in all not larger than 48 MiB.
"""
import os
import re

import tree

FILE_WISH, FILE_CAP, HEADER_CAP = 600, 1500, 250
FUNC_WISH, FUNC_CAP, FUNC_NEVER = 60, 120, 300
BYTES_CAP, MODEL_CAP = 16 << 20, 48 << 20
CODE = tree.C_SUFFIXES + (".py", ".sh", ".cmake")
EXCEPTIONS = "tools/size_exceptions.txt"
# What may stand between a function's parameters and its body, besides macros.
AFTER = re.compile(r"(?:\s|\b(?:const|noexcept|override|final|[A-Z_]+)\b|->[\w:<>*&\s]+)*")
CALL = re.compile(r"(operator\W+|~?\w+)\s*$")
DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:[^\n]*\\\n)+", re.M)


def before_parentheses(text):
    """What stands before the last pair of parentheses, or None when the text does not end with one."""
    depth = 0
    for i in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[i], 0)
        if depth == 0:
            return text[:i] if text[-1] == ")" else None
    return None


def name_of(head):
    """The function that a block with this head is the body of, or None."""
    name = None
    while True:
        end = head.rfind(")") + 1 # AFTER has none
        head = before_parentheses(head[:end]) if end and AFTER.fullmatch(head, end) else None
        found = CALL.search(head or "")
        if not found:
            return name
        name, head = found.group(1).strip(), head[:found.start()]
        if not re.fullmatch(r"[A-Z_0-9]+|__attribute__", name):
            return name # else it may be an attribute, and the function's name stands before it


def functions(text):
    """Yields (name, first line, lines) of each function and each macro of several lines of a C file."""
    code = tree.strip_c(text)
    for match in DEFINE.finditer(code):
        yield match.group(1), code.count("\n", 0, match.start(1)) + 1, match.group(0).count("\n") + 1
    code = tree.without_directives(code)
    for head, start, end in tree.blocks(code):
        name = name_of(head)
        if name:
            yield name, code.count("\n", 0, start) + 1, code.count("\n", start, end) + 1


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
