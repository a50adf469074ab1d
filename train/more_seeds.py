#!/usr/bin/env python3
"""Further seeds of nibble-tiny: its tokenizer, other weights, order and generated text.

python3 more_seeds.py prepare CORPORA WORK            as datagen.py, with the bundled tokenizer
python3 more_seeds.py prompts WORK                    evaluation prompts, three lengths
python3 more_seeds.py eval MODEL WORK OUT [CORPORA]   retrieval and bits per byte as JSON
"""
import json
import lzma
import math
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENIZER = os.path.join(HERE, '..', 'models', 'nibble-tiny', 'tokenizer.json')
LENGTHS = (512, 2048, 4096)


def prepare(src, out):
    import datagen
    from tokenizers import Tokenizer
    datagen.BOOKS = [b for b in datagen.BOOKS if os.path.exists(os.path.join(src, b + '.txt.xz'))]
    datagen.sample_texts = lambda *a: []
    datagen.train_tokenizer = lambda *a: Tokenizer.from_file(TOKENIZER)
    datagen.prepare(src, out)


def prompts(out):
    tmp = [os.path.join(out, 'prompts_%d.tmp' % n) for n in LENGTHS]
    ps = [subprocess.Popen([sys.executable, os.path.join(HERE, 'retrieval_eval.py'), '--length', str(n), '--n', '400', '--seed', '1', '-o', t])
          for n, t in zip(LENGTHS, tmp)]
    for p, t in zip(ps, tmp):
        if p.wait() == 0:
            os.rename(t, t[:-3] + 'json')


def evaluate(model, work, out, extra):
    import evaluate as E
    import model as M
    from tokenizers import Tokenizer
    t0 = time.time()
    tok = Tokenizer.from_file(os.path.join(model, 'tokenizer.json'))
    m = M.load_export(model, 'cuda').eval()
    res = {'retrieval': {}, 'bits_per_byte': {}}
    for n in LENGTHS:
        path = os.path.join(work, 'prompts_%d.json' % n)
        while not os.path.exists(path):                # still being generated
            time.sleep(0.5)
        items = json.load(open(path))
        res['retrieval'][n] = E.retrieval(m, tok, items, 65536 // n)
        print(n, res['retrieval'][n], round(time.time() - t0, 1), flush=True)
    held = json.load(open(os.path.join(work, 'held.json')))
    for f in ('wikitext2_test', 'tinyshakespeare'):
        p = os.path.join(extra, f + '.txt.xz')
        if extra and os.path.exists(p):
            held[f] = [lzma.open(p, 'rt', encoding='utf-8').read()]
    for f, docs in held.items():
        s = b = 0
        for d in docs:
            s += E.nll(m, tok.encode(d, add_special_tokens=False).ids, 2048, 16)
            b += len(d.encode())
        res['bits_per_byte'][f] = round(s / b / math.log(2), 4)
    print(res['bits_per_byte'], round(time.time() - t0, 1), flush=True)
    with open(out, 'w', encoding='utf-8') as g:
        json.dump(res, g, indent=1)


if __name__ == '__main__':
    if sys.argv[1] == 'prepare':
        prepare(sys.argv[2], sys.argv[3])
    elif sys.argv[1] == 'prompts':
        prompts(sys.argv[2])
    else:
        evaluate(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5] if len(sys.argv) > 5 else '')
