#!/usr/bin/env python3
"""check_isa.py BUILD - no instruction beyond the baseline outside the file of its instruction set.

Disassembles every object of libnibble.a and of the command.  <op>_avx2.c may use VEX and ymm; 512-bit
registers, opmasks and registers 16 to 31 belong to _avx512.c and _amx.c, tiles to _amx.c.  Everything
else must run on any x86-64.  On other machines there is nothing to check yet (exit code 77).
"""
import concurrent.futures
import os
import re
import subprocess

import tree

MARKS = [ # level, what gives it away
    (3, "AMX", re.compile(r"%tmm\d|\b(ldtilecfg|sttilecfg|tilerelease|tilezero|tdp\w+)\b")),
    (2, "AVX-512", re.compile(r"%zmm|%k[0-7]\b|%[xy]mm(1[6-9]|2\d|3[01])\b|\{%k|\{1to\d+\}")),
    (1, "AVX or newer", re.compile(r"%ymm|^v(?!er[rw]\b)[a-z0-9]+\s.*%xmm")),
    (1, "BMI2 or FMA era", re.compile(r"^(shlx|shrx|sarx|rorx|mulx|pdep|pext|bzhi|andn|lzcnt|popcnt|"
                                      r"movbe|vzeroupper|vzeroall)[lqw]?\b")),
]
LEVEL = {"avx2": 1, "avx512": 2, "amx": 3}


def level_of(name):
    match = re.search(r"_(avx2|avx512|amx)\.c\.o(bj)?$", name)
    return LEVEL[match.group(1)] if match else 0


def disassemble(path):
    out = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-w", path], check=True, text=True,
                         stdout=subprocess.PIPE, errors="replace").stdout
    allowed, where, found, n = level_of(path), "?", [], 0
    for line in out.splitlines():
        if line.endswith(">:"):
            where = line.split("<")[-1][:-2]
            continue
        _, tab, code = line.partition("\t")
        if not tab:
            continue
        n += 1
        code = code.strip()
        for level, what, pattern in MARKS:
            if level > allowed and pattern.search(code):
                found.append((where, what, code))
                break
    return path, n, found


def main():
    args = tree.arguments(__doc__, (["build"], {"help": "build folder"}))
    if os.uname().machine not in ("x86_64", "AMD64"):
        print(f"check_isa: skipped: no rules for {os.uname().machine}")
        raise SystemExit(77)
    objects = []
    for folder, _, names in os.walk(os.path.join(args.build, "CMakeFiles")):
        if re.search(r"/CMakeFiles/(nb_\w+|nibble)\.dir(/|$)", folder + "/"):
            objects += [os.path.join(folder, n) for n in names if n.endswith(".o")]
    if not objects:
        tree.fatal(f"{args.build} holds no objects: build first")
    report = tree.Report("check_isa", "objects")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, n, found in pool.map(disassemble, sorted(objects)):
            report.n_seen += 1
            short = os.path.relpath(path, os.path.join(args.build, "CMakeFiles"))
            for where, what, code in found[:3]:
                report.bad(short, 0, f"{what} in {where}: {code}")
            if len(found) > 3:
                report.bad(short, 0, f"and {len(found) - 3} more")
    report.close()


main()
