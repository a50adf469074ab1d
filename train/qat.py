#!/usr/bin/env python3
"""Fine-tune nibble-tiny for NVFP4 weights (and an NVFP4 cache), with controls.

python3 qat.py --data DIR --model models/nibble-tiny --out DIR --seconds 75

DIR holds what more_seeds.py prepared and the shards that datagen.py's workers keep writing.  Each run
starts from the checkpoint and lasts --seconds.  Its name says what it is: `more` is plain training on, the
control; `w` sees weights in NVFP4, `kv` latents and rope keys as the nvfp4 cache keeps them, `kd` is taught by the
checkpoint (the divergence of its distribution from the checkpoint's) and not by the text.  The forward pass and the gradient see
rounded weights, the step changes the float ones (straight-through estimator); what is saved are these,
in BF16, for `nibble convert`.
"""
import argparse
import json
import os
import random
import threading
import time

import numpy as np
import torch

import model as M
import nvfp4
from optim import Muon
from train import Pool, loader


def groups(m):
    """matrices that become NVFP4, those that share an outer scale together"""
    g = []
    for l in m.layers:
        g += [(l.qa, l.kva), (l.qb,), (l.kvb,), (l.o,), (l.wg, l.wu), (l.wd,)]
    return g


def divergence(x, nw, emb, tx, tnw, temb):
    """mean over all positions of KL(teacher || student); the four sums of head_loss, answers left out"""
    lg = M.lin(M.norm(x, nw), emb).float().log_softmax(-1)
    t = M.lin(M.norm(tx, tnw), temb).float().log_softmax(-1)
    kl = (t.exp() * (t - lg)).sum(-1).mean()
    z = torch.zeros_like(kl.detach())
    return kl, torch.stack((z, z, z, z + 1))


def one(name, a, pools, books):
    cache, teach, weights = 'kv' in name, 'kd' in name, 'w' in name
    m = M.load_export(a.model, 'cuda')
    for l in m.layers:
        l.compile(dynamic=False)
    m.head_loss = torch.compile(M.head_loss, dynamic=False)
    teacher = M.load_export(a.model, 'cuda') if teach else None
    for l in teacher.layers if teach else ():
        l.compile(dynamic=False)
    compare = torch.compile(divergence, dynamic=False)
    mats = [p for k, p in m.named_parameters() if p.ndim >= 2 and k != 'emb' and 'router' not in k]
    rest = [p for k, p in m.named_parameters() if p.ndim < 2 or 'router' in k]
    mu = Muon(mats, a.lr, compiled=False)
    ad = torch.optim.AdamW([dict(params=[m.emb], k=1.0), dict(params=rest, k=0.7)], lr=a.adam, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=True)
    fake = nvfp4.Weights(groups(m)) if weights and name != 'more' else None
    g = torch.Generator().manual_seed(a.seed)
    rng = random.Random(a.seed + 1)
    T = 4096
    rows = a.tokens // T

    def batch():
        nb = int(rows * a.books + rng.random())
        ids, w = pools[T].rows(rows - nb)
        if nb:
            i = torch.randint(0, books.numel() - T - 1, (nb,), generator=g).cuda()
            b = books[i[:, None] + torch.arange(T, device='cuda')[None]]
            ids, w = torch.cat((ids, b)), torch.cat((w, torch.full_like(b, 4)))
        ids, w = ids.long(), torch.roll(w.float() / 4, -1, 1)
        w[:, -1] = 0
        return ids, torch.roll(ids, -1, 1), w

    def forward_backward():
        if fake:
            keep = [p.detach().clone() for p in fake.mats]
            with torch.no_grad():
                torch._foreach_copy_([p.data for p in fake.mats], fake.quantised())
        ids, tgt, w = batch()
        M.QUANT_CACHE = cache
        if teach:
            x, _ = m.body(ids)
            M.QUANT_CACHE = False
            with torch.no_grad():
                tx, _ = teacher.body(ids)
            loss, st = compare(x, m.nf, m.emb, tx, teacher.nf, teacher.emb)
        else:
            loss, st, _ = m.loss(ids, tgt, w)
        loss.backward()
        if fake:
            with torch.no_grad():
                torch._foreach_copy_([p.data for p in fake.mats], keep)
        return loss.detach(), st

    t0 = time.time()
    forward_backward()
    m.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    print(name, 'compiled', round(time.time() - t0, 1), 's', flush=True)
    t0, step, log, acc = time.time(), 0, [], []
    while True:
        f = (time.time() - t0) / a.seconds
        if f >= 1:
            break
        lr = min(1.0, (step + 1) / 30) * max(0.0, 1 - f)
        loss, st = forward_backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0, foreach=True)
        mu.step(a.lr * lr)
        for q in ad.param_groups:
            q['lr'] = a.adam * lr * q['k']
        ad.step()
        m.zero_grad(set_to_none=True)
        acc.append(torch.cat((st, loss[None])))
        step += 1
        if step % 50 == 0:
            v = torch.stack(acc).sum(0).tolist()
            e = dict(run=name, step=step, seconds=round(time.time() - t0, 1), lr=round(a.lr * lr, 6), loss=round(v[4] / 50, 4),
                     answer_acc=round(v[0] / max(1, v[1]), 4), text_loss=round(v[2] / max(1, v[3]), 4))
            log.append(e)
            acc = []
            if step % 200 == 0 or step == 50:
                print(json.dumps(e), flush=True)
    M.export(m, os.path.join(a.out, name), os.path.join(a.data, 'tokenizer.json'))
    with open(os.path.join(a.out, 'qat_log.jsonl'), 'a') as out:
        out.write(''.join(json.dumps(e) + '\n' for e in log))
        out.write(json.dumps(dict(run=name, done=True, steps=step, tokens=step * rows * T, seconds=round(time.time() - t0, 1), args=vars(a),
                                  torch=torch.__version__, gpu=torch.cuda.get_device_name(0))) + '\n')
    print(name, 'done', step, 'steps', flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--data', required=True)
    ap.add_argument('--model', required=True)
    ap.add_argument('--out', required=True, help='gets a checkpoint per run, and qat_log.jsonl')
    ap.add_argument('--seconds', type=float, required=True)
    ap.add_argument('--runs', default='w,more,wkv')
    ap.add_argument('--books', type=float, default=0.15, help='share of the rows that are book text')
    ap.add_argument('--attn', default='cudnn')
    ap.add_argument('--tokens', type=int, default=98304)
    ap.add_argument('--lr', type=float, default=0.0015)
    ap.add_argument('--adam', type=float, default=0.000225)
    ap.add_argument('--seed', type=int, default=1)
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    torch.manual_seed(a.seed)
    M.ATTN = a.attn
    cudnn = a.attn.startswith('cudnn')
    torch.backends.cuda.enable_cudnn_sdp(cudnn)
    torch.backends.cuda.enable_flash_sdp(not cudnn)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_math_sdp(False)
    torch._dynamo.config.recompile_limit = 64
    torch.set_float32_matmul_precision('high')
    pools = {1024: Pool(), 4096: Pool()}
    stop = threading.Event()
    threading.Thread(target=loader, args=(a.data, pools, stop), daemon=True).start()
    while not os.path.exists(os.path.join(a.data, 'info.json')):
        time.sleep(0.2)
    books = torch.from_numpy(np.load(os.path.join(a.data, 'books.npy')).view(np.int16)).cuda()
    while len(pools[4096].shards) < 4:
        time.sleep(0.2)
    for name in a.runs.split(','):
        one(name, a, pools, books)
    stop.set()


if __name__ == '__main__':
    main()
