#!/usr/bin/env python3
"""check_headers.py - every header compiles alone, and twice.

Uses $CC (default cc).  A header of src/kernel/x86 is compiled with all x86 flags; headers of another
architecture or of CUDA, templates (tree.is_template) and the parts of tests/emu/immintrin.h, which
its test compiles, are left out.
"""
import concurrent.futures
import os
import platform
import shlex
import subprocess
import tempfile

import tree

FLAGS = ("-std=c17 -fsyntax-only -Wall -Wextra -Wshadow -Wundef -Wconversion -Wstrict-prototypes "
         "-Wmissing-prototypes -Wno-unused-function -Werror -ffp-contract=off").split()
X86 = ("-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512bf16 -mavx512vbmi -mavx512vbmi2 -mavx2 -mfma -mf16c -mamx-tile "
       "-mamx-int8 -mamx-bf16").split()
CONFIG = """#define NB_VERSION "0"
#define NB_BUILD_TYPE ""
#define NB_COMPILER ""
""" + "".join(f"#define NB_HAVE_{x} 0\n" for x in "AVX2 AVXVNNI AVX512 AVX512BF16 AMX NEON CUDA LIBEDIT".split()) + "#define NB_EMULATED 0\n"


def compile_one(job):
    cc, root, gen, path = job
    cmd = shlex.split(cc) + FLAGS + [f"-I{root}/{d}" for d in ("include", "src", "tests")] + [f"-I{gen}"]
    if "/kernel/x86/" in path:
        cmd += X86
    if not path.startswith(("src/", "include/")) or path.startswith("src/os/"):
        cmd.append("-D_POSIX_C_SOURCE=200809L")
    full = os.path.join(root, path)
    source = f'#include "{full}"\n#include "{full}"\nextern int nb_not_empty;\n'
    done = subprocess.run(cmd + ["-x", "c", "-"], input=source, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    return path, done.returncode, done.stdout


def main():
    args = tree.arguments(__doc__)
    report = tree.Report("check_headers")
    cc = os.environ.get("CC", "cc")
    other = {"x86_64": "/kernel/arm/", "aarch64": "/kernel/x86/"}.get(platform.machine(), "/kernel/x86/")
    with tempfile.TemporaryDirectory() as gen:
        with open(os.path.join(gen, "nb_config.h"), "w", encoding="utf-8") as f:
            f.write(CONFIG)
        jobs = [(cc, args.root, gen, p) for p in tree.files(args.root)
                if p.endswith(".h") and p.split("/")[0] in ("src", "include", "tests", "bench", "apps")
                and other not in p and "/cuda/" not in p
                and not (p.startswith("tests/emu/") and not p.endswith("_test.h"))
                and not tree.is_template(tree.read(args.root, p) or "")]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for path, rc, out in pool.map(compile_one, jobs):
                report.n_seen += 1
                if rc:
                    report.bad(path, 0, "does not compile alone:\n" + "\n".join(out.splitlines()[:8]))
    report.close()


main()
