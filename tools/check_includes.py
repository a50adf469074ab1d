#!/usr/bin/env python3
"""check_includes.py - who may include whom, use whose names, and call what.

The tables below are the architecture; this file enforces them, and ARCHITECTURE.md shows them (--write
brings its copy up to date).  A name of ours that a header declares counts as an include of that header,
however it reached the file: through another header, or by a declaration of the file's own.
"""
import os
import re

import tree

# Folder -> folders whose headers it may include (its own and nibble/status.h always).  A name that ends with .h
# is one header.
MAY = {
    "base": set(),
    "os": {"base"},
    "num": {"base"},
    "kernel": {"base", "num"},
    "kernel/x86": {"kernel", "base", "num"},
    "kernel/arm": {"kernel", "base", "num"},
    "kernel/cuda": {"kernel", "base", "num", "kernel/cuda/api"},
    "kernel/cuda/api": {"kernel", "base", "num"},
    "dev": {"base", "os", "kernel/cuda/api"},
    "dev/cuda": {"dev", "base", "os", "kernel/cuda", "kernel/cuda/api"},
    "comm": {"base", "os"},
    "kv": {"base"},
    "load": {"base", "os", "num"},
    "text": {"base"},
    "parse": {"base"},
    "grammar": {"base", "load/json.h", "nibble/grammar.h"},
    "sample": {"base", "kernel", "kernel/cuda/api"},
    "model": {"base", "num", "kernel", "kernel/cuda/api", "dev", "comm", "load", "kv/kv_pool.h"},
    "sched": {"base", "kv"},
    "engine": {"base", "os", "num", "kernel", "kernel/cuda/api", "dev", "comm", "kv", "load", "text", "parse", "sample", "grammar",
               "model", "sched", "timing", "public"},
    "capacity": {"base", "os", "num", "kernel", "load", "model", "kv", "sched", "public"},
    "serve": {"base", "os", "public"},
    "hub": {"base", "os", "load"},
    "quality": {"base", "num", "load", "public"},
    "calibrate": {"base", "num", "kernel", "load", "public", "quality"},
    "convert": {"base", "os", "num", "kernel", "load", "text", "model/config.h", "model/config_quant.h", "model/weight_form.h",
                "public"},
    "timing": {"base", "os", "num", "kernel", "kernel/cuda/api", "dev", "public"},
    "report": {"base"},
    "public": set(),
    "apps": {"public", "serve", "quality", "calibrate", "convert", "timing", "report", "capacity", "hub", "base/arena.h", "base/attr.h", "base/status.h", "base/str.h",
             "kv/kv_cache.h", "load/hub.h", "load/kv_calib.h", "model/config.h", "model/config_quant.h", "num/record.h"},
    "examples": {"public"},
}
EVERYWHERE = "nibble/status.h"
ANYTHING = {"tests", "bench", "lab", "train", "tools"}

LIBC = {h + ".h" for h in """assert complex ctype errno fenv float inttypes iso646 limits locale math
    setjmp signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string
    tgmath threads time uchar wchar wctype""".split()}
# Standard headers that stand for something only src/os provides.
LIBC_OS_ONLY = {"threads.h", "signal.h", "setjmp.h"}
NO_TIME = {"base", "num", "kernel", "kernel/x86", "kernel/arm", "kernel/cuda", "kv", "sched"}

POSIX_FOLDERS = {"os", "serve", "hub", "apps", "examples", "dev/cuda"}
# What it is, pattern of its headers, folders that may include them.
OWNED = [
    ("intrinsics", r"(imm|x86|[a-z]mm|nm|wmm|avx\w*)intrin\.h$", {"kernel/x86"}),
    ("intrinsics", r"arm_\w+\.h$", {"kernel/arm"}),
    ("cpuid", r"cpuid\.h$", {"os"}),
    ("jansson", r"jansson\.h$", {"load", "hub", "text", "parse", "grammar", "engine", "serve", "quality", "capacity", "convert", "apps"}),
    ("PCRE2", r"pcre2\.h$", {"text", "load"}),
    ("utf8proc", r"utf8proc\.h$", {"text"}),
    ("libedit", r"(histedit\.h|editline/.*)$", {"apps"}),
    ("OpenSSL", r"openssl/", {"kv", "comm", "model", "engine", "serve", "hub"}),
    ("libcurl", r"curl/", {"hub"}),
    ("libevent", r"event2/", {"serve", "apps"}),
    ("libyaml", r"yaml\.h$", {"apps"}),
    ("CUDA", r"(cuda|cublas|nccl)", {"kernel/cuda", "dev/cuda"}),
    ("dlopen", r"dlfcn\.h$", {"os", "kernel/cuda"}),
    ("C++'s library", r"(chrono|mutex|tuple|utility)$", set()), # the emulation of CUDA, in tests, has it
    ("mmap", r"sys/mman\.h$", {"kernel/cuda", "dev/cuda", "os"}),
    ("cmocka", r"cmocka\.h$", set()),
]

# Calls that a folder must not make: (pattern, folders that may, why).
ALLOC = r"\b(malloc|calloc|realloc|aligned_alloc|free)\s*\("
NO_ALLOC = {"num", "kernel", "kernel/x86", "kernel/arm"}
CALLS = [
    (r"\bgetenv\s*\(", {"os", "apps"}, "nb_os_env reads the environment"),
    (r"\b(exit|_Exit|quick_exit|abort)\s*\(", {"apps"}, "errors are values below apps"),
    (r"\bsystem\s*\(", set(), "nothing starts a shell"),
    (r"\bsetlocale\s*\(", {"apps"}, "the locale is the caller's"),
    (ALLOC, set(MAY) - NO_ALLOC, "allocates nothing"),
    (r"\bstrcmp\s*\([^;]*->name\b", set(MAY) - {"model", "dev", "dev/cuda"},
     "a row of a table says what it can do; its name is for people"),
]

PANIC = "src/base/status.c" # nb_panic: a broken invariant, never an input

INCLUDE = re.compile(r'^[ \t]*#[ \t]*(include\w*|import)[ \t]+(<[^>\n]+>|"[^"\n]+"|[^\n]+)', re.M)
OURS = re.compile(r"\b(?:nb|NB)_\w+")
DECLARED = re.compile(r"(\w+)\s*\((?!\s*\*)|\(\s*\*\s*(\w+)\s*\)|(\w+)\s*(?:\[[^\]]*\]\s*)*[;,=]")
# A statement at file scope that declares a function or a variable of another file.
FOREIGN = re.compile(r"extern\b|(?!static\b|typedef\b)[A-Za-z_][\w\s*&]*?[\s*&]\w+\s*\([^=]*\)[^=()]*$")
PAGE, BEGIN, END = "ARCHITECTURE.md", "<!-- includes: tools/check_includes.py --write -->\n", "<!-- end -->\n"


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


def may_see(me, header):
    """Whether files of the folder `me` may include the header, a path."""
    name = header.partition("/")[2] # as it is written in an #include
    return folder_of(header) in MAY[me] | {me} or name in MAY[me] | {EVERYWHERE}


def file_scope(code):
    """The code less the insides of functions, enums and initialisers."""
    out, last = [], 0
    for _, start, end in tree.blocks(code):
        out += [code[last:start + 1], tree.blank(code[start + 1:end])]
        last = end
    return "".join(out) + code[last:]


def declared_in(code):
    """The names of ours that a header gives those who include it; `code` without comments."""
    names = re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", code, re.M)
    code = tree.without_directives(code)
    for constants in re.findall(r"\benum\b[^{;()]*\{([^}]*)\}", code):
        names += re.findall(r"(?:^|,)\s*(\w+)", constants)
    names += [name for groups in DECLARED.findall(file_scope(code)) for name in groups]
    return {name for name in names if OURS.fullmatch(name)}


def check_names(report, declared, path, code, me):
    """Names that the folder could only have by an include that the table forbids."""
    seen = declared_in(code)
    for match in OURS.finditer(code):
        name = match.group(0)
        headers = [h for h in declared.get(name, ()) if not h.endswith(".cuh") or "cuda" in me]
        if headers and name not in seen and not any(may_see(me, h) for h in headers):
            seen.add(name)
            report.bad(path, code.count("\n", 0, match.start()) + 1,
                       f"{me} must not use {name} of {sorted(headers)[0]}, which it may not include")


def check_declarations(report, path, code):
    """A source declares nothing of another file: headers do."""
    code = tree.without_directives(code)
    outside = re.sub(r'\bextern\s*""\s*\{', lambda m: tree.blank(m.group(0)), file_scope(code))
    starts = {m.start() for m in re.finditer(r"[^;{}\s][^;{}]*(?=;)", outside) if FOREIGN.match(m.group(0))}
    starts |= {m.start() for m in re.finditer(r'\bextern\b(?!\s*"|[^;]*\b__shared__\b)', code)}
    for start in sorted(starts):
        what = " ".join(code[start:code.index(";", start)].split())
        report.bad(path, code.count("\n", 0, start) + 1, f"declared here: {what}; include the header that declares it")


def check_own(report, known, path, line, name, me):
    target = resolve(known, path, name)
    if target is None:
        report.bad(path, line, f'"{name}" does not exist (paths are relative to src/ or include/)')
        return
    if not may_see(me, target):
        allowed = ", ".join(sorted(MAY[me])) or "nothing of ours"
        report.bad(path, line, f'{me} must not include "{name}" of {folder_of(target)} (may include: {allowed})')


def check_system(report, path, line, name, me):
    if name in LIBC:
        if name in LIBC_OS_ONLY and me not in POSIX_FOLDERS:
            report.bad(path, line, f"<{name}> belongs to src/os")
        if name == "time.h" and me in NO_TIME:
            report.bad(path, line, f"<time.h> in {me}: time is an argument")
        return
    for _, pattern, folders in OWNED:
        if re.match(pattern, name):
            if me not in folders:
                where = ", ".join(sorted(folders)) or "tests"
                report.bad(path, line, f"<{name}> may be included in {where} only")
            elif path.endswith(".h") and "cuda" in name and "cuda" not in me:
                report.bad(path, line, f"<{name}> in a header outside the CUDA folders")
            return
    if me not in POSIX_FOLDERS:
        report.bad(path, line, f"<{name}> is not standard C: POSIX is for src/os and apps")


def check_file(report, root, known, declared, path, me):
    text = tree.read(root, path)
    if text is None:
        return # check_text reports it
    for match in INCLUDE.finditer(tree.strip_c(text, strings=False)):
        line = text.count("\n", 0, match.start(2)) + 1
        kind, name = match.group(2)[0], match.group(2)[1:-1]
        if match.group(1) != "include" or kind not in '<"':
            report.bad(path, line, f"#{match.group(1)} {match.group(2)}: an #include names its header")
        elif name == "nb_config.h":
            continue
        elif kind == '"' or name.startswith("nibble/"):
            check_own(report, known, path, line, name, me)
        else:
            check_system(report, path, line, name, me)
    code = tree.strip_c(text)
    check_names(report, declared, path, code, me)
    if not path.endswith((".h", ".cuh")):
        check_declarations(report, path, code)
    for pattern, folders, why in CALLS:
        if me in folders or (path == PANIC and "abort" in pattern):
            continue
        for match in re.finditer(pattern, code):
            line = code.count("\n", 0, match.start()) + 1
            report.bad(path, line, f"{match.group(0).rstrip('( ')}() in {me}: {why}")


def table():
    """The rows of ARCHITECTURE.md: what each folder may include of ours, of libraries, and what it must not do."""
    rows = ["| folder | may include | libraries | never |", "|---|---|---|---|"]
    for me, own in MAY.items():
        libraries = [what for what, _, folders in OWNED if me in folders]
        if me in POSIX_FOLDERS:
            libraries.insert(0, "POSIX")
        never = [what for what, folders in (("malloc", NO_ALLOC), ("the clock", NO_TIME)) if me in folders]
        own = [f"`{name}`" if name.endswith(".h") else name for name in sorted(own)]
        rows.append(f"| {me} | {', '.join(own)} | {', '.join(dict.fromkeys(libraries))} | {', '.join(never)} |")
    return re.sub(r"\|  +\|", "| |", "\n".join(rows).replace("|  |", "| |")) + "\n"


def check_page(report, root, write):
    """ARCHITECTURE.md shows the tables above."""
    text = tree.read(root, PAGE) if os.path.isfile(os.path.join(root, PAGE)) else None
    if text is None:
        return
    before, begin, rest = text.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not begin or not end:
        report.bad(PAGE, 0, f"the lines {BEGIN.strip()} and {END.strip()} are missing")
    elif write:
        with open(os.path.join(root, PAGE), "w", encoding="utf-8") as f:
            f.write(before + begin + table() + end + after)
    elif old != table():
        report.bad(PAGE, before.count("\n") + 2, "not the table of tools/check_includes.py; run it with --write")


def main():
    args = tree.arguments(__doc__, (["--write"], {"action": "store_true", "help": f"write the table into {PAGE}"}))
    report = tree.Report("check_includes")
    paths = [p for p in tree.files(args.root) if p.endswith(tree.C_SUFFIXES)]
    known, declared, mine = set(paths), {}, []
    for path in paths:
        me = folder_of(path)
        if me in ANYTHING:
            continue
        report.n_seen += 1
        if me not in MAY:
            report.bad(path, 0, "this folder has no row in the table of tools/check_includes.py")
            continue
        mine.append((path, me))
        if path.endswith((".h", ".cuh")):
            for name in declared_in(tree.strip_c(tree.read(args.root, path) or "")):
                declared.setdefault(name, set()).add(path)
    for path, me in mine:
        check_file(report, args.root, known, declared, path, me)
    check_page(report, args.root, args.write)
    report.close()


main()
