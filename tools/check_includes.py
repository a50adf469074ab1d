#!/usr/bin/env python3
"""check_includes.py - who may include whom, and who may call what.

The tables below are the architecture: ARCHITECTURE.md explains them, this file enforces them.
"""
import os
import re

import tree

# Folder -> folders whose headers it may include (its own always).  A name with a slash is one header.
MAY = {
    "base": {"nibble/status.h"},
    "os": {"base"},
    "num": {"base"},
    "kernel": {"base", "num"},
    "kernel/x86": {"kernel", "base", "num"},
    "kernel/arm": {"kernel", "base", "num"},
    "kernel/cuda": {"kernel", "base", "num", "kernel/cuda/api"},
    "kernel/cuda/api": {"kernel", "base", "num"},
    "dev": {"base", "os", "kernel/cuda/api"},
    "dev/cuda": {"dev", "base", "os", "kernel/cuda", "kernel/cuda/api"},
    "kv": {"base"},
    "load": {"base", "os", "num"},
    "text": {"base"},
    "sample": {"base", "kernel", "kernel/cuda/api"},
    "model": {"base", "num", "kernel", "kernel/cuda/api", "dev", "load", "kv/kv_view.h"},
    "sched": {"base", "kv"},
    "engine": {"base", "os", "num", "kernel", "kernel/cuda/api", "dev", "kv", "load", "text", "sample", "model",
               "sched", "public"},
    "capacity": {"base", "os", "num", "kernel", "load", "model", "kv", "sched", "public"},
    "serve": {"base", "os", "public"},
    "eval": {"base", "os", "num", "kernel", "kernel/cuda/api", "dev", "load", "public"},
    "public": set(),
    "apps": {"public", "serve", "eval", "capacity"},
    "examples": {"public"},
}
ANYTHING = {"tests", "bench", "lab", "train", "tools"}

LIBC = {h + ".h" for h in """assert complex ctype errno fenv float inttypes iso646 limits locale math
    setjmp signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string
    tgmath threads time uchar wchar wctype""".split()}
# Standard headers that stand for something only src/os provides.
LIBC_OS_ONLY = {"threads.h", "signal.h", "setjmp.h"}
NO_TIME = {"base", "num", "kernel", "kernel/x86", "kernel/arm", "kernel/cuda", "kv", "sched"}

POSIX_FOLDERS = {"os", "serve", "apps", "examples", "dev/cuda"}
# Pattern of a header -> folders that may include it.
OWNED = [
    (r"(imm|x86|[a-z]mm|nm|wmm|avx\w*)intrin\.h$", {"kernel/x86"}),
    (r"arm_\w+\.h$", {"kernel/arm"}),
    (r"cpuid\.h$", {"os"}),
    (r"jansson\.h$", {"load", "text", "engine", "serve", "eval", "capacity", "apps"}),
    (r"(pcre2|utf8proc)\.h$", {"text"}),
    (r"(histedit\.h|editline/.*)$", {"apps"}),
    (r"openssl/", {"kv", "model", "engine", "serve"}),
    (r"event2/", {"serve", "apps"}),
    (r"yaml\.h$", {"apps"}),
    (r"(cuda|cublas|nccl)", {"kernel/cuda", "dev/cuda"}),
    (r"dlfcn\.h$", {"os", "kernel/cuda"}),
    (r"(chrono|mutex|tuple|utility|sys/mman\.h)$", {"kernel/cuda", "dev/cuda", "os"}), # emulation
    (r"cmocka\.h$", set()),
]

# Calls that a folder must not make: (pattern, folders that may, why).
ALLOC = r"\b(malloc|calloc|realloc|aligned_alloc|free)\s*\("
CALLS = [
    (r"\bgetenv\s*\(", {"apps"}, "only apps read the environment"),
    (r"\b(exit|_Exit|quick_exit|abort)\s*\(", {"apps"}, "errors are values below apps"),
    (r"\bsystem\s*\(", set(), "nothing starts a shell"),
    (r"\bsetlocale\s*\(", {"apps"}, "the locale is the caller's"),
    (ALLOC, set(MAY) - {"num", "kernel", "kernel/x86", "kernel/arm"}, "allocates nothing"),
]

PANIC = "src/base/status.c" # nb_panic: a broken invariant, never an input

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(<[^>\n]+>|"[^"\n]+")', re.M)


def folder_of(path):
    """The row of the table that a path belongs to, or None."""
    parts = path.split("/")
    if parts[0] == "include":
        return "public"
    if parts[0] == "src" and len(parts) > 2:
        for n in (3, 2):
            if len(parts) > n + 1 and "/".join(parts[1:1 + n]) in MAY:
                return "/".join(parts[1:1 + n])
        return parts[1]
    return parts[0] if len(parts) > 1 else None


def resolve(known, path, name):
    """The path of the header that "name" means in the file `path`, or None."""
    near = os.path.normpath(os.path.join(os.path.dirname(path), name))
    for candidate in (near, "src/" + name, "include/" + name, "tests/" + name):
        if candidate in known:
            return candidate
    return None


def check_own(report, known, path, line, name, me):
    target = resolve(known, path, name)
    if target is None:
        report.bad(path, line, f'"{name}" does not exist (paths are relative to src/ or include/)')
        return
    other = folder_of(target)
    if other == me or other in MAY[me] or name in MAY[me]:
        return
    allowed = ", ".join(sorted(MAY[me])) or "nothing of ours"
    report.bad(path, line, f'{me} must not include "{name}" of {other} (may include: {allowed})')


def check_system(report, path, line, name, me):
    if name in LIBC:
        if name in LIBC_OS_ONLY and me not in POSIX_FOLDERS:
            report.bad(path, line, f"<{name}> belongs to src/os")
        if name == "time.h" and me in NO_TIME:
            report.bad(path, line, f"<time.h> in {me}: time is an argument")
        return
    for pattern, folders in OWNED:
        if re.match(pattern, name):
            if me not in folders:
                where = ", ".join(sorted(folders)) or "tests"
                report.bad(path, line, f"<{name}> may be included in {where} only")
            elif path.endswith(".h") and "cuda" in name and "cuda" not in me:
                report.bad(path, line, f"<{name}> in a header outside the CUDA folders")
            return
    if me not in POSIX_FOLDERS:
        report.bad(path, line, f"<{name}> is not standard C: POSIX is for src/os and apps")


def check_file(report, root, known, path, me):
    text = tree.read(root, path)
    if text is None:
        return # check_text reports it
    for match in INCLUDE.finditer(tree.strip_c(text, strings=False)):
        line = text.count("\n", 0, match.start(1)) + 1
        kind, name = match.group(1)[0], match.group(1)[1:-1]
        if name == "nb_config.h":
            continue
        if kind == '"' or name.startswith("nibble/"):
            check_own(report, known, path, line, name, me)
        else:
            check_system(report, path, line, name, me)
    code = tree.strip_c(text)
    for pattern, folders, why in CALLS:
        if me in folders or (path == PANIC and "abort" in pattern):
            continue
        for match in re.finditer(pattern, code):
            line = code.count("\n", 0, match.start()) + 1
            report.bad(path, line, f"{match.group(0).rstrip('( ')}() in {me}: {why}")


def main():
    args = tree.arguments(__doc__)
    report = tree.Report("check_includes")
    paths = [p for p in tree.files(args.root) if p.endswith(tree.C_SUFFIXES)]
    known = set(paths)
    for path in paths:
        me = folder_of(path)
        if me in ANYTHING:
            continue
        report.n_seen += 1
        if me not in MAY:
            report.bad(path, 0, "this folder has no row in the table of tools/check_includes.py")
            continue
        check_file(report, args.root, known, path, me)
    report.close()


main()
