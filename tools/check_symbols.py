#!/usr/bin/env python3
"""check_symbols.py BUILD - every global symbol of libnibble.a starts with nb_ or NB_.

A name without the prefix is either a missing `static` or a clash waiting for the program that links us.
"""
import os
import subprocess

import tree


def main():
    args = tree.arguments(__doc__, (["build"], {"help": "build folder, or an archive or object"}))
    target = args.build
    if os.path.isdir(target):
        target = os.path.join(target, "libnibble.a")
    if not os.path.exists(target):
        tree.fatal(f"{target} does not exist: build first")
    report = tree.Report("check_symbols", "symbols")
    out = subprocess.run(["nm", "-g", "--defined-only", target], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    member = os.path.basename(target)
    for line in out.splitlines():
        if line.endswith(":"):
            member = line[:-1]
        fields = line.split()
        if len(fields) != 3:
            continue
        report.n_seen += 1
        # Sanitizers and coverage add symbols of their own, all with two underscores.
        if not fields[2].startswith(("nb_", "NB_", "__")):
            report.bad(member, 0, f"global symbol {fields[2]} (type {fields[1]}) without nb_")
    if not report.n_seen:
        report.bad(target, 0, "no symbols at all")
    report.close()


main()
