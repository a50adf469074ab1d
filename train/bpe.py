"""The model's tokenizer in pure Python (ASCII text): counts tokens exactly as tokenizer.json does."""
import json
import re

_b = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
B2U = {b: chr(b) for b in _b}
B2U.update({b: chr(256 + i) for i, b in enumerate(x for x in range(256) if x not in _b)})
P = r"""!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~"""
PAT = re.compile(r"[%s][A-Za-z]+|[^\r\nA-Za-z\d%s]?[A-Za-z\u00c0-\u024f]+| ?[%s]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+|[^\s]" % (P, P, P))


class BPE:
    def __init__(self, path):
        d = json.load(open(path, encoding='utf-8'))
        self.vocab = d['model']['vocab']
        self.rank = {}
        for i, m in enumerate(d['model']['merges']):
            self.rank[tuple(m) if isinstance(m, list) else tuple(m.split(' '))] = i
        self.added = {t['content']: t['id'] for t in d['added_tokens']}
        self.cache = {}

    def word(self, w):
        c = self.cache.get(w)
        if c is None:
            p = [B2U[b] for b in w.encode('utf-8')]
            while len(p) > 1:
                best = min(range(len(p) - 1), key=lambda i: self.rank.get((p[i], p[i + 1]), 1 << 30))
                if (p[best], p[best + 1]) not in self.rank:
                    break
                p[best:best + 2] = [p[best] + p[best + 1]]
            c = self.cache[w] = [self.vocab[x] for x in p]
        return c

    def encode(self, text, bos=False):
        out = [self.added['<|bos|>']] if bos else []
        for part in re.split(r'(\d)', text):
            if part.isdigit():
                out += self.word(part)
            else:
                for w in PAT.findall(part):
                    out += self.word(w)
        return out
