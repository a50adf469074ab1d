"""DeepSeek-V3 architecture in plain PyTorch, for training and as a check of the export.

The routed experts and the shared one are computed as one wide SwiGLU whose hidden
activations are multiplied by the gates (0 for experts not selected, 1 for the
shared one): exactly the mixture, and fast while the experts are small.
"""
import json
import math
import os
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn

import nvfp4


@dataclass
class Cfg:
    vocab: int = 4096
    hidden: int = 320
    layers: int = 7
    heads: int = 8
    q_rank: int = 192
    kv_rank: int = 512
    nope: int = 64
    rope: int = 64
    vdim: int = 64
    inter: int = 1024
    experts: int = 8
    topk: int = 2
    groups: int = 4
    topk_group: int = 2
    moe_inter: int = 96
    first_dense: int = 1
    scale: float = 2.0
    theta: float = 10000.0
    eps: float = 1e-6
    max_pos: int = 4096


# nibble-tiny, and about 60 M parameters with its cache: the same layers, latents and rope keys
CFG = {'tiny': Cfg(), 'small': Cfg(hidden=768, heads=12, q_rank=256, inter=2304, moe_inter=256)}
ATTN = 'flash_pad'                  # flash_pad, cudnn, cudnn_pad, math
DT = torch.bfloat16
QUANT_CACHE = False                 # latents and rope keys as an nvfp4 cache keeps them (qat.py)


def norm(x, w, eps=1e-6):
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return y.to(x.dtype) * w.to(x.dtype)


def lin(x, w):
    return F.linear(x, w.to(x.dtype))


def rope(x, cos, sin):
    """interleaved pairs in, [evens | odds] out; x [B, T, H, r]"""
    y = x.float()
    a, b = y[..., 0::2], y[..., 1::2]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)


def attend(q, k, v, scale):
    if ATTN.endswith('_pad'):
        o = F.scaled_dot_product_attention(q, k, F.pad(v, (0, q.shape[-1] - v.shape[-1])), is_causal=True, scale=scale)
        return o[..., :v.shape[-1]]
    if ATTN == 'math':
        s = (q.float() @ k.float().transpose(-1, -2)) * scale
        t = s.shape[-1]
        s = s.masked_fill(torch.ones(t, t, dtype=torch.bool, device=s.device).triu(1), float('-inf'))
        return (s.softmax(-1) @ v.float()).to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


class Layer(nn.Module):
    def __init__(self, c, i):
        super().__init__()
        self.c, self.i, self.moe = c, i, i >= c.first_dense
        h = c.hidden

        def mat(o, n, g=1.0, b=None):
            w = torch.randn(*( (b, o, n) if b else (o, n))) * (g * 0.7 / math.sqrt(n))
            return nn.Parameter(w)
        self.n1 = nn.Parameter(torch.ones(h))
        self.n2 = nn.Parameter(torch.ones(h))
        self.qa = mat(c.q_rank, h)
        self.qn = nn.Parameter(torch.ones(c.q_rank))
        self.qb = mat(c.heads * (c.nope + c.rope), c.q_rank)
        self.kva = mat(c.kv_rank + c.rope, h)
        self.kvn = nn.Parameter(torch.ones(c.kv_rank))
        self.kvb = mat(c.heads * (c.nope + c.vdim), c.kv_rank)
        self.o = mat(h, c.heads * c.vdim, 0.3)
        if self.moe:
            e = c.experts + 1
            self.router = nn.Parameter(torch.randn(c.experts, h) * 0.02)
            self.register_buffer('bias', torch.zeros(c.experts))
            self.wg, self.wu = mat(c.moe_inter, h, b=e), mat(c.moe_inter, h, b=e)
            self.wd = mat(h, c.moe_inter, 0.3, b=e)
        else:
            self.wg, self.wu, self.wd = mat(c.inter, h), mat(c.inter, h), mat(h, c.inter, 0.3)

    def attention(self, x, cos, sin):
        c = self.c
        B, T, _ = x.shape
        q = lin(norm(lin(x, self.qa), self.qn), self.qb).view(B, T, c.heads, c.nope + c.rope)
        kv = lin(x, self.kva)
        lat = norm(kv[..., :c.kv_rank], self.kvn)
        kr = rope(kv[..., None, c.kv_rank:], cos, sin)
        if QUANT_CACHE:
            lat, kr = nvfp4.latent(lat), nvfp4.rope_key(kr)
        kvb = lin(lat, self.kvb).view(B, T, c.heads, c.nope + c.vdim)
        q = torch.cat((q[..., :c.nope], rope(q[..., c.nope:], cos, sin)), -1)
        k = torch.cat((kvb[..., :c.nope], kr.expand(B, T, c.heads, c.rope)), -1)
        v = kvb[..., c.nope:]
        o = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), (c.nope + c.rope) ** -0.5)
        return lin(o.transpose(1, 2).reshape(B, T, c.heads * c.vdim), self.o)

    def gates(self, x):
        """-> gates [N, experts], number of tokens of each expert; by ranks, ties to the lower index"""
        c = self.c
        s = F.linear(x.float(), self.router.float()).sigmoid()
        b = s + self.bias
        E = c.experts
        if c.groups > 1:
            g = b.view(-1, c.groups, E // c.groups)
            gs = g.sum(-1) if E // c.groups == 2 else g.topk(2, -1)[0].sum(-1)
            m = (self.rank(gs) < c.topk_group)[..., None].expand_as(g).reshape(-1, E)
            b = b.masked_fill(~m, float('-inf'))
        sel = self.rank(b) < c.topk
        w = s * sel
        w = w / (w.sum(-1, keepdim=True) + 1e-20) * c.scale
        return w, sel.float().sum(0)

    @staticmethod
    def rank(b):
        n = b.shape[-1]
        i = torch.arange(n, device=b.device)
        a, d = b[..., :, None], b[..., None, :]           # rank of the first index among the second
        return ((d > a) | ((d == a) & (i[None, :] < i[:, None]))).sum(-1)

    def ffn(self, x):
        c = self.c
        if not self.moe:
            return lin(F.silu(lin(x, self.wg)) * lin(x, self.wu), self.wd), torch.zeros(c.experts, device=x.device)
        y = x.reshape(-1, c.hidden)
        g, cnt = self.gates(y)
        E1, m = c.experts + 1, c.moe_inter
        h = F.silu(lin(y, self.wg.reshape(E1 * m, -1))) * lin(y, self.wu.reshape(E1 * m, -1))
        g = torch.cat((g, torch.ones_like(g[:, :1])), 1).to(h.dtype)
        h = (h.view(-1, E1, m) * g[:, :, None]).reshape(-1, E1 * m)
        return lin(h, self.wd.permute(1, 0, 2).reshape(c.hidden, E1 * m)).view_as(x), cnt

    def forward(self, x, cos, sin):
        x = x + self.attention(norm(x, self.n1), cos, sin)
        y, cnt = self.ffn(norm(x, self.n2))
        return x + y, cnt


def head_loss(x, nw, emb, tgt, w):
    """weighted sum of cross-entropies, sum of weights, correct answers, answers, plain loss of text"""
    lg = lin(norm(x, nw), emb).float()
    lse = lg.logsumexp(-1)
    ce = lse - lg.gather(-1, tgt[..., None]).squeeze(-1)
    with torch.no_grad():
        a = w > 2.9
        ok = ((lg.argmax(-1) == tgt) & a).sum()
    return (ce * w).sum() / w.sum(), torch.stack((ok.float(), a.sum().float(), (ce.detach() * (w == 1)).sum(), (w == 1).sum().float()))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.emb = nn.Parameter(torch.randn(c.vocab, c.hidden) * 0.02)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.layers))
        self.nf = nn.Parameter(torch.ones(c.hidden))
        self.head_loss = head_loss

    def tables(self, T, dev):
        f = 1.0 / (self.c.theta ** (torch.arange(0, self.c.rope, 2, dtype=torch.float, device=dev) / self.c.rope))
        a = torch.arange(T, device=dev).float()[:, None] * f
        return a.cos()[None, :, None], a.sin()[None, :, None]

    def body(self, ids, dt=None):
        x = F.embedding(ids, self.emb).to(dt or DT)
        cos, sin = self.tables(ids.shape[1], ids.device)
        cnt = []
        for l in self.layers:
            x, n = l(x, cos, sin)
            cnt.append(n)
        return x, cnt

    def loss(self, ids, tgt, w):
        x, cnt = self.body(ids)
        l, st = self.head_loss(x, self.nf, self.emb, tgt, w)
        return l, st, cnt

    def logits(self, ids, dt=None):
        x, _ = self.body(ids, dt)
        return lin(norm(x, self.nf), self.emb)

    def names(self):
        """HF name -> tensor"""
        d = {'model.embed_tokens.weight': self.emb, 'model.norm.weight': self.nf}
        c = self.c
        for i, l in enumerate(self.layers):
            p = 'model.layers.%d.' % i
            d[p + 'input_layernorm.weight'] = l.n1
            d[p + 'post_attention_layernorm.weight'] = l.n2
            a = p + 'self_attn.'
            for n, t in (('q_a_proj', l.qa), ('q_a_layernorm', l.qn), ('q_b_proj', l.qb), ('kv_a_proj_with_mqa', l.kva), ('kv_a_layernorm', l.kvn), ('kv_b_proj', l.kvb), ('o_proj', l.o)):
                d[a + n + '.weight'] = t
            m = p + 'mlp.'
            if l.moe:
                d[m + 'gate.weight'] = l.router
                d[m + 'gate.e_score_correction_bias'] = l.bias
                for j in range(c.experts + 1):
                    e = m + ('experts.%d.' % j if j < c.experts else 'shared_experts.')
                    d[e + 'gate_proj.weight'] = l.wg[j]
                    d[e + 'up_proj.weight'] = l.wu[j]
                    d[e + 'down_proj.weight'] = l.wd[j]
            else:
                d[m + 'gate_proj.weight'], d[m + 'up_proj.weight'], d[m + 'down_proj.weight'] = l.wg, l.wu, l.wd
        return d


TEMPLATE = ("{{ bos_token }}{% for message in messages %}"
            "{% if message['role'] == 'system' %}{{ '<|system|>' + message['content'] + '<|end|>' }}"
            "{% elif message['role'] == 'user' %}{{ '<|user|>' + message['content'] + '<|end|>' }}"
            "{% elif message['role'] == 'assistant' %}{{ '<|assistant|>' + message['content'] + '<|end|>' }}"
            "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")


def export(model, out, tokenizer_json):
    """the checkpoint as transformers reads it: BF16, two shards"""
    from safetensors.torch import save_file
    c = model.c
    os.makedirs(out, exist_ok=True)
    d = {k: (v.detach().float() if k.endswith('bias') else v.detach().to(torch.bfloat16)).contiguous().cpu().clone() for k, v in model.names().items()}
    tot = sum(v.numel() * v.element_size() for v in d.values())
    order = sorted(d, key=lambda k: (0 if 'embed' in k else 2 if k == 'model.norm.weight' else 1, k))
    shards, cur, n = [[]], 0, 0
    for k in order:
        b = d[k].numel() * d[k].element_size()
        if cur + b > tot / 2 + 100000 and len(shards) == 1:
            shards.append([]); cur = 0
        shards[-1].append(k); cur += b
    wm = {}
    for i, s in enumerate(shards):
        f = 'model-%05d-of-%05d.safetensors' % (i + 1, len(shards))
        save_file({k: d[k] for k in s}, os.path.join(out, f), metadata={'format': 'pt'})
        wm.update({k: f for k in s})
    js = lambda n, o: open(os.path.join(out, n), 'w').write(json.dumps(o, indent=2) + '\n')
    js('model.safetensors.index.json', {'metadata': {'total_size': tot}, 'weight_map': dict(sorted(wm.items()))})
    js('config.json', {
        'architectures': ['DeepseekV3ForCausalLM'], 'model_type': 'deepseek_v3', 'attention_bias': False, 'attention_dropout': 0.0,
        'bos_token_id': 0, 'eos_token_id': [6, 1], 'pad_token_id': 2, 'first_k_dense_replace': c.first_dense, 'hidden_act': 'silu',
        'hidden_size': c.hidden, 'initializer_range': 0.02, 'intermediate_size': c.inter, 'kv_lora_rank': c.kv_rank,
        'max_position_embeddings': c.max_pos, 'moe_intermediate_size': c.moe_inter, 'moe_layer_freq': 1, 'n_group': c.groups,
        'n_routed_experts': c.experts, 'n_shared_experts': 1, 'norm_topk_prob': True, 'num_attention_heads': c.heads,
        'num_experts_per_tok': c.topk, 'num_hidden_layers': c.layers, 'num_key_value_heads': c.heads, 'num_nextn_predict_layers': 0,
        'q_lora_rank': c.q_rank, 'qk_nope_head_dim': c.nope, 'qk_rope_head_dim': c.rope, 'rms_norm_eps': c.eps, 'rope_interleave': True,
        'rope_scaling': None, 'rope_theta': c.theta, 'routed_scaling_factor': c.scale, 'scoring_func': 'sigmoid',
        'tie_word_embeddings': True, 'topk_group': c.topk_group, 'topk_method': 'noaux_tc', 'torch_dtype': 'bfloat16',
        'use_cache': True, 'v_head_dim': c.vdim, 'vocab_size': c.vocab})
    js('generation_config.json', {'bos_token_id': 0, 'eos_token_id': [6, 1], 'pad_token_id': 2, 'max_new_tokens': 512, 'do_sample': True, 'temperature': 0.6, 'top_p': 0.9})
    js('tokenizer_config.json', {
        'tokenizer_class': 'PreTrainedTokenizerFast', 'add_bos_token': True, 'add_eos_token': False, 'bos_token': '<|bos|>', 'eos_token': '<|eos|>',
        'pad_token': '<|pad|>', 'clean_up_tokenization_spaces': False, 'model_max_length': c.max_pos, 'chat_template': TEMPLATE})
    if tokenizer_json:
        open(os.path.join(out, 'tokenizer.json'), 'w', encoding='utf-8').write(open(tokenizer_json, encoding='utf-8').read())


def load_export(path, dev='cpu'):
    """the exported BF16 checkpoint back into this module, as float32"""
    from safetensors.torch import load_file
    j = json.load(open(os.path.join(path, 'config.json')))
    m = Model(Cfg(vocab=j['vocab_size'], hidden=j['hidden_size'], layers=j['num_hidden_layers'], inter=j['intermediate_size'], topk=j['num_experts_per_tok'],
                  groups=j['n_group'], topk_group=j['topk_group'], moe_inter=j['moe_intermediate_size'], q_rank=j['q_lora_rank'], heads=j['num_attention_heads'],
                  scale=j['routed_scaling_factor'], theta=j['rope_theta']))
    t = {}
    for f in sorted(set(json.load(open(os.path.join(path, 'model.safetensors.index.json')))['weight_map'].values())):
        t.update(load_file(os.path.join(path, f)))
    with torch.no_grad():
        for k, p in m.names().items():
            p.copy_(t[k].float())
    return m.to(dev)
