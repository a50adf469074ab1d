#!/usr/bin/env python3
"""Retrieval prompts for evaluation: deterministic, pure standard library.

python3 train/retrieval_eval.py --length 512 --n 200 --seed 1 -o prompts.json

Writes [{"prompt": text, "answer": text, "kind": kind, "tokens": n}].  tokens counts
BOS, the prompt, the answer and the newline after it; it is at most --length.  The
expected continuation of a prompt is " " + answer + "\n"; score the first line,
stripped, by exact match.  Seeds 1 to 100 give streams never used in training, and
every sixth name is in no planted fact of the training text.
"""
import argparse
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bpe
import retrieval as rt
import stories as st

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = ['single_number', 'single_word', 'single_place', 'multikey', 'multivalue', 'multiquery', 'kv', 'vt', 'story']


def filler(r, what):
    """endless paragraphs of pieces"""
    while True:
        if what == 'noise':
            yield from rt.noise_paras(r, 4)
        else:
            s = st.story(r)
            yield from rt.pieces(s.paras, '\n\n')


def one(r, kind, length, tok):
    n = rt.EVAL_NAMES
    src = r.choice(('stories', 'stories', 'noise'))
    lines = None
    if kind == 'single_number':
        t = rt.t_multi(r, n, 1, rt.FAM_NUM, kind)
    elif kind == 'single_word':
        t = rt.t_multi(r, n, 1, rt.FAM_WORD, kind)
    elif kind == 'single_place':
        t = rt.t_multi(r, n, 1, rt.FAM_PLACE, kind)
    elif kind == 'multikey':
        t = rt.t_multi(r, n, r.choice((4, 6, 8)), rt.FAM, kind)
    elif kind == 'multivalue':
        t = rt.t_multivalue(r, n, r.choice((2, 3, 4)))
    elif kind == 'multiquery':
        t = rt.t_multiquery(r, n, 4, r.choice((2, 3)))
    elif kind == 'vt':
        t = rt.t_vt(r, r.choice((1, 2)), r.choice((2, 3)))
        src = 'noise'
    elif kind == 'kv':
        lines = rt.kv_lines(r, max(8, length // 7))
        r2 = lines[:]
        t = dict(kind=kind, needles=[], ordered=False, qas=None)
    else:
        t = dict(kind=kind, needles=[], ordered=False, qas=None)
    size = lambda x: len(tok.encode(x))
    if kind == 'kv':
        budget = length - 48
        ctx, used = [], 0
        for l in r2:
            c = size(l[0] + '\n')
            if used + c > budget:
                break
            used += c
            ctx.append(l)
        q, a = r.choice([(l[1], l[2]) for l in ctx])
        text = ''.join(l[0] + '\n' for l in ctx)
    elif kind == 'story':
        heroes, parts, used, facts = set(), [], 0, []
        budget = length - 56
        while True:
            s = st.story(r)
            if s.hero in heroes:
                continue
            x = s.text() + '\n\n'
            c = size(x)
            if used + c > budget:
                if parts:
                    break
                continue
            heroes.add(s.hero)
            parts.append(x)
            used += c
            facts.append([(q, a) for q, a in s.facts if s.hero in q])
        q, a = r.choice(r.choice([f for f in facts if f]))
        text = ''.join(parts)
    else:
        q, a = r.choice(t['qas'])
        need = [rt.forms(x) for x in t['needles']]
        budget = length - 8 - sum(size(x[1]) + 1 for x in need) - size('Question: %s\nAnswer: %s\n' % (q, a))
        paras, used = [], 0
        for p in filler(r, src):
            c = size(''.join(p))
            if used + c > budget:
                if used > 0.9 * budget or c < 60 or not paras:
                    if paras:
                        break
                continue
            used += c
            paras.append(p)
        text = ''.join(rt.place(r, paras, need, [list(range(len(need)))] if t['ordered'] else []))
    prompt = text + 'Question: %s\nAnswer:' % q
    total = size(prompt + ' ' + a + '\n') + 1
    if total > length:                     # a long question: draw again
        return one(r, kind, length, tok)
    return dict(prompt=prompt, answer=a, kind=kind, tokens=total)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--length', type=int, required=True)
    ap.add_argument('--n', type=int, default=200)
    ap.add_argument('--seed', type=int, default=1)
    ap.add_argument('--tokenizer', default=os.path.join(HERE, '..', 'models', 'nibble-tiny', 'tokenizer.json'))
    ap.add_argument('-o', required=True)
    a = ap.parse_args()
    tok = bpe.BPE(a.tokenizer)
    r = random.Random(a.seed * 7919 + a.length)
    out = [one(r, KINDS[i % len(KINDS)], a.length, tok) for i in range(a.n)]
    json.dump(out, open(a.o, 'w'), indent=0)


if __name__ == '__main__':
    main()
