#!/usr/bin/env python3
"""Train nibble-tiny for a fixed wall-clock time.

python3 train.py --data DIR --out DIR --seconds 1300

DIR holds what datagen.py prepared and the shards its workers keep writing.
"""
import argparse
import glob
import json
import math
import os
import random
import threading
import time

import numpy as np
import torch

import model as M
from optim import Muon


class Pool:
    """rows of one length; takes unseen shards first, then begins again"""

    def __init__(self):
        self.shards, self.at, self.row, self.perm = [], -1, 0, None
        self.lock = threading.Lock()
        self.used = 0

    def add(self, t):
        with self.lock:
            self.shards.append(t)

    def rows(self, n):
        out = []
        while n:
            if self.perm is None or self.row == len(self.perm):
                self.at += 1
                self.cur = self.shards[self.at % len(self.shards)]
                self.perm = torch.randperm(self.cur.shape[1], device=self.cur.device)
                self.row = 0
            k = min(n, len(self.perm) - self.row)
            out.append(self.cur[:, self.perm[self.row:self.row + k]])
            self.row += k
            n -= k
        return torch.cat(out, 1)

    def epochs(self):
        return self.at / max(1, len(self.shards))


def loader(d, pools, stop):
    seen = set()
    while not stop.is_set():
        fs = sorted(f for f in glob.glob(os.path.join(d, 'sh_*.npy')) if f not in seen)
        for f in fs:
            a = np.load(f).view(np.int16)
            pools[a.shape[2]].add(torch.from_numpy(a).cuda())
            seen.add(f)
            os.unlink(f)
        time.sleep(0.3)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--data', required=True)
    ap.add_argument('--out', required=True)
    ap.add_argument('--seconds', type=float, required=True)
    ap.add_argument('--attn', default='cudnn')
    ap.add_argument('--size', default='tiny', choices=sorted(M.CFG))
    ap.add_argument('--tokens', type=int, default=98304)
    ap.add_argument('--lr', type=float, default=0.02)
    ap.add_argument('--adam', type=float, default=0.003)
    ap.add_argument('--seed', type=int, default=1)
    ap.add_argument('--save', type=float, default=240)
    ap.add_argument('--end', type=float, default=0, help='unix time by which to be done, instead of --seconds')
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    t_start = time.time()
    if a.end:
        a.seconds = a.end - t_start
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
    m = M.Model(M.CFG[a.size]).cuda()
    n = sum(p.numel() for p in m.parameters())
    print('parameters', n, flush=True)
    for l in m.layers:
        l.compile(dynamic=False)
    m.head_loss = torch.compile(M.head_loss, dynamic=False)
    mats = [p for k, p in m.named_parameters() if p.ndim >= 2 and k != 'emb' and 'router' not in k]
    rest = [p for k, p in m.named_parameters() if p.ndim < 2 or 'router' in k]
    mu = Muon(mats, a.lr)
    ad = torch.optim.AdamW([dict(params=[m.emb], k=1.0), dict(params=rest, k=0.7)], lr=a.adam, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=True)
    pools = {1024: Pool(), 4096: Pool()}
    stop = threading.Event()
    threading.Thread(target=loader, args=(a.data, pools, stop), daemon=True).start()
    while not os.path.exists(os.path.join(a.data, 'info.json')):       # prepare may still be running
        time.sleep(0.2)
    books = torch.from_numpy(np.load(os.path.join(a.data, 'books.npy')).view(np.int16)).cuda()
    g = torch.Generator().manual_seed(a.seed)

    def batch(T, bf):
        rows = a.tokens // T
        nb = int(rows * bf + random.random())
        x = pools[T].rows(rows - nb)
        ids, w = x[0], x[1]
        if nb:
            i = torch.randint(0, books.numel() - T - 1, (nb,), generator=g).cuda()
            b = books[i[:, None] + torch.arange(T, device='cuda')[None]]
            ids, w = torch.cat((ids, b)), torch.cat((w, torch.full_like(b, 4)))
        ids = ids.long()
        w = w.float() / 4
        tgt = torch.roll(ids, -1, 1)
        w = torch.roll(w, -1, 1)
        w[:, -1] = 0
        return ids, tgt, w

    while not pools[1024].shards or not pools[4096].shards:
        time.sleep(0.2)
    # compile both shapes before the clock-driven schedule matters
    for T in (1024, 4096):
        t0 = time.time()
        l, st, cnt = m.loss(*batch(T, 0.3))
        l.backward()
        print('compiled', T, round(time.time() - t0, 1), 's', flush=True)
        m.zero_grad(set_to_none=True)
    t0 = time.time()
    budget = a.seconds - (t0 - t_start)
    t_sched = t0
    step, toks, tok_T = 0, 0, {1024: 0, 4096: 0}
    acc = {1024: torch.zeros(6, device='cuda'), 4096: torch.zeros(6, device='cuda')}
    log = open(os.path.join(a.out, 'log.jsonl'), 'a')
    t_log, tok_log, t_save = t0, 0, t0
    rng = random.Random(a.seed + 1)
    gn_avg = None
    while True:
        now = time.time()
        f = (now - t_sched) / budget
        if f >= 1:
            break
        warm = min(1.0, (step + 1) / 150)
        lr = warm * (1.0 if f < 0.4 else max(0.02, (1 - f) / 0.6))
        pL = 0.15 if f < 0.15 else 0.4 if f < 0.5 else 0.75 if f < 0.8 else 0.9
        bf = 0.36 if f < 0.5 else 0.28 if f < 0.8 else 0.15
        T = 4096 if rng.random() < pL else 1024
        ids, tgt, w = batch(T, bf)
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
            acc[T] += torch.cat((st, torch.stack((l.detach(), torch.ones((), device='cuda')))))
        step += 1
        toks += a.tokens
        tok_T[T] += a.tokens
        if step % 100 == 0:
            r = {t: acc[t].tolist() for t in acc}
            gnv = gn.item()
            now = time.time()
            load = torch.stack([c / c.sum() for L, c in zip(m.layers, cnt) if L.moe])
            e = dict(step=step, tokens=toks, seconds=round(now - t0, 1), f=round(f, 4), lr=round(a.lr * lr, 6), tok_s=round((toks - tok_log) / (now - t_log)), gnorm=round(gnv, 3),
                     load_max=round(load.max().item(), 3), load_min=round(load.min().item(), 3), epochs_s=round(pools[1024].epochs(), 2), epochs_l=round(pools[4096].epochs(), 2))
            for t, v in r.items():
                if v[5]:
                    e['loss_%d' % t] = round(v[4] / v[5], 4)
                    e['answer_acc_%d' % t] = round(v[0] / max(1, v[1]), 4)
                    e['text_loss_%d' % t] = round(v[2] / max(1, v[3]), 4)
                acc[t].zero_()
            log.write(json.dumps(e) + '\n'); log.flush()
            if step % 500 == 0 or step <= 1000:
                print(json.dumps(e), flush=True)
            t_log, tok_log = now, toks
            if now - t_save > a.save:
                M.export(m, os.path.join(a.out, 'export.tmp'), os.path.join(a.data, 'tokenizer.json'))
                os.system('rm -rf %s && mv %s %s' % (a.out + '/export', a.out + '/export.tmp', a.out + '/export'))
                t_save = time.time()
    stop.set()
    torch.cuda.synchronize()
    print('done', step, toks, round(time.time() - t0, 1), flush=True)
    torch.save(m.state_dict(), os.path.join(a.out, 'last.pt'))
    M.export(m, os.path.join(a.out, 'final'), os.path.join(a.data, 'tokenizer.json'))
    json.dump(dict(parameters=n, steps=step, tokens=toks, tokens_by_length=tok_T, seconds=round(time.time() - t0, 1), start_seconds=round(t0 - t_start, 1), args=vars(a),
                   shards={t: len(p.shards) for t, p in pools.items()}, epochs={t: p.epochs() for t, p in pools.items()}, torch=torch.__version__, gpu=torch.cuda.get_device_name(0)),
              open(os.path.join(a.out, 'run.json'), 'w'), indent=1)
    open(os.path.join(a.out, 'DONE'), 'w').write('ok')


if __name__ == '__main__':
    main()
