#!/usr/bin/env python3
"""Held-out prompts for nibble-tools: greedy answers, compared as a client would.

python3 tools_eval.py --model DIR --out DIR [--n 400] [--seed 1]

Right means: the same calls (names and arguments as JSON values), the same JSON document, no call
where no tool fits, or an answer that holds the result's words.  Writes results.json and samples.txt.
"""
import argparse
import json
import os

import torch

import model as M
import tools

END = 6


def wanted(t):
    """(names and arguments of calls, text) of the last message"""
    m = t.messages[-1]
    return [[c['function']['name'], c['function']['arguments']] for c in m.get('tool_calls', [])], m['content']


def parse(text):
    """the same of an answer; arguments that are no JSON stay text"""
    text = text.split('</think>')[-1]
    content, _, section = text.partition(tools.CALLS)
    calls = []
    for c in section.split(tools.CALL)[1:]:
        name, _, args = c.split(tools.CALL_END)[0].partition(tools.SEP)
        try:
            args = json.loads(args)
        except ValueError:
            pass
        calls.append([name, args])
    return calls, content


def right(kind, want, got):
    if kind in ('call', 'two', 'second') or want[0] or got[0]:
        return want[0] == got[0]
    if kind == 'json':
        try:
            return json.loads(got[1]) == json.loads(want[1])
        except ValueError:
            return False
    if kind == 'answer':                        # wordings differ; names and numbers must not
        mark = lambda s: sorted(w.strip('.,:') for w in s.split() if w[0].isdigit() or w[:1] == '-')
        return mark(want[1]) == mark(got[1])
    return bool(got[1])


@torch.no_grad()
def generate(m, prompts, n_new):
    """greedy answers of a batch; rows of their own lengths, padded behind"""
    lens = [len(p) for p in prompts]
    x = torch.full((len(prompts), max(lens) + n_new), 2, dtype=torch.long)
    for j, p in enumerate(prompts):
        x[j, :len(p)] = torch.tensor(p)
    x = x.cuda()
    at = torch.tensor(lens).cuda()
    row = torch.arange(len(prompts)).cuda()
    done = torch.zeros(len(prompts), dtype=torch.bool).cuda()
    for k in range(n_new):
        y, _ = m.body(x[:, :max(lens) + k])
        h = y[row, at + k - 1]                  # the position before the one to be filled
        z = M.lin(M.norm(h, m.nf), m.emb).float().argmax(-1)
        z = torch.where(done, torch.full_like(z, 2), z)
        x[row, at + k] = z
        done |= (z == END) | (z == 1)
        if bool(done.all()):
            break
    out = []
    for j, n in enumerate(lens):
        ids = x[j, n:n + n_new].tolist()
        out.append(ids[:min([i for i, t in enumerate(ids) if t in (END, 1)], default=len(ids))])
    return out


def decoder(path):
    """ids to text: the byte alphabet of the vocabulary, and the added tokens"""
    from bpe import B2U
    d = json.load(open(path, encoding='utf-8'))
    u2b = {u: b for b, u in B2U.items()}
    text = {i: bytes(u2b[c] for c in w) for w, i in d['model']['vocab'].items() if all(c in u2b for c in w)}
    text.update({t['id']: t['content'].encode() for t in d['added_tokens']})
    return lambda ids: b''.join(text.get(i, b'') for i in ids).decode('utf-8', 'replace')


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--model', required=True)
    ap.add_argument('--out', required=True)
    ap.add_argument('--n', type=int, default=400)
    ap.add_argument('--seed', type=int, default=1)
    ap.add_argument('--batch', type=int, default=100)
    a = ap.parse_args()
    M.ATTN = 'flash_pad'
    m = M.load_export(a.model, 'cuda')
    tok = os.path.join(a.model, 'tokenizer.json')
    coder, decode = tools.Coder(tok), decoder(tok)
    items = []
    for kind, t in tools.prompts(a.n, a.seed):
        ids = [i for text, _ in tools.pieces(t, len(t.messages) - 1) for i in coder.encode(text)]
        ids += coder.encode('<|assistant|>') + coder.encode('<think>' if t.thinking else '</think>')
        items.append((kind, t, ids))
    order = sorted(range(len(items)), key=lambda i: len(items[i][2]))
    got = [None] * len(items)
    for s in range(0, len(order), a.batch):
        part = order[s:s + a.batch]
        for i, ids in zip(part, generate(m, [items[i][2] for i in part], 128)):
            got[i] = decode(ids)
    kinds, shown = {}, []
    for (kind, t, ids), text in zip(items, got):
        ok = right(kind, wanted(t), parse(text))
        kinds.setdefault(kind, []).append(ok)
        if len(shown) < 24 or not ok:
            shown.append('%s %s\n%s\n--> %s\nwanted %s\n' % ('right' if ok else 'WRONG', kind, decode(ids), text, json.dumps(wanted(t), ensure_ascii=False)))
    r = dict(n=len(items), seed=a.seed, right=round(100 * sum(map(sum, kinds.values())) / len(items), 2), kinds={k: [sum(v), len(v)] for k, v in sorted(kinds.items())},
             max_prompt_tokens=max(len(i[2]) for i in items))
    print(json.dumps(r), flush=True)
    json.dump(r, open(os.path.join(a.out, 'results.json'), 'w'), indent=1)
    open(os.path.join(a.out, 'samples.txt'), 'w').write('\n'.join(shown[:80]))


if __name__ == '__main__':
    main()
