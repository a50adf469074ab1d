#!/usr/bin/env python3
"""check_isa.py BUILD - no instruction beyond the baseline outside the file of its instruction set.

Disassembles every object of libnibble_core.a and of the command.  <op>_avx2.c may use VEX and ymm; VEX-encoded VNNI
belongs to _avxvnni.c; 512-bit
registers, opmasks and registers 16 to 31 belong to _avx512.c and above; BF16, VBMI and VBMI2 to
_avx512bf16.c and _amx.c; tiles to _amx.c; what no level has (FP16, IFMA, BITALG, ...) to none.  Everything else must run on any x86-64.
In a build that emulates (NB_EMULATE) all of these are for AVX2.  On other machines there is
nothing to check yet (exit code 77).
"""
import concurrent.futures
import os
import re
import subprocess

import tree

MARKS = [ # level, what gives it away; the first that is beyond the file's level is reported
    (9, "FP16, in no level", re.compile(r"^(?!vcvtps2ph\s)v\w+(ph|sh)[xyz]?\s|^vcvtt?(ph|sh)2(?!ps\s)\w+\s|^vmovw\s")),
    (9, "in no level", re.compile(r"^v?(pmadd52[lh]uq|popcnt[bwdq]|ppopcnt[bwdq]|plzcnt[dq]|pconflict[dq]|"
                                  r"pshufbitqmb|p2intersect[dq]|gf2p8\w+|aes\w+|pclmulqdq|exp2p[sd]|rcp28\w+|"
                                  r"rsqrt28\w+|sha\w+)\s")),
    (4, "BF16, VBMI or VBMI2", re.compile(r"^v(dpbf16ps|cvtne2?ps2bf16|permb|perm[it]2b|pmultishiftqb|"
                                          r"pcompress[bw]|pexpand[bw]|psh[lr]dv?[wdq])\s")),
    (5, "AMX", re.compile(r"%tmm\d|\b(ldtilecfg|sttilecfg|tilerelease|tilezero|tdp\w+)\b")),
    (3, "AVX-512", re.compile(r"%zmm|%k[0-7]\b|%[xy]mm(1[6-9]|2\d|3[01])\b|\{%k|\{1to\d+\}")),
    (2, "AVX-VNNI", re.compile(r"^\{vex\}\s+vpdp")),
    (1, "AVX or newer", re.compile(r"%ymm|^v(?!er[rw]\b)[a-z0-9]+\s.*%xmm")),
    (1, "BMI2 or FMA era", re.compile(r"^(shlx|shrx|sarx|rorx|mulx|pdep|pext|bzhi|andn|lzcnt|popcnt|"
                                      r"movbe|vzeroupper|vzeroall)[lqw]?\b")),
    (3, "AVX-512 or VNNI on few registers", re.compile(
        r"^v(pdp(bus|wss)ds?|pternlog[dq]|p?perm[it]2\w+|permw|psra(q|v[wq])|ps[lr]lvw|pabsq|pmullq|"
        r"p(min|max)[su]q|rndscale\w+|range\w+|reduce\w+|scalef\w+|getexp\w+|getmant\w+|r(cp|sqrt)14\w+|"
        r"prol\w+|pror\w+|align[dq]|dbpsadbw|pmov(s|us)?[wdq][bwd]|cvtu\w+|cvt\w+2u(dq|qq)|cvt\w*qq\w*|"
        r"(extract|insert)[fi](32|64)x\d|broadcast[fi](32|64)x\d|shuf[fi](32|64)x\d|movdq[au](8|16|32|64)|"
        r"p(and|andn|or|xor)[dq])\s")),
]
LEVEL = {"avx2": 1, "avxvnni": 2, "avx512": 3, "avx512bf16": 4, "amx": 5}


def level_of(name, emulated):
    match = re.search(r"_(avx2|avxvnni|avx512|avx512bf16|amx)\.c\.o(bj)?$", name)
    if emulated and "/nb_emu.dir/" in name:
        return LEVEL["avx2"]
    return min(LEVEL[match.group(1)], 1 if emulated else 9) if match else 0


def is_emulated(build):
    try:
        with open(os.path.join(build, "gen", "nb_config.h"), encoding="utf-8") as f:
            return "#define NB_EMULATED 1" in f.read()
    except OSError:
        return False


def disassemble(path, emulated):
    out = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-w", path], check=True, text=True,
                         stdout=subprocess.PIPE, errors="replace").stdout
    allowed, where, found, n = level_of(path, emulated), "?", [], 0
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
    emulated = is_emulated(args.build)
    report = tree.Report("check_isa", "objects")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, n, found in pool.map(lambda p: disassemble(p, emulated), sorted(objects)):
            report.n_seen += 1
            short = os.path.relpath(path, os.path.join(args.build, "CMakeFiles"))
            for where, what, code in found[:3]:
                report.bad(short, 0, f"{what} in {where}: {code}")
            if len(found) > 3:
                report.bad(short, 0, f"and {len(found) - 3} more")
    report.close()


main()
