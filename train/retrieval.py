"""Facts to plant in a long text, and questions about them; pure standard library.

A task is a dict: kind, needles (sentences), ordered (keep their order), qas
(question, answer).  Paragraphs are lists of pieces: "First sentence.",
" Next sentence.", " Last one.\n"; joining all pieces gives the text, so the
same code lays out strings and lists of token ids.
"""
import stories as st

NAMES = sorted(set(st.GIRLS + st.BOYS))
TRAIN_NAMES = [n for i, n in enumerate(NAMES) if i % 6]        # every 6th is new in evaluation
EVAL_NAMES = NAMES
PLACES = ['in the old barn', 'under the bridge', 'behind the church', 'in the attic', 'by the river', 'in the garden', 'under the stairs',
          'on the roof', 'in the cellar', 'near the mill', 'in the cave', 'beside the lake', 'in the tower', 'behind the school',
          'in the red box', 'under the bed', 'in the library', 'at the station', 'in the tall tree', 'on the small island', 'in the blue boat',
          'at the market', 'in the bakery', 'by the well', 'in the forest', 'behind the wall', 'in the kitchen', 'under the table', 'in the shed',
          'on the hill', 'at the farm', 'inside the clock', 'in the castle', 'near the fountain', 'in the stable', 'under a white stone']
OBJ = ['key', 'ring', 'map', 'letter', 'coin', 'lamp', 'book', 'bell', 'drum', 'hat', 'cup', 'knife', 'mirror', 'rope', 'shell', 'flute', 'crown',
       'scarf', 'clock', 'box', 'pen', 'whistle', 'mask', 'feather', 'button', 'basket', 'spoon', 'candle', 'sword', 'violin']
MAT = ['silver', 'golden', 'wooden', 'old', 'red', 'blue', 'green', 'small', 'broken', 'shiny', 'black', 'white', 'brass', 'glass', 'paper', 'stone', 'rusty', 'heavy', 'tiny', 'yellow']
CAT = {'color': st.COLORS, 'food': ['soup', 'bread', 'honey', 'rice', 'cheese', 'cake', 'fish', 'corn', 'pie', 'jam', 'nuts', 'plums', 'figs', 'beans', 'melon', 'peas'],
       'animal': st.ANIMALS, 'game': ['chess', 'tag', 'marbles', 'cards', 'football', 'catch', 'hopscotch', 'hide and seek', 'darts', 'bowls'],
       'day': st.DAYS, 'flower': ['rose', 'daisy', 'tulip', 'lily', 'violet', 'poppy', 'iris', 'lotus', 'jasmine', 'orchid'],
       'tree': ['oak', 'pine', 'birch', 'willow', 'apple tree', 'cedar', 'palm', 'elm', 'maple', 'ash'],
       'season': ['spring', 'summer', 'autumn', 'winter'], 'drink': ['milk', 'tea', 'water', 'juice', 'cocoa', 'lemonade', 'coffee']}
KEYADJ = ['brave', 'quiet', 'clever', 'lazy', 'happy', 'wild', 'gentle', 'proud', 'sleepy', 'hungry', 'cold', 'warm', 'bright', 'dark', 'swift', 'slow', 'soft', 'loud', 'round', 'thin',
          'kind', 'grand', 'plain', 'rare', 'young', 'sharp', 'sweet', 'bitter', 'empty', 'early', 'late', 'royal', 'humble', 'lucky', 'merry', 'noble']
KEYN = ['otter', 'river', 'castle', 'window', 'garden', 'meadow', 'lantern', 'wagon', 'mountain', 'ribbon', 'harbor', 'candle', 'forest', 'bridge', 'kitten', 'sparrow', 'orchard',
        'pillow', 'basket', 'thunder', 'cottage', 'island', 'pebble', 'saddle', 'compass', 'blanket', 'chimney', 'feather', 'hammer', 'ladder', 'market', 'needle', 'oyster', 'palace', 'rabbit',
        'shadow', 'temple', 'valley', 'walnut', 'acorn', 'barrel', 'copper', 'dragon', 'engine', 'falcon', 'goblet', 'helmet', 'insect', 'jacket', 'kettle', 'lizard', 'mirror', 'nutmeg',
        'onion', 'parrot', 'quilt', 'rocket', 'silver', 'turnip', 'velvet', 'whisper', 'yarn', 'zebra', 'anchor', 'butter', 'circus', 'dinner', 'elbow', 'fiddle', 'guitar', 'honey']
SYL = 'ba be bo da de do fa fe ga go ka ki ko la le li lo ma me mi mo na ne no pa pe po ra re ri ro sa se so ta te to va ve vi wa wi zo zu'.split()
NOISE = ['The grass is green.', 'The sky is blue.', 'The sun is yellow.', 'Here we go.', 'There and back again.', 'The water is cold.', 'The wind is soft today.', 'A bird sings in the tree.',
         'The road is long.', 'The leaves are falling.', 'The clouds move slowly.', 'It is a quiet day.', 'The river runs to the sea.', 'The moon is round.', 'Snow is white.', 'The night is dark.',
         'The bread is warm.', 'A dog barks far away.', 'The hills are high.', 'The stars are bright.', 'Rain falls on the roof.', 'The fields are wide.', 'The door is closed.', 'Time goes by.']


def digits(r, n):
    return str(r.randrange(10 ** (n - 1), 10 ** n))


def made(r, n=None):
    return ''.join(r.choice(SYL) for _ in range(n or r.choice((2, 3, 3)))).capitalize()


def key(r):
    k = r.random()
    return r.choice(KEYADJ) + '-' + r.choice(KEYN) if k < 0.5 else r.choice(KEYN) if k < 0.85 else made(r).lower()


def value(r):
    k = r.random()
    return digits(r, 5) if k < 0.6 else digits(r, r.choice((4, 6, 7))) if k < 0.8 else r.choice(KEYN) if k < 0.9 else made(r)


def uniq(r, f, n):
    s, seen = [], set()
    for _ in range(50 * n):
        x = f()
        if x not in seen:
            seen.add(x); s.append(x)
            if len(s) == n:
                break
    return s


# ---- families: (r, names, n) -> list of n (sentence, question, answer), same template, distinct keys
def f_secret(r, names, n):
    d = r.choice((5, 5, 5, 4, 6))
    w = r.choice(('secret number', 'lucky number', 'secret code', 'house number'))
    t = r.choice(('The {w} of {k} is {v}.', "{k}'s {w} is {v}."))
    ks = r.sample(names, n)
    return [(t.format(w=w, k=k, v=v), 'What is the %s of %s?' % (w, k), v) for k in ks for v in [digits(r, d)]]


def f_magic(r, names, n):
    ks = uniq(r, lambda: key(r), n)
    t, q = r.choice((('One of the special magic numbers for {k} is: {v}.', 'What is the special magic number for {k}?'),
                     ('The magic number for {k} is {v}.', 'What is the magic number for {k}?'), ('Remember that {k} stands for {v}.', 'What does {k} stand for?')))
    d = r.choice((5, 5, 7, 4))
    return [(t.format(k=k, v=v), q.format(k=k), v) for k in ks for v in [digits(r, d)]]


def f_word(r, names, n):
    ks = uniq(r, lambda: key(r), n)
    t, q = r.choice((('The password for {k} is {v}.', 'What is the password for {k}?'), ('The word for {k} is {v}.', 'What is the word for {k}?'), ('In this land, {k} means {v}.', 'What does {k} mean in this land?')))
    vs = uniq(r, lambda: r.choice(KEYN) if r.random() < 0.5 else made(r), n)
    return [(t.format(k=k, v=v), q.format(k=k), v) for k, v in zip(ks, vs)]


def f_keeps(r, names, n):
    ks = r.sample(names, n)
    t, q = r.choice((('{k} keeps the {o} {p}.', 'Where does {k} keep the {o}?'), ('{k} hid the {o} {p}.', 'Where did {k} hide the {o}?'), ('{k} found the {o} {p}.', 'Where did {k} find the {o}?'), ('{k} left the {o} {p}.', 'Where did {k} leave the {o}?')))
    out = []
    for k in ks:
        o = r.choice(MAT) + ' ' + r.choice(OBJ)
        p = r.choice(PLACES)
        out.append((t.format(k=k, o=o, p=p), q.format(k=k, o=o), p))
    return out


def f_fav(r, names, n):
    ks = r.sample(names, n)
    c = r.choice(list(CAT))
    t = r.choice(("{k}'s favorite {c} is {v}.", 'The favorite {c} of {k} is {v}.'))
    return [(t.format(k=k, c=c, v=v), 'What is the favorite %s of %s?' % (c, k), v) for k in ks for v in [r.choice(CAT[c])]]


def f_lives(r, names, n):
    ks = r.sample(names, n)
    t, q = r.choice((('{k} lives in the town of {v}.', 'In which town does {k} live?'), ('{k} was born in the town of {v}.', 'In which town was {k} born?'), ('{k} has a {a} named {v}.', None)))
    out = []
    for k in ks:
        v = made(r)
        if q is None:
            a = r.choice(st.PETS)
            out.append((t.format(k=k, a=a, v=v), 'What is the name of the %s of %s?' % (a, k), v))
        else:
            out.append((t.format(k=k, v=v), q.format(k=k), v))
    return out


def f_has(r, names, n):
    ks = r.sample(names, n)
    out = []
    for k in ks:
        o = r.choice(MAT) + ' ' + r.choice(OBJ)
        w = r.choice(('the ' + r.choice(st.JOBS), r.choice(names)))
        out.append(('%s gave the %s to %s.' % (k, o, w), 'Who did %s give the %s to?' % (k, o), w))
    return out


FAM_NUM = [f_secret, f_magic]
FAM_WORD = [f_word, f_lives]
FAM_PLACE = [f_keeps, f_fav, f_has]
FAM = FAM_NUM * 2 + FAM_WORD + FAM_PLACE


def t_multi(r, names, n, fams=FAM, kind='multikey'):
    fs = r.choice(fams)(r, names, n)
    return dict(kind=kind, needles=[x[0] for x in fs], ordered=False, qas=[(x[1], x[2]) for x in fs])


def t_multivalue(r, names, n):
    k = key(r) if r.random() < 0.5 else r.choice(names)
    d = r.choice((5, 5, 4))
    vs = uniq(r, lambda: digits(r, d), n)
    return dict(kind='multivalue', needles=['One of the special magic numbers for %s is: %s.' % (k, v) for v in vs], ordered=True,
                qas=[('What are all the special magic numbers for %s?' % k, ', '.join(vs))])


def t_multiquery(r, names, n, q):
    fs = r.choice((f_magic, f_secret))(r, names, n)
    pick = r.sample(fs, min(q, n))
    ks = [x[1].rsplit(' ', 1)[1][:-1] for x in pick]
    what = pick[0][1].rsplit(' ', 2)
    head = what[0].replace('What is the', 'What are the').replace('What does', 'What do').replace('number', 'numbers').replace('secret code', 'secret codes')
    if 'stand' in pick[0][1]:
        qs = 'What do %s stand for?' % ' and '.join(x[1].split()[2] for x in pick)
    else:
        qs = '%s %s %s?' % (head, what[1], ' and '.join(ks))
    return dict(kind='multiquery', needles=[x[0] for x in fs], ordered=False, qas=[(qs, ', '.join(x[2] for x in pick))])


def t_vt(r, chains, hops):
    vs = uniq(r, lambda: ''.join(r.choice('ABCDEFGHJKLMNPQRSTUVWXYZ') for _ in range(3)), chains * (hops + 1))
    needles, qas, seqs = [], [], []
    for c in range(chains):
        v = vs[c * (hops + 1):(c + 1) * (hops + 1)]
        x = digits(r, 5)
        seqs.append(['VAR %s = %s.' % (v[0], x)] + ['VAR %s = VAR %s.' % (b, a) for a, b in zip(v, v[1:])])
        qas.append(('Which variables hold the value %s?' % x, ', '.join(v)))
    idx = [c for c in range(chains) for _ in range(hops + 1)]
    r.shuffle(idx)
    its = [iter(s) for s in seqs]
    needles = [next(its[c]) for c in idx]
    return dict(kind='vt', needles=needles, ordered=True, qas=qas)


def kv_lines(r, n):
    """n lines of key -> value; (line, key question, value)"""
    k = r.random()
    if k < 0.5:
        t, q = r.choice((('The magic number for {k} is {v}.', 'What is the magic number for {k}?'), ('One of the special magic numbers for {k} is: {v}.', 'What is the special magic number for {k}?')))
    elif k < 0.8:
        t, q = '{k}: {v}', 'What is the value of {k}?'
    else:
        t, q = 'The word for {k} is {v}.', 'What is the word for {k}?'
    ks = uniq(r, lambda: key(r), n)
    d = r.choice((5, 5, 4))
    vs = [digits(r, d) if k < 0.65 else (r.choice(KEYN) if r.random() < 0.5 else made(r)) for _ in ks] if k >= 0.5 and k < 0.8 else [digits(r, d) if k < 0.5 else (r.choice(KEYN) if r.random() < 0.5 else made(r)) for _ in ks]
    return [(t.format(k=a, v=b), q.format(k=a), b) for a, b in zip(ks, vs)]


def pieces(paras, end='\n'):
    """list of paragraphs (lists of sentences) -> paragraphs of pieces"""
    out = []
    for i, p in enumerate(paras):
        q = [p[0]] + [' ' + s for s in p[1:]]
        q[-1] += end if i + 1 == len(paras) else '\n'
        out.append(q)
    return out


def noise_paras(r, n):
    out = []
    for _ in range(n):
        k = r.randrange(4, 9)
        out.append(NOISE[:5] if r.random() < 0.5 else [r.choice(NOISE) for _ in range(k)])
    return pieces(out)


def place(r, paras, needles, ordered_groups):
    """Insert needles (inline, own paragraph) into paras (lists of pieces) at random places.

    ordered_groups: lists of needle indices that must keep their order.
    Returns a flat list of pieces."""
    slots = [(p, i) for p, q in enumerate(paras) for i in range(len(q))]
    n = len(needles)
    pos = sorted(r.choice(slots) for _ in range(n)) if n else []
    order = list(range(n))
    r.shuffle(order)
    for g in ordered_groups:
        at = sorted(order.index(i) for i in g)
        for a, i in zip(at, sorted(g)):
            order[a] = i
    ins = {}
    for s, i in zip(pos, order):
        ins.setdefault(s, []).append(i)
    out = []
    for p, q in enumerate(paras):
        for i in range(len(q)):
            for j in ins.get((p, i), ()):
                out.append(needles[j][1 if i == 0 else 0])
            out.append(q[i])
    return out


def forms(s):
    return (' ' + s, s + '\n')
