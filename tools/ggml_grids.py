"""ggml_grids.py GGML-COMMON.H >src/num/ggml_grids.c: the grids of the IQ1 to IQ3 types of GGUF, each row in 16 bits.

A row of a grid has eight values of three kinds (2 bits each) or four of eight (3 bits each), the first value lowest.
"""
import re
import sys

HEAD = """/* ggml_grids.c - see ggml_grids.h.  Written by tools/ggml_grids.py from ggml/src/ggml-common.h of llama.cpp, whose authors
 * chose these rows: Copyright (c) 2023-2026 The ggml authors, MIT licence (packaging/THIRD-PARTY.md has its text). */
#include "num/ggml_grids.h"
"""
# name here, name there, values of a row, values that occur
GRIDS = (("iq2_xxs", "iq2xxs_grid", 8, (8, 25, 43)), ("iq2_xs", "iq2xs_grid", 8, (8, 25, 43)),
         ("iq2_s", "iq2s_grid", 8, (8, 25, 43)), ("iq3_xxs", "iq3xxs_grid", 4, (4, 12, 20, 28, 36, 44, 52, 62)),
         ("iq3_s", "iq3s_grid", 4, (1, 3, 5, 7, 9, 11, 13, 15)), ("iq1", "iq1s_grid", 8, (0xff, 0, 1)))


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        text = f.read()
    out = [HEAD]
    for name, theirs, n, values in GRIDS:
        body = re.search(r"GGML_TABLE_BEGIN\(\w+, %s, \w+\)(.*?)GGML_TABLE_END" % theirs, text, re.S).group(1)
        bits = 2 if n == 8 else 3
        rows = []
        for word in re.findall(r"0x([0-9a-f]+)", body):
            row = int(word, 16).to_bytes(n, "little")
            rows.append(sum(values.index(v) << bits * i for i, v in enumerate(row)))
        out.append(f"const uint16_t nb_ggml_grid_{name}[{len(rows)}] = {{")
        out += ["    " + " ".join(f"0x{r:04x}," for r in rows[i:i + 12]) for i in range(0, len(rows), 12)]
        out.append("};\n")
    print("\n".join(out), end="")


main()
