#!/usr/bin/env python3
"""Figures of an exported checkpoint.

python3 evaluate.py --model DIR --data DIR --out DIR [--n 400] [--quick]

Writes results.json, samples.txt and expected.json (the parity vectors).
"""
import argparse
import json
import os
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

import model as M

HERE = os.path.dirname(os.path.abspath(__file__))


@torch.no_grad()
def nll(m, ids, T, B):
    """sum of negative log-likelihoods over windows of T tokens, each begun with BOS"""
    wins = [[0] + ids[i:i + T - 1] for i in range(0, len(ids), T - 1)]
    tot = 0.0
    for i in range(0, len(wins), B):
        ws = wins[i:i + B]
        n = max(map(len, ws))
        x = torch.full((len(ws), n), 2, dtype=torch.long)
        for j, w in enumerate(ws):
            x[j, :len(w)] = torch.tensor(w)
        x = x.cuda()
        lg = m.logits(x)
        for j, w in enumerate(ws):
            k = len(w) - 1
            if k > 0:
                tot += F.cross_entropy(lg[j, :k].float(), x[j, 1:k + 1], reduction='sum').item()
    return tot


@torch.no_grad()
def retrieval(m, tok, items, B):
    """greedy exact match: every token of ' answer\\n' is the first choice, in one pass"""
    enc = []
    for x in items:
        p = tok.encode(x['prompt']).ids
        full = tok.encode(x['prompt'] + ' ' + x['answer'] + '\n').ids
        assert full[:len(p)] == p, x
        enc.append((p, full))
    order = sorted(range(len(enc)), key=lambda i: len(enc[i][1]))
    ok = [0] * len(enc)
    lp = [0.0] * len(enc)
    for s in range(0, len(order), B):
        idx = order[s:s + B]
        n = max(len(enc[i][1]) for i in idx)
        x = torch.full((len(idx), n), 2, dtype=torch.long)
        for j, i in enumerate(idx):
            x[j, :len(enc[i][1])] = torch.tensor(enc[i][1])
        x = x.cuda()
        lg = m.logits(x)
        for j, i in enumerate(idx):
            a, b = len(enc[i][0]), len(enc[i][1])
            z = lg[j, a - 1:b - 1].float()
            ok[i] = int((z.argmax(-1) == x[j, a:b]).all())
            lp[i] = -F.cross_entropy(z, x[j, a:b]).item()
    kinds = {}
    for o, x in zip(ok, items):
        kinds.setdefault(x['kind'], []).append(o)
    return dict(n=len(ok), exact_match=round(100 * sum(ok) / len(ok), 2), answer_logprob_per_token=round(sum(lp) / len(lp), 4),
                max_tokens=max(len(e[1]) for e in enc), kinds={k: [sum(v), len(v)] for k, v in sorted(kinds.items())})


@torch.no_grad()
def generate(m, ids, n, temp=0.0, top_p=0.9, seed=0, stop=(1, 6)):
    g = torch.Generator(device='cuda').manual_seed(seed)
    x = torch.tensor([ids]).cuda()
    for _ in range(n):
        k = x.shape[1]
        pad = -k % 64
        z = m.logits(F.pad(x, (0, pad), value=2))[0, k - 1].float()
        if temp:
            p = (z / temp).softmax(-1)
            v, i = p.sort(descending=True)
            v[v.cumsum(0) - v > top_p] = 0
            t = i[torch.multinomial(v, 1, generator=g)]
        else:
            t = z.argmax()[None]
        x = torch.cat((x, t[None]), 1)
        if t.item() in stop:
            break
    return x[0, len(ids):].tolist()


CHATS = [[{'role': 'user', 'content': 'Hello!'}],
         [{'role': 'system', 'content': 'You tell short stories for children.'}, {'role': 'user', 'content': 'Tell me a story about a brave mouse.'}],
         [{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hello! How can I help you?'}, {'role': 'user', 'content': 'Who are you?'}],
         [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'The secret number of Lily is 48213. Tom keeps the silver key in the old barn.\nWhat is the secret number of Lily?'}],
         [{'role': 'user', 'content': 'Write a story about "caf\u00e9" & 7 owls!\n\n  (two lines)'}, {'role': 'assistant', 'content': 'Once upon a time...'}]]
TEXTS = ['Hello, world!', ' leading space', 'trailing space ', '', '\n\n', 'a\n b\n\nc', 'Once upon a time, there was a little girl named Lily.', '"I\'m here," she said. "Don\'t go!"', '1234567890', 'The secret number of Lily is 48213.',
         'x = y + z; // comment', 'tabs\tand   many    spaces', 'caf\u00e9 na\u00efve \u00fcber', '\u4f60\u597d\uff0c\u4e16\u754c', '\U0001f600 smile', '<|user|>Hi<|end|><|assistant|>', 'VAR ABC = VAR XYZ.', 'brave-otter: 73502\n',
         'Question: Where does Tom keep the key?\nAnswer: in the old barn\n', 'CamelCase_and_snake_case', '\u00bd cup, 3\u00b2 = 9, \u0663', 'line\r\nbreak\r', "it's 'quoted' (yes) [no] {maybe}", '...!?---', 'A Tale of Two Cities\nCharles Dickens']
PROMPTS = ['Once upon a time, there was a little rabbit named Pip.', 'The secret number of Lily is 48213. The sky is blue. Tom keeps the silver key in the old barn. The grass is green.\nQuestion: Where does Tom keep the silver key?\nAnswer:',
           'It was the best of times, it was the worst of times,', 'One day, a girl named Anna found a map in an old book.']


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--model', required=True)
    ap.add_argument('--data', required=True, help='folder with held.json')
    ap.add_argument('--out', required=True)
    ap.add_argument('--n', type=int, default=400)
    ap.add_argument('--quick', action='store_true')
    ap.add_argument('--extra', default='', help='folder with further .txt.xz for bits per byte')
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    from tokenizers import Tokenizer
    tok = Tokenizer.from_file(os.path.join(a.model, 'tokenizer.json'))
    m32 = M.load_export(a.model, 'cuda').eval()
    m = m32
    torch.backends.cuda.matmul.allow_tf32 = False
    res = {'model': 'nibble-tiny', 'parameters': sum(p.numel() for p in m.parameters())}
    t0 = time.time()

    # retrieval
    res['retrieval'] = {}
    shown = []
    for L in (512, 2048, 4096):
        p = os.path.join(a.out, 'prompts_%d.json' % L)
        n = 45 if a.quick else a.n
        subprocess.check_call([sys.executable, os.path.join(HERE, 'retrieval_eval.py'), '--length', str(L), '--n', str(n), '--seed', '1', '--tokenizer', os.path.join(a.model, 'tokenizer.json'), '-o', p])
        items = json.load(open(p))
        bad = [x for x in items if len(tok.encode(x['prompt'] + ' ' + x['answer'] + '\n').ids) != x['tokens']]
        res['retrieval'][L] = retrieval(m, tok, items, max(1, 65536 // L))
        res['retrieval'][L]['token_count_mismatches'] = len(bad)
        os.unlink(p)
        shown += [x for x in items if x['kind'] in ('single_place', 'multivalue', 'kv', 'vt', 'story')][:5]
        print(L, res['retrieval'][L], round(time.time() - t0, 1), flush=True)

    # bits per byte
    held = json.load(open(os.path.join(a.data, 'held.json')))
    if a.extra:
        import lzma
        for f in ('wikitext2_test', 'tinyshakespeare'):
            held[f] = [lzma.open(os.path.join(a.extra, f + '.txt.xz'), 'rt').read()]
    res['bits_per_byte'] = {}
    tn = tb = 0
    for f, docs in held.items():
        if a.quick:
            docs = [d[:40000] for d in docs]
        s = b = k = 0
        for d in docs:
            ids = tok.encode(d, add_special_tokens=False).ids
            s += nll(m, ids, 2048, 16)
            b += len(d.encode())
            k += len(ids)
        res['bits_per_byte'][f] = dict(bpb=round(s / b / 0.6931471805599453, 4), bytes=b, tokens=k, documents=len(docs), title=docs[0][:40].split('\n')[0], nll_per_token=round(s / k, 4))
        print(f, res['bits_per_byte'][f], round(time.time() - t0, 1), flush=True)

    # samples
    sam = []
    for p in ['Once upon a time, there was a little fox named', 'One sunny day, Mia went to the park with her dog.', 'Tom was afraid of the dark.', 'The old king had three sons.']:
        o = generate(m, tok.encode(p).ids, 40 if a.quick else 320, 0.6, 0.9, 1)
        sam.append(('story, T 0.6 top-p 0.9', p, tok.decode(o)))
    for c in ['Tell me a story about a cat.', 'Hello!', 'Who are you?', 'Tell me a story about sharing.', 'Tell me a story about a girl named Zuri who loses a kite.', 'The dog of Anna is called Rex. The cat of Ben is called Tom.\nWhat is the name of the cat of Ben?']:
        o = generate(m, [0, 4] + tok.encode(c, add_special_tokens=False).ids + [6, 5], 40 if a.quick else 320, 0.6, 0.9, 1)
        sam.append(('chat, T 0.6 top-p 0.9', c, tok.decode(o)))
    for x in shown:
        o = generate(m, tok.encode(x['prompt']).ids, 40, stop=(1, 6, tok.token_to_id('\u010a')))
        sam.append(('retrieval, greedy, %s, %d tokens, wanted: %s' % (x['kind'], x['tokens'], x['answer']), x['prompt'][-200:], tok.decode(o)))
    with open(os.path.join(a.out, 'samples.txt'), 'w') as f:
        for k, p, o in sam:
            f.write('== %s\n>> %s\n%s\n\n' % (k, p, o))
    print('samples', round(time.time() - t0, 1), flush=True)

    # transformers: the reference
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer
    hf, info = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32, attn_implementation='eager', output_loading_info=True)
    hf.eval()
    htok = AutoTokenizer.from_pretrained(a.model)
    info = {k: sorted(map(str, v)) for k, v in info.items() if v}
    print('loading info', info, type(htok).__name__, flush=True)
    res['transformers'] = dict(version=transformers.__version__, torch=torch.__version__, loading_info=info, tokenizer=type(htok).__name__)
    exp = dict(model='models/nibble-tiny', transformers=transformers.__version__, torch=torch.__version__, windows=[], continuations=[], chat=[], tokenizer=[])
    M.ATTN = 'math'
    mc = M.load_export(a.model).eval()
    diffs = []
    src = [('chilit', 0, 60000), ('dickens_dnov', 0, 0), ('c19_novels', 0, 200000), ('gitenberg_children', 0, 30000)]
    with torch.no_grad():
        hb = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16, attn_implementation='eager').eval()
        for f, d, off in src:
            ids = [0] + tok.encode(held[f][d][off:off + 9000], add_special_tokens=False).ids[:1023]
            x = torch.tensor([ids])
            lg = hf(x).logits[0]
            own = mc.logits(x, torch.float32)[0]
            diffs.append((lg - own).abs().max().item())
            per = F.cross_entropy(lg[:-1].double(), x[0, 1:], reduction='none')
            b16 = F.cross_entropy(hb(x).logits[0][:-1].double(), x[0, 1:], reduction='sum').item()
            v = per.sum().item()
            exp['windows'].append(dict(source=f, title=held[f][d][:60].split('\n')[0], ids=ids, scored=len(ids) - 1, nll_f32=v, ppl_f32=float(torch.tensor(v / (len(ids) - 1)).exp()), nll_bf16=b16,
                                       ppl_bf16=float(torch.tensor(b16 / (len(ids) - 1)).exp()), nll_first_8=per[:8].tolist()))
        n = sum(w['scored'] for w in exp['windows'])
        import math
        exp['ppl_f32'] = math.exp(sum(w['nll_f32'] for w in exp['windows']) / n)
        exp['ppl_bf16'] = math.exp(sum(w['nll_bf16'] for w in exp['windows']) / n)
        res['transformers'].update(max_logit_difference=max(diffs), logit_differences=diffs, ppl_f32=exp['ppl_f32'], ppl_bf16=exp['ppl_bf16'])
        print('diff', diffs, exp['ppl_f32'], exp['ppl_bf16'], flush=True)
        pr = [tok.encode(p).ids for p in PROMPTS] + [htok.apply_chat_template(CHATS[1], add_generation_prompt=True, return_dict=False)]
        for ids in pr:
            x, margins = list(ids), []
            for _ in range(40):
                z = hf(torch.tensor([x])).logits[0, -1]
                v, i = z.topk(2)
                margins.append((v[0] - v[1]).item())
                x.append(i[0].item())
            exp['continuations'].append(dict(ids=list(ids), out=x[len(ids):], min_margin=min(margins), margins=[round(v, 4) for v in margins], text=tok.decode(x[len(ids):], skip_special_tokens=False)))
    for i, c in enumerate(CHATS):
        gp = c[-1]['role'] == 'user'
        exp['chat'].append(dict(messages=c, add_generation_prompt=gp, text=htok.apply_chat_template(c, tokenize=False, add_generation_prompt=gp), ids=htok.apply_chat_template(c, add_generation_prompt=gp, return_dict=False)))
    for t in TEXTS:
        e = htok(t)['input_ids']
        assert e == tok.encode(t).ids, (t, e)
        exp['tokenizer'].append(dict(text=t, ids=e, decoded=htok.decode(e, skip_special_tokens=True)))
    json.dump(exp, open(os.path.join(a.out, 'expected.json'), 'w'), ensure_ascii=True)
    json.dump(res, open(os.path.join(a.out, 'results.json'), 'w'), indent=1)
    print('eval done', round(time.time() - t0, 1), flush=True)


if __name__ == '__main__':
    main()
