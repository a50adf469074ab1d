"""Token rows for training: books, stories, retrieval, chat.

prepare(): reads the corpora (.xz), splits off the held-out documents, trains the
tokenizer, encodes the books.  worker(): writes shards of rows until told to stop.
A shard is uint16 [2, rows, T]: token ids, and loss weights in quarters.
"""
import glob
import json
import lzma
import os
import random
import re
import sys
import time

import numpy as np

import chat
import retrieval as rt
import stories as st

BOOKS = ['chilit', 'classic_children_md', 'gitenberg_children', 'dickens_dnov', 'c19_novels']
STORYBOOKS = ['african_storybook_en', 'pratham_storyweaver_en']
SPECIAL = ['<|bos|>', '<|eos|>', '<|pad|>', '<|system|>', '<|user|>', '<|assistant|>', '<|end|>']
BOS, EOS, PAD, SYS, USER, ASST, END = range(7)
ROLE = {'system': SYS, 'user': USER, 'assistant': ASST}
MAIN_RE = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")


def load_docs(path):
    t = lzma.open(path, 'rt', encoding='utf-8').read()
    return [d.strip() for d in t.split('<|endoftext|>') if d.strip()]


def overlap(doc, probes):
    return sum(p in doc for p in probes) / len(probes)


def split_corpora(src, check=False):
    """-> ({file: train docs}, {file: held-out docs}, notes)

    check drops training documents that share text with a held-out one (3 % of 120
    probes of 50 characters); there are none, so the recipe leaves it out."""
    train, held, notes = {}, {}, []
    for f in BOOKS + STORYBOOKS:
        d = load_docs(os.path.join(src, f + '.txt.xz'))
        k = 1 if f in BOOKS else 10            # the last book, or the last 10 picture books
        train[f], held[f] = d[:-k], d[-k:]
    if not check:
        return train, held, notes
    r = random.Random(5)
    probes = {}
    for f, ds in held.items():
        x = '\n'.join(ds)
        probes[f] = [x[i:i + 50] for i in (r.randrange(2000 if f in BOOKS else 0, len(x) - 60) for _ in range(120))]
    for f in train:
        keep = []
        for d in train[f]:
            bad = {g: round(overlap(d, p), 2) for g, p in probes.items()}
            bad = {g: v for g, v in bad.items() if v >= 0.03}
            if bad:
                notes.append([f, d[:60].replace('\n', ' '), len(d), bad])
            else:
                keep.append(d)
        train[f] = keep
    return train, held, notes


def train_tokenizer(texts, vocab=4096):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r'\p{N}'), 'isolated'),
        pre_tokenizers.Split(Regex(MAIN_RE), 'isolated'),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tr = trainers.BpeTrainer(vocab_size=vocab, special_tokens=SPECIAL, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tok.train_from_iterator(texts, tr)
    tok.post_processor = processors.TemplateProcessing(single='<|bos|> $A', pair='<|bos|> $A <|bos|> $B', special_tokens=[('<|bos|>', BOS)])
    return tok


def sample_texts(seed, mb_books, train):
    r = random.Random(seed)
    out = []
    docs = [d for f in BOOKS for d in train[f]]
    tot = sum(map(len, docs))
    for d in docs:                                  # an even slice of every book
        n = int(len(d) * mb_books * 1e6 / tot)
        for _ in range(8):
            i = r.randrange(max(1, len(d) - n // 8))
            out.append(d[i:i + n // 8])
    for f in STORYBOOKS:
        out += train[f]
    for _ in range(14000):
        s = st.story(r)
        out.append(s.text(r.random() < 0.3))
    for _ in range(3000):
        out += [t for _, t in chat.conversation(r)]
        t = rt.t_multi(r, rt.TRAIN_NAMES, 6)
        out += t['needles'] + ['Question: %s\nAnswer: %s\n' % x for x in t['qas']]
        t = rt.t_vt(r, 1, 3)
        out += t['needles']
        out += [x[0] + '\n' + x[1] for x in rt.kv_lines(r, 8)]
    return out


def _enc(a):
    path, docs = a
    from tokenizers import Tokenizer
    tok = Tokenizer.from_file(path)
    out = []
    for d in docs:
        out.append(np.array([BOS] + tok.encode(d, add_special_tokens=False).ids + [EOS], dtype=np.uint16))
    return out


def prepare(src, out, procs=15):
    t0 = time.time()
    os.makedirs(out, exist_ok=True)
    train, held, notes = split_corpora(src)
    tok = train_tokenizer(sample_texts(7, 24, train))
    tp = os.path.join(out, 'tokenizer.json')
    tok.save(tp)
    print('tokenizer', tok.get_vocab_size(), round(time.time() - t0, 1), 's', flush=True)
    json.dump(held, open(os.path.join(out, 'held.json'), 'w'))
    chunks = []
    for f in BOOKS:
        for d in train[f]:
            paras = d.split('\n')
            cur, n = [], 0
            for p in paras:
                cur.append(p); n += len(p)
                if n > 200000:
                    chunks.append('\n'.join(cur)); cur, n = [], 0
            if cur:
                chunks.append('\n'.join(cur))
    from multiprocessing import Pool
    groups = [(tp, chunks[i::procs * 2]) for i in range(procs * 2)] + [(tp, train[f]) for f in STORYBOOKS]
    with Pool(procs) as p:
        enc = p.map(_enc, groups, chunksize=1)
    books = np.concatenate([x for g in enc[:-2] for x in g])
    np.save(os.path.join(out, 'books.npy'), books)
    sb = [x for g in enc[-2:] for x in g]
    np.save(os.path.join(out, 'sb.npy'), np.concatenate(sb))
    np.save(os.path.join(out, 'sb_len.npy'), np.array([len(x) for x in sb]))
    with open(os.path.join(out, 'books.txt'), 'w') as g:
        g.write('\n'.join(chunks))
    info = dict(book_tokens=int(books.size), book_chars=sum(map(len, chunks)), storybook_tokens=int(sum(map(len, sb))), dropped=notes,
                docs={f: len(train[f]) for f in train}, seconds=round(time.time() - t0, 1))
    json.dump(info, open(os.path.join(out, 'info.json'), 'w'), indent=1)
    print(info, flush=True)


class Worker:
    def __init__(self, out, idx):
        from tokenizers import Tokenizer
        self.tok = Tokenizer.from_file(os.path.join(out, 'tokenizer.json'))
        self.r = random.Random(1000000 + idx * 1000)
        self.out = out
        self.idx = idx
        self.k = 0
        sb = np.load(os.path.join(out, 'sb.npy'))
        ln = np.load(os.path.join(out, 'sb_len.npy'))
        e = np.cumsum(ln)
        self.sb = [sb[b - n:b].tolist() for b, n in zip(e, ln)]
        self.bt = os.path.join(out, 'books.txt')
        self.bsize = os.path.getsize(self.bt)
        self.memo = {}

    def enc(self, texts):
        return [e.ids for e in self.tok.encode_batch(texts, add_special_tokens=False)]

    def e1(self, t):
        return self.tok.encode(t, add_special_tokens=False).ids

    def refill(self):
        """pools of haystack paragraphs (lists of lists of ids) and plain stories"""
        r = self.r
        self.sp = []
        ss = [st.story(r) for _ in range(500)]
        self.sp = self.encp([rt.pieces(s.paras, '\n\n') for s in ss])
        with open(self.bt, 'rb') as f:
            f.seek(r.randrange(max(1, self.bsize - 700000)))
            t = f.read(600000).decode('utf-8', 'ignore')
        groups, g = [], []
        for p in t.split('\n')[1:-1]:
            p = p.strip()
            if not p or len(p) > 1200:
                continue
            g.append([x for x in re.split(r'(?<=[.!?]) (?=[A-Z])', p)])
            if len(g) == 6:
                groups.append(g); g = []
        self.bp = self.encp([rt.pieces(g) for g in groups]) or self.sp
        self.np_ = self.encp([rt.noise_paras(r, 6) for _ in range(60)])

    def encp(self, groups):
        flat = [x for g in groups for p in g for x in p]
        ids = iter(self.enc(flat))
        return [[[next(ids) for _ in p] for p in g] for g in groups]

    # ---- documents: (ids, weights)
    def qa(self, qas, ids, w, first=True):
        """questions of weight 1/4, answers of weight 3"""
        texts = []
        for q, a in qas:
            texts += ['Question: %s\nAnswer:' % q, ' %s\n' % a]
        e = self.enc(texts)
        for i in range(0, len(e), 2):
            ids += e[i]; w += [1] * len(e[i])
            ids += e[i + 1]; w += [12] * len(e[i + 1])

    def story(self, limit=None):
        r = self.r
        k = r.random()
        if k < 0.03:
            ids = r.choice(self.sb)
            return ids[:], [4] * len(ids)
        s = st.story(r)
        ids = [BOS] + self.e1(s.text(r.random() < 0.3) + ('\n\n' if k < 0.6 else ''))
        w = [4] * len(ids)
        if k < 0.6:
            f = s.facts[:]
            r.shuffle(f)
            if r.random() < 0.3:
                f = f[:2]
            self.qa(f, ids, w)
        ids.append(EOS); w.append(4)
        return ids, w

    def tasks(self, L):
        """tasks for about L tokens of context"""
        r = self.r
        n = rt.TRAIN_NAMES
        k = r.random()
        one = r.random() < 0.25
        room = max(1, L // 130)
        ts = []
        if k < 0.30:
            ts.append(rt.t_multi(r, n, 1 if one else min(40, r.randint(1, max(2, min(room, 16))))))
        elif k < 0.42:
            ts.append(rt.t_multivalue(r, n, r.choice((2, 3, 4))))
            if L > 500 and not one:
                ts.append(rt.t_multivalue(r, n, r.choice((2, 3))))
        elif k < 0.54:
            ts.append(rt.t_multiquery(r, n, r.choice((2, 3, 4, 6)), r.choice((2, 2, 3))))
        elif k < 0.68:
            ts.append(rt.t_vt(r, r.choice((1, 1, 2, 3)) if L > 300 else 1, r.choice((1, 2, 2, 3, 3))))
        else:
            names = n
            for _ in range(r.randint(2, max(2, min(6, room // 3)))):
                ts.append(rt.t_multi(r, names, r.choice((1, 1, 2, 3))))
        return ts

    def retrieval(self, L):
        """a document of at most L tokens: context, questions, answers"""
        r = self.r
        ids, w = [BOS], [4]
        k = r.random()
        chatty = r.random() < 0.12
        if k < 0.22:                                          # the haystack is the needles
            kv = rt.kv_lines(r, max(4, L // 8))
            nq = max(1, min(len(kv), L // 70)) if r.random() < 0.75 else 1
            lens = self.enc([x[0] + '\n' for x in kv])
            budget = L - 10 - nq * 34
            ctx, used = [], 0
            m = 0
            for x, e in zip(kv, lens):
                if used + len(e) > budget:
                    break
                used += len(e); ctx += e; m += 1
            if m == 0:
                return None
            qs = [(x[1], x[2]) for x in r.sample(kv[:m], min(nq, m))]
        elif k < 0.40:                                        # facts of several stories
            ctx, qs, heroes = [], [], set()
            budget = L - 40
            for _ in range(60):
                s = st.story(r)
                if s.hero in heroes:
                    continue
                e = self.e1(s.text() + '\n\n')
                if len(ctx) + len(e) + 30 > budget:
                    break
                heroes.add(s.hero)
                ctx += e
                f = [x for x in s.facts if s.hero in x[0]]
                r.shuffle(f)
                f = f[:2 if L > 600 else 4]
                qs += f
                budget -= 24 * len(f)
            r.shuffle(qs)
            if not qs:
                return None
            if r.random() < 0.2:
                qs = qs[:1]
        else:
            ts = self.tasks(L)
            vt = any(t['kind'] == 'vt' for t in ts)
            need, order, qs, seen = [], [], [], set()
            for t in ts:
                if any(q in seen for q, _ in t['qas']):
                    continue
                seen.update(q for q, _ in t['qas'])
                if t['ordered']:
                    order.append(list(range(len(need), len(need) + len(t['needles']))))
                need += t['needles']
                q = t['qas'][:]
                r.shuffle(q)
                qs += q
            r.shuffle(qs)
            qs = qs[:max(1, min(len(qs), L // 60, 16))]
            if r.random() < 0.2:
                qs = qs[:1]
            fe = self.enc([y for x in need for y in rt.forms(x)])
            need = [(fe[2 * i], fe[2 * i + 1]) for i in range(len(need))]
            budget = L - 12 - sum(len(x[1]) + 1 for x in need) - 34 * len(qs)
            src = r.choice((self.np_, self.np_, self.sp) if vt else (self.sp, self.sp, self.bp, self.bp, self.np_))
            paras, used = [], 0
            for _ in range(400):
                g = src[int(r.random() * len(src))]
                for p in g:
                    c = sum(map(len, p))
                    if used + c > budget:
                        used = -1
                        break
                    paras.append(p); used += c
                if used < 0:
                    break
            if not paras:
                paras = [self.np_[0][0]]
            ctx = [t for x in rt.place(r, paras, need, order) for t in x]
        if chatty:
            if r.random() < 0.3:
                e = self.e1(r.choice(chat.SYSTEM))
                ids += [SYS] + e + [END]; w += [2] * (len(e) + 2)
            ids += [USER] + ctx; w += [2] * (len(ctx) + 1)
            for i, (q, a) in enumerate(qs[:4]):
                e = self.e1(('Question: ' if r.random() < 0.3 else '') + q)
                if i:
                    ids.append(USER); w.append(2)
                ids += e + [END, ASST]; w += [2] * len(e) + [2, 2]
                e = self.e1(a[:1].upper() + a[1:] + '.' if r.random() < 0.5 else a)
                if e:
                    ids += e + [END]; w += [12] * len(e) + [4]
        else:
            ids += ctx; w += [2] * len(ctx)
            self.qa(qs, ids, w)
            ids.append(EOS); w.append(4)
        return ids, w

    def chat(self):
        ids, w = [BOS], [4]
        for role, text in chat.conversation(self.r):
            e = self.e1(text)
            ids += [ROLE[role]] + e + [END]
            a = role == 'assistant'
            w += [2] + [5 if a else 2] * len(e) + [6 if a else 2]
        return ids, w

    def row(self, T):
        r = self.r
        ids, w = [], []
        long = T > 1024
        style = r.random()
        while len(ids) < T:
            left = T - len(ids)
            k = r.random()
            if long:
                if left > 700 and style < 0.72:
                    L = left if r.random() < 0.55 else r.randint(600, left)
                    d = self.retrieval(L)
                elif k < 0.75 or left < 250:
                    d = self.story()
                else:
                    d = self.chat()
            else:
                if left > 200 and k < 0.42:
                    d = self.retrieval(left if r.random() < 0.2 else r.randint(120, min(left, r.choice((250, 500, 1024)))+60) if left > 260 else left)
                elif k < 0.80 or left < 150:
                    d = self.story()
                else:
                    d = self.chat()
            if d is None or (len(d[0]) > left and d[0][0] == BOS and k < 0.42 and left > 400):
                d = self.story()
            ids += d[0]; w += d[1]
        return ids[:T], w[:T]

    def shard(self, T, n):
        self.refill()
        a = np.zeros((2, n, T), dtype=np.uint16)
        for i in range(n):
            ids, w = self.row(T)
            a[0, i] = ids
            a[1, i] = w
        p = os.path.join(self.out, 'tmp_%d.npy' % self.idx)
        np.save(p, a)
        os.rename(p, os.path.join(self.out, 'sh_%d_%06d_%03d.npy' % (T, self.k, self.idx)))
        self.k += 1


def worker(out, idx, limit=10 ** 9, lengths=(1024, 4096)):
    os.environ['TOKENIZERS_PARALLELISM'] = 'false'
    try:
        os.nice(5)
    except OSError:
        pass
    w = Worker(out, idx)
    n = 0
    while n < limit and not os.path.exists(os.path.join(out, 'stop')):
        T = lengths[-1] if n == 0 and idx % 3 == 0 else lengths[0] if n == 0 else lengths[(n + idx) % len(lengths)]
        w.shard(T, 256 if T == 1024 else 64)
        n += 1


if __name__ == '__main__':
    os.environ['TOKENIZERS_PARALLELISM'] = 'true'
    if sys.argv[1] == 'prepare':
        prepare(sys.argv[2], sys.argv[3])
    elif sys.argv[1] == 'check':
        print(split_corpora(sys.argv[2], True)[2])
    else:
        worker(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 10 ** 9, *[tuple(map(int, sys.argv[5:]))] * (len(sys.argv) > 5))
