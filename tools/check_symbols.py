#!/usr/bin/env python3
"""check_symbols.py BUILD - which names programs can see.

Every global symbol of libnibble_core.a starts with nb_ or NB_: a name without the prefix is either a missing
`static` or a clash waiting for the program that links us.  libnibble.so and libnibble.a show exactly the
functions that include/nibble declares, and each of these is declared with NB_API.
"""
import os
import re
import subprocess

import tree

DECLARED = re.compile(r"^(NB_API )?(?:const )?[\w ]+?[ *](nb_\w+)\(", re.M)


def symbols(path, *options):
    """(member, name, type) of the global symbols of an object, an archive or a shared object."""
    out = subprocess.run(["nm", *options, "--defined-only", path], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    member = os.path.basename(path)
    for line in out.splitlines():
        if line.endswith(":"):
            member = line[:-1]
        fields = line.split()
        if len(fields) == 3:
            yield member, fields[2], fields[1]


def public_functions(report, root):
    names = set()
    for path in tree.files(root):
        if not path.startswith("include/nibble/"):
            continue
        text = tree.strip_c(tree.read(root, path))
        for match in DECLARED.finditer(text):
            if match.group(0).startswith("typedef"):
                continue
            names.add(match.group(2))
            if not match.group(1):
                report.bad(path, text.count("\n", 0, match.start()) + 1, f"{match.group(2)} without NB_API")
    return names


def check_shown(report, path, names, option):
    shown = {name for _, name, _ in symbols(path, option)}
    report.n_seen += len(shown)
    for name in sorted(shown - names):
        report.bad(path, 0, f"shows {name}, which include/nibble does not declare")
    for name in sorted(names - shown):
        report.bad(path, 0, f"does not show {name}, which include/nibble declares")


def main():
    args = tree.arguments(__doc__, (["build"], {"help": "build folder, or an archive or object"}))
    folder = os.path.isdir(args.build)
    target = os.path.join(args.build, "libnibble_core.a") if folder else args.build
    if not os.path.exists(target):
        tree.fatal(f"{target} does not exist: build first")
    report = tree.Report("check_symbols", "symbols")
    for member, name, kind in symbols(target, "-g"):
        report.n_seen += 1
        # Sanitizers and coverage add symbols of their own, all with two underscores.
        if not name.startswith(("nb_", "NB_", "__")):
            report.bad(member, 0, f"global symbol {name} (type {kind}) without nb_")
    if not report.n_seen:
        report.bad(target, 0, "no symbols at all")
    if folder:
        names = public_functions(report, args.root)
        check_shown(report, os.path.join(args.build, "libnibble.so"), names, "-D")
        check_shown(report, os.path.join(args.build, "libnibble.a"), names, "-g")
    report.close()


main()
