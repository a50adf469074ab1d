"""NVFP4 as `nibble convert` writes it and as the KV cache keeps it, as floats, in PyTorch.

A value is e2m1 * scale * s2: E2M1 codes, an E4M3 scale for 16 values of a row, a float s2 for a tensor.
s2 = largest magnitude / (6 * 448), so that every block scale fits E4M3.
"""
import torch

CODES = torch.arange(127, dtype=torch.uint8)
DOWN, UP = 3, 6                     # codes of block scales that are tried below and above the plain one


def e4m3_table(dev):
    """the 127 magnitudes that are numbers, in the order of their codes"""
    return CODES.to(dev).view(torch.float8_e4m3fn).float()


def e2m1(x):
    """nearest, ties to even, saturating at 6"""
    m = x.abs().clamp(max=6.0)
    q = torch.where(m < 2, torch.round(m * 2) / 2, torch.where(m < 4, torch.round(m), torch.round(m / 2) * 2))
    return torch.copysign(q, x)


def search(b, s2, table):
    """b [n, 16] -> the same in NVFP4; s2 [n].  The block scale of the least squared error, the lowest of equal ones"""
    plain = b.abs().amax(-1) / (6 * s2)
    at = torch.bucketize(plain.clamp(max=448), (table[1:] + table[:-1]) / 2)
    best = torch.full_like(plain, float('inf'))
    out = torch.zeros_like(b)
    for d in range(-DOWN, UP + 1):
        s = table[(at + d).clamp(1, 126)] * s2
        y = e2m1(b / s[:, None]) * s[:, None]
        e = (y - b).square().sum(-1)
        out = torch.where((e < best)[:, None], y, out)
        best = torch.minimum(e, best)
    return out


class Weights:
    """fake quantisation of a list of matrices [..., rows, cols]; cols a multiple of 16"""

    def __init__(self, groups):
        """groups: tuples of matrices that share one s2 per leading index (gate and up; q_a and kv_a)"""
        self.mats = [m for g in groups for m in g]
        ids, n = [], 0
        for g in groups:
            k = g[0].shape[0] if g[0].ndim == 3 else 1
            for m in g:
                per = m.numel() // k // 16
                ids.append((torch.arange(k, device=m.device) + n).repeat_interleave(per))
            n += k
        self.ids, self.n = torch.cat(ids), n
        self.table = e4m3_table(self.mats[0].device)
        self.search = torch.compile(search, dynamic=False) if self.mats[0].is_cuda else search

    @torch.no_grad()
    def quantised(self):
        """-> a list of tensors like mats"""
        b = torch.cat([m.detach().reshape(-1, 16) for m in self.mats])
        top = torch.zeros(self.n, device=b.device).scatter_reduce(0, self.ids, b.abs().amax(-1), 'amax')
        s2 = (top / (6 * 448)).clamp(min=1e-30)[self.ids]
        y = self.search(b, s2, self.table)
        return [q.view_as(m) for q, m in zip(torch.split(y, [m.numel() // 16 for m in self.mats]), self.mats)]


def round_e4m3(x):
    return x.clamp(-448, 448).to(torch.float8_e4m3fn).float()


def latent(x):
    """rows of the latent cache as nvfp4 (4over6) keeps them; the gradient passes through"""
    with torch.no_grad():
        v = x.float()
        top = v.abs().amax(-1, keepdim=True)
        outer = torch.exp2(torch.ceil(torch.log2((top / 1536).clamp(min=1e-30))))
        b = (v / outer).view(*v.shape[:-1], -1, 16)
        a = b.abs().amax(-1, keepdim=True)
        best = None
        for m in (6.0, 4.0):
            s = round_e4m3(a / m)
            y = e2m1(b / s.clamp(min=1e-9)) * s
            e = (y - b).square().sum(-1, keepdim=True)
            best, err = (y, e) if best is None else (torch.where(e < err, y, best), err)
        q = (best.view_as(v) * outer).to(x.dtype)
    return q + (x - x.detach())


def rope_key(x):
    """rows of the rope key as int8 with a power of two per row; the gradient passes through"""
    with torch.no_grad():
        v = x.float()
        top = v.abs().amax(-1, keepdim=True)
        outer = torch.exp2(torch.ceil(torch.log2((top / 127).clamp(min=1e-30))))
        q = ((v / outer).round().clamp(-127, 127) * outer).to(x.dtype)
    return q + (x - x.detach())
