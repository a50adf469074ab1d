#!/usr/bin/env python3
"""log.jsonl -> loss.svg (pure standard library): python3 train/plot.py"""
import json
import os

d = os.path.dirname(os.path.abspath(__file__))
rows = [json.loads(x) for x in open(os.path.join(d, 'log.jsonl'))]
W, H, L, R, T, B = 720, 360, 50, 60, 30, 40
xs = [r['tokens'] / 1e9 for r in rows]
X = lambda v: L + v / max(xs) * (W - L - R)
Y = lambda v: T + (4.0 - v) / 3.2 * (H - T - B)
A = lambda v: T + (1.0 - v) * (H - T - B)
o = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">' % (W, H), '<rect width="100%" height="100%" fill="white"/>']
for i in range(9):
    v = 0.8 + 0.4 * i
    o.append('<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.1f</text>' % (L, Y(v), W - R, L - 6, Y(v) + 4, v))
for i in range(6):
    o.append('<text x="%d" y="%.1f">%.1f</text>' % (W - R + 6, A(i / 5) + 4, i / 5))
t = 0.0
while t <= max(xs):
    o.append('<text x="%.1f" y="%d" text-anchor="middle">%.2f</text>' % (X(t), H - B + 16, t)); t += 0.25
o.append('<text x="%d" y="%d" text-anchor="middle">tokens, G</text>' % ((L + W - R) / 2, H - 8))
S = [('text_loss_1024', '#1f77b4', Y, 'text loss, rows of 1,024 (nats/token, left)'), ('text_loss_4096', '#d62728', Y, 'text loss, rows of 4,096 (left)'), ('answer_acc_4096', '#2ca02c', A, 'answer tokens right, rows of 4,096 (right)')]
for n, (k, c, f, name) in enumerate(S):
    p = [(X(r['tokens'] / 1e9), max(T, min(H - B, f(r[k])))) for r in rows if k in r]
    o.append('<path fill="none" stroke="%s" d="M%s"/>' % (c, 'L'.join('%.1f %.1f' % q for q in p)))
    o.append('<text x="%d" y="%d" fill="%s">%s</text>' % (L + 100, H - B - 44 + 15 * n, c, name))
o.append('</svg>')
open(os.path.join(d, 'loss.svg'), 'w').write('\n'.join(o) + '\n')
