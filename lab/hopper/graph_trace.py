#!/usr/bin/env python3
"""graph_trace.py FILE [FORMS] - the layers in a trace of graph_trace.c: for each kernel, the median of how much later it
ends than all before it, which is what it adds to the chain.  A layer begins with its attention over pages; FORMS (default
2) are the most frequent sequences of kernels."""
import collections
import re
import statistics
import subprocess
import sys


def kernels(path):
    lines = [line.split(None, 4) for line in open(path, encoding='utf-8')]
    names = subprocess.run(['c++filt'], input=''.join(x[4] for x in lines), text=True, stdout=subprocess.PIPE,
                           check=True).stdout.splitlines()
    short = [re.split(r'[<(]', re.sub(r'\(anonymous namespace\)::|^void ', '', n))[0] for n in names]
    return sorted((int(x[0]), int(x[1]), x[2], n) for x, n in zip(lines, short))


def main():
    rows = kernels(sys.argv[1])
    first = [i for i, r in enumerate(rows) if re.search(r'mla_(few|many|codes|mma)$', r[3])]
    layers, end = [], 0
    for a, b in zip(first, first[1:]):
        end = max(r[1] for r in rows[max(0, a - 8):max(1, a)])
        layer = []
        for r in rows[a:b]:
            layer.append((r[3], r[2], max(0, r[1] - end) / 1e3))
            end = max(end, r[1])
        layers.append(layer)
    forms = collections.defaultdict(list)
    for layer in layers:
        forms[tuple(x[:2] for x in layer)].append([x[2] for x in layer])
    most = sorted(forms.items(), key=lambda x: -len(x[1]))[:int(sys.argv[2]) if len(sys.argv) > 2 else 2]
    for form, times in most:
        print(f'{len(times)} layers of {statistics.median(sum(t) for t in times):.1f} us')
        for i, (name, grid) in enumerate(form):
            print(f'  {name:<24} {grid:<12} {statistics.median(t[i] for t in times):6.2f}')


if __name__ == '__main__':
    main()
