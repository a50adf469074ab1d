#!/usr/bin/env python3
"""Train nibble-tools: a smaller nibble-tiny that calls tools.

python3 tools_train.py --data DIR --out DIR --seconds 330 [--attn cudnn|flash_pad]

DIR holds tokenizer.json and the shards that tools.py's workers keep writing.  The loop is
train.py's with one length of rows and one source of them.
"""
import argparse
import glob
import json
import os
import random
import threading
import time

import numpy as np
import torch

import model as M
import tools
from optim import Muon
from train import Pool


def config():
    return M.Cfg(vocab=tools.VOCAB, hidden=256, layers=5, heads=4, q_rank=96, inter=512, moe_inter=64, max_pos=tools.T)


def loader(d, pool, stop):
    seen = set()
    while not stop.is_set():
        for f in sorted(f for f in glob.glob(os.path.join(d, 'sh_*.u16')) if f not in seen):
            a = np.fromfile(f, dtype=np.int16).reshape(2, tools.ROWS, tools.T)
            pool.add(torch.from_numpy(a).cuda())
            seen.add(f)
            os.unlink(f)
        time.sleep(0.2)


def export(m, out, tokenizer_json):
    """model.export's files, with the template and the settings of this model"""
    M.export(m, out, tokenizer_json)
    for name, more in (('tokenizer_config.json', dict(chat_template=tools.TEMPLATE, model_max_length=tools.T)),
                       ('generation_config.json', dict(temperature=0.2, max_new_tokens=256))):
        p = os.path.join(out, name)
        j = json.load(open(p))
        j.update(more)
        open(p, 'w').write(json.dumps(j, indent=2) + '\n')


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--data', required=True)
    ap.add_argument('--out', required=True)
    ap.add_argument('--seconds', type=float, required=True)
    ap.add_argument('--attn', default='cudnn')
    ap.add_argument('--tokens', type=int, default=98304)
    ap.add_argument('--lr', type=float, default=0.02)
    ap.add_argument('--adam', type=float, default=0.003)
    ap.add_argument('--seed', type=int, default=1)
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    t_start = time.time()
    torch.manual_seed(a.seed)
    random.seed(a.seed)
    M.ATTN = a.attn
    cudnn = a.attn.startswith('cudnn')
    torch.backends.cuda.enable_cudnn_sdp(cudnn)
    torch.backends.cuda.enable_flash_sdp(not cudnn)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_math_sdp(False)
    torch._dynamo.config.recompile_limit = 64
    torch.set_float32_matmul_precision('high')
    m = M.Model(config()).cuda()
    n = sum(p.numel() for p in m.parameters())
    print('parameters', n, flush=True)
    for l in m.layers:
        l.compile(dynamic=False)
    m.head_loss = torch.compile(M.head_loss, dynamic=False)
    mats = [p for k, p in m.named_parameters() if p.ndim >= 2 and k != 'emb' and 'router' not in k]
    rest = [p for k, p in m.named_parameters() if p.ndim < 2 or 'router' in k]
    mu = Muon(mats, a.lr)
    ad = torch.optim.AdamW([dict(params=[m.emb], k=1.0), dict(params=rest, k=0.7)], lr=a.adam, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=True)
    pool, stop = Pool(), threading.Event()
    threading.Thread(target=loader, args=(a.data, pool, stop), daemon=True).start()
    while not pool.shards:
        time.sleep(0.2)

    def batch():
        x = pool.rows(a.tokens // tools.T)
        ids, w = x[0].long(), x[1].float() / 4
        tgt = torch.roll(ids, -1, 1)
        w = torch.roll(w, -1, 1)
        w[:, -1] = 0
        return ids, tgt, w

    t0 = time.time()
    l, st, cnt = m.loss(*batch())                # compile before the clock-driven schedule matters
    l.backward()
    m.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    print('compiled', round(time.time() - t0, 1), 's', flush=True)
    t0 = time.time()
    budget = a.seconds - (t0 - t_start)
    step, toks = 0, 0
    acc = torch.zeros(6, device='cuda')
    log = open(os.path.join(a.out, 'log.jsonl'), 'a')
    t_log, tok_log = t0, 0
    while True:
        f = (time.time() - t0) / budget
        if f >= 1:
            break
        lr = min(1.0, (step + 1) / 150) * (1.0 if f < 0.4 else max(0.02, (1 - f) / 0.6))
        ids, tgt, w = batch()
        l, st, cnt = m.loss(ids, tgt, w)
        l.backward()
        gn = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0, foreach=True)
        mu.step(a.lr * lr)
        for q in ad.param_groups:
            q['lr'] = a.adam * lr * q['k']
        ad.step()
        m.zero_grad(set_to_none=True)
        with torch.no_grad():
            rate = 0.002 if f < 0.7 else 0.0005 if f < 0.9 else 0.0
            for L, c in zip(m.layers, cnt):
                if L.moe and rate:
                    L.bias += rate * torch.sign(c.mean() - c)
            acc += torch.cat((st, torch.stack((l.detach(), torch.ones((), device='cuda')))))
        step += 1
        toks += a.tokens
        if step % 100 == 0:
            v, gnv, now = acc.tolist(), gn.item(), time.time()
            load = torch.stack([c / c.sum() for L, c in zip(m.layers, cnt) if L.moe])
            e = dict(step=step, tokens=toks, seconds=round(now - t0, 1), f=round(f, 4), lr=round(a.lr * lr, 6), tok_s=round((toks - tok_log) / (now - t_log)), gnorm=round(gnv, 3), loss=round(v[4] / v[5], 4),
                     answer_acc=round(v[0] / max(1, v[1]), 5), load_max=round(load.max().item(), 3), load_min=round(load.min().item(), 3), shards=len(pool.shards), epochs=round(pool.epochs(), 2))
            acc.zero_()
            log.write(json.dumps(e) + '\n')
            log.flush()
            if step % 500 == 0 or step <= 500:
                print(json.dumps(e), flush=True)
            t_log, tok_log = now, toks
    stop.set()
    torch.cuda.synchronize()
    print('done', step, toks, round(time.time() - t0, 1), flush=True)
    export(m, os.path.join(a.out, 'nibble-tools'), os.path.join(a.data, 'tokenizer.json'))
    json.dump(dict(parameters=n, steps=step, tokens=toks, seconds=round(time.time() - t0, 1), start_seconds=round(t0 - t_start, 1), args=vars(a), shards=len(pool.shards), epochs=pool.epochs(),
                   torch=torch.__version__, gpu=torch.cuda.get_device_name(0)), open(os.path.join(a.out, 'run.json'), 'w'), indent=1)


if __name__ == '__main__':
    main()
