"""Muon for the matrices (batched over equal shapes), AdamW for the rest."""
import torch


def newton_schulz(g):
    x = g.bfloat16()
    t = x.shape[-2] > x.shape[-1]
    if t:
        x = x.mT
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True) + 1e-7).bfloat16()
    for _ in range(5):
        a = x @ x.mT
        b = -4.7750 * a + 2.0315 * (a @ a)
        x = 3.4445 * x + b @ x
    return x.mT if t else x


class Muon:
    def __init__(self, params, lr=0.02, wd=0.1, momentum=0.95, compiled=True):
        self.lr, self.wd, self.mom = lr, wd, momentum
        g = {}
        for p in params:
            g.setdefault(tuple(p.shape[-2:]), []).append(p)
        self.groups = list(g.items())
        self.buf = [torch.zeros(sum(p.numel() for p in ps) // (s[0] * s[1]), *s, device=ps[0].device) for s, ps in self.groups]
        self.ns = torch.compile(newton_schulz, dynamic=False) if compiled else newton_schulz

    @torch.no_grad()
    def step(self, lr):
        for (s, ps), buf in zip(self.groups, self.buf):
            g = torch.cat([p.grad.view(-1, *s) for p in ps])
            buf.lerp_(g, 1 - self.mom)
            u = self.ns(g.lerp_(buf, self.mom)).float()
            u.mul_(-lr * max(1.0, s[0] / s[1]) ** 0.5)
            parts = torch.split(u, [p.numel() // (s[0] * s[1]) for p in ps])
            torch._foreach_mul_(ps, 1 - lr * self.wd)
            torch._foreach_add_(ps, [q.view_as(p) for p, q in zip(ps, parts)])
