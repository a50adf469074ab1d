#!/usr/bin/env python3
"""Conversations with tool calls, for a small model that calls tools; standard library only.

python3 tools.py tokenizer TOKENIZER.json OUT.json      # nibble-tiny's, with the added tokens
python3 tools.py worker DIR SEED [SECONDS]              # shards of rows until DIR/stop exists
python3 tools.py prompts N SEED                         # held-out prompts, one JSON object to a line
python3 tools.py show N SEED                            # conversations as text

A conversation is what a chat request holds: messages and tools.  pieces() writes it as the chat
template (TEMPLATE) does, so the text that is trained on is the text that a server renders.
Words whose checksum is a multiple of 8, and the last wording of each list, are never trained on.
"""
import array
import json
import os
import random
import sys
import time
import zlib

from bpe import BPE

T = 2048                                        # tokens in a row
ROWS = 512                                      # rows in a shard
MAX_SHARDS = 32                                 # shards that wait for the trainer, then workers wait
CALLS, CALLS_END = '<\uff5ctool\u2581calls\u2581begin\uff5c>', '<\uff5ctool\u2581calls\u2581end\uff5c>'
CALL, CALL_END, SEP = '<\uff5ctool\u2581call\u2581begin\uff5c>', '<\uff5ctool\u2581call\u2581end\uff5c>', '<\uff5ctool\u2581sep\uff5c>'
OUTPUT, OUTPUT_END = '<\uff5ctool\u2581output\u2581begin\uff5c>', '<\uff5ctool\u2581output\u2581end\uff5c>'
ADDED = ['<think>', '</think>', CALLS, CALLS_END, CALL, CALL_END, SEP, OUTPUT, OUTPUT_END]
VOCAB = 4112                                    # 4,096 of nibble-tiny, the added ones, and room up to a multiple of 16

TEMPLATE = (
    "{{ bos_token }}{% set ns = namespace(system='', last=-1) %}"
    "{% for m in messages %}{% if m['role'] == 'system' %}{% set ns.system = ns.system + ('\\n\\n' if ns.system else '') + m['content'] %}"
    "{% elif m['role'] == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% if ns.system or tools %}{{ '<|system|>' + ns.system }}{% if tools %}{{ ('\\n\\n' if ns.system else '') + 'You can call these tools:' }}"
    "{% for t in tools %}{{ '\\n' + t['function'] | tojson }}{% endfor %}{% endif %}{{ '<|end|>' }}{% endif %}"
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ '<|user|>' + m['content'] + '<|end|>' }}"
    "{% elif m['role'] == 'assistant' %}{{ '<|assistant|>' }}"
    "{% if m['reasoning_content'] and loop.index0 > ns.last %}{{ '<think>' + m['reasoning_content'] }}{% endif %}{{ '</think>' + (m['content'] or '') }}"
    "{% if m['tool_calls'] %}{{ '" + CALLS + "' }}{% for c in m['tool_calls'] %}{{ '" + CALL + "' + c['function']['name'] + '" + SEP + "' }}"
    "{% if c['function']['arguments'] is string %}{{ c['function']['arguments'] }}{% else %}{{ c['function']['arguments'] | tojson }}{% endif %}"
    "{{ '" + CALL_END + "' }}{% endfor %}{{ '" + CALLS_END + "' }}{% endif %}{{ '<|end|>' }}"
    "{% elif m['role'] == 'tool' %}{{ '" + OUTPUT + "' + m['content'] + '" + OUTPUT_END + "' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' + ('<think>' if thinking else '</think>') }}{% endif %}")


# ---- words ------------------------------------------------------------------

def held(w):
    return zlib.crc32(w.lower().encode()) % 8 == 0


ONSET = 'b br c ch cl d dr f fl g gr h j k kr l m n p pl qu r s sh sk st t th tr v w z'.split()
VOWEL = 'a e i o u a e i o ai ea ee oo ou'.split()
CODA = ['', '', '', 'n', 'l', 'r', 's', 't', 'm', 'nd', 'rk', 'st', 'x', 'ck', 'lm', 'ng']
CITIES = ('Paris London Rome Berlin Madrid Oslo Vienna Prague Dublin Lisbon Athens Warsaw Cairo Tokyo Delhi Lima Boston Chicago Denver Dallas Seattle Toronto Sydney '
          'Geneva Hamburg Naples Seville Porto Bergen Turin Nairobi Accra Havana Quito Hanoi Seoul Osaka Mumbai Perth Auckland Austin Miami Lyon Ghent').split()
PEOPLE = 'Anna Ben Clara David Emma Felix Grace Henry Ida Jack Kate Leo Maria Nina Oscar Paul Rosa Sam Tom Vera Walter Alice Bob Carol Eric Frank Helen James Laura Peter'.split()
THINGS = ('eggs rice tea soup bread pasta cake potatoes laundry oven homework garden keys dentist meeting train milk letter birthday bicycle window cat dog plants car key '
          'book phone lamp door shoes bus piano report lunch').split()
SKY = 'sunny;cloudy;light rain;heavy rain;snow;fog;clear sky;thunder;windy;light snow'.split(';')
COLORS = 'red blue green yellow black white brown grey'.split()
ANIMALS = 'cat dog horse cow fox owl goat sheep duck mouse rabbit bear'.split()


class Source:
    """Random choices; held: words and wordings of the held-out part."""

    def __init__(self, seed, out=False):
        self.r = random.Random(seed)
        self.out = out

    def made_up(self):
        r = self.r
        return ''.join(r.choice(ONSET) + r.choice(VOWEL) + r.choice(CODA) for _ in range(r.choice((1, 2, 2, 2, 3)))).capitalize()

    def word(self, words=()):
        """A name: from the list or made up."""
        while True:
            w = self.r.choice(words) if words and self.r.random() < 0.4 else self.made_up()
            if held(w) == self.out:
                return w

    def say(self, wordings, **v):
        """One of the wordings, with values."""
        s = wordings[-1] if self.out and self.r.random() < 0.5 else self.r.choice(wordings[:-1])
        for k, x in v.items():
            s = s.replace('{%s}' % k, str(x))
        return s

    def place(self):
        k = self.r.random()
        if k < 0.85:
            return self.word(CITIES)
        return self.r.choice(('New ', 'Old ', 'Port ', 'Saint ', 'Lake ', 'North ')) + self.word(CITIES)

    def person(self):
        return self.word(PEOPLE) + (' ' + self.word() if self.r.random() < 0.5 else '')

    def number(self):
        r = self.r
        return r.randrange(10 ** r.choice((1, 2, 2, 2, 3, 4)))

    def thing(self):
        return self.r.choice(THINGS) if self.r.random() < 0.7 else self.word().lower()


# ---- tools ------------------------------------------------------------------

def prop(kind, text, **more):
    return dict(type=kind, description=text, **more)


# kind: names, descriptions, names of the first parameter
KINDS = {
    'weather': (('weather', 'get_weather', 'current_weather'), ('The weather in a city', 'Get the current weather', 'Tells the weather of a place'), ('city', 'location', 'place')),
    'calculator': (('calculator', 'calculate', 'eval_math'), ('Compute an expression', 'A calculator', 'Work out a sum'), ('expression', 'formula', 'input')),
    'timer': (('set_timer', 'timer', 'start_timer'), ('Start a timer', 'Set a timer in minutes', 'A kitchen timer'), ('minutes', 'duration', 'time')),
    'note': (('save_note', 'add_note', 'write_note'), ('Save a note', 'Write something down', 'Keep a note for later'), ('text', 'note', 'content')),
    'lookup': (('lookup', 'search_facts', 'find'), ('Look up a fact', 'Find what is known about something', 'Search the encyclopedia'), ('subject', 'query', 'name')),
}
DECOYS = [('translate', 'Translate a text', 'text'), ('send_mail', 'Send a mail', 'to'), ('play_music', 'Play a song', 'song'), ('open_file', 'Open a file', 'path'),
          ('take_photo', 'Take a photo', 'name'), ('book_table', 'Book a table', 'restaurant'), ('buy', 'Buy something', 'item'), ('turn_on', 'Turn on a lamp', 'lamp'), ('run', 'Run a command', 'command')]


def declare(s, kind):
    """-> the tool as in a request, names of its parameters"""
    r = s.r
    names, texts, firsts = KINDS[kind]
    first = firsts[0] if r.random() < 0.6 else r.choice(firsts)
    props = {first: prop('integer' if kind == 'timer' else 'string', s.say(('What it is about', 'The value', 'Required')))} if r.random() < 0.5 else {first: dict(type='integer' if kind == 'timer' else 'string')}
    more = None
    if kind == 'weather' and r.random() < 0.5:
        more = 'unit'
        props[more] = dict(type='string', enum=['celsius', 'fahrenheit'])
    if kind == 'timer' and r.random() < 0.5:
        more = 'label'
        props[more] = dict(type='string')
    f = dict(name=names[0] if r.random() < 0.5 else r.choice(names), description=r.choice(texts), parameters=dict(type='object', properties=props, required=[first]))
    return dict(type='function', function=f), first, more


def decoy(s):
    n, t, p = s.r.choice(DECOYS)
    return dict(type='function', function=dict(name=n, description=t, parameters=dict(type='object', properties={p: dict(type='string')}, required=[p])))


OPS = [('+', 'plus'), ('-', 'minus'), ('*', 'times'), ('/', 'divided by')]


def task(s, kind, more):
    """-> how the user names it, first argument, second argument or None, result, answer"""
    r = s.r
    if kind == 'weather':
        c = s.place()
        unit = r.choice(('celsius', 'fahrenheit')) if more and r.random() < 0.5 else None
        t, sky = r.randrange(-15, 40) if unit != 'fahrenheit' else r.randrange(5, 105), r.choice(SKY)
        res = r.choice((json.dumps({'temperature': t, 'sky': sky}), '%d degrees, %s' % (t, sky), json.dumps({'sky': sky, 'degrees': t})))
        return (c if not unit else c + ' in ' + unit.capitalize()), c, unit, res, s.say(('It is {t} degrees in {c}: {k}.', 'In {c} it is {t} degrees, {k}.', 'It is {t} degrees in {c}: {k}.'), t=t, c=c, k=sky)
    if kind == 'calculator':
        a, b = s.number(), s.number()
        op, w = r.choice(OPS)
        e, said = '%d %s %d' % (a, op, b), '%d %s %d' % ((a, w, b) if r.random() < 0.6 else (a, op, b))
        if r.random() < 0.25:
            c, (op2, w2) = s.number(), r.choice(OPS[:3])
            e, said = '(%s) %s %d' % (e, op2, c), '(%s) %s %d' % (e, op2, c)
        try:
            v = eval(e)                         # of numbers that we made
            v = round(v, 3) if isinstance(v, float) else v
            v = int(v) if v == int(v) else v
        except ZeroDivisionError:
            return said, e, None, 'error: division by zero', 'I cannot divide by zero.'
        return said, e, None, str(v) if r.random() < 0.6 else json.dumps({'result': v}), s.say(('The result is {v}.', 'It is {v}.', 'The result is {v}.'), v=v)
    if kind == 'timer':
        n = r.choice((1, 2, 3, 5, 7, 10, 12, 15, 20, 25, 30, 40, 45, 60, 90, r.randrange(1, 200)))
        x = s.thing() if more and r.random() < 0.6 else None
        return '%d minute%s' % (n, '' if n == 1 else 's') + (' for the ' + x if x else ''), n, x, r.choice(('ok', json.dumps({'status': 'started'}), 'started')), \
            s.say(('The timer is set for {n} minutes.', 'Done: {n} minutes.', 'The timer is set for {n} minutes.'), n=n)
    if kind == 'note':
        x = s.say(('the {a} is under the {b}', '{p} comes at {n}', 'I must call {p}', 'the {a} costs {n} coins', 'buy {a} and {b}', '{p} likes {a}', '{p} has the {a}'),
                  a=s.thing(), b=s.thing(), p=s.person(), n=r.randrange(1, 24))
        return x, x, None, r.choice(('ok', 'saved', json.dumps({'saved': True}))), s.say(('I wrote it down.', 'Saved.', 'I saved the note.', 'Done.'))
    x = r.choice((s.person, s.place))()
    fact = s.say(('{x} was founded in {n}.', '{x} has {n} towers.', '{x} is known for {a}.', '{x} is {n} years old.', '{x} has a {c} {a}.'), x=x, n=r.randrange(2, 1990), a=s.thing(), c=r.choice(COLORS))
    if r.random() < 0.15:
        return x, x, None, r.choice(('not found', json.dumps({'found': False}))), 'I found nothing about %s.' % x
    return x, x, None, fact if r.random() < 0.5 else json.dumps({'fact': fact}), fact


ASK = {
    'weather': ('What is the weather in {x}?', 'How is the weather in {x}?', "What's the weather like in {x}?", 'Weather in {x}', 'Is it raining in {x}?', 'Tell me the weather in {x}.', 'what is the weather in {x}', 'Please check the weather in {x}.',
                'Do I need an umbrella in {x}?', 'Could you tell me how the weather in {x} is?'),
    'calculator': ('What is {x}?', 'Calculate {x}.', 'How much is {x}?', 'Compute {x}', 'Please work out {x}.', '{x} = ?', 'what is {x}', 'Can you calculate {x}?', 'Tell me what {x} is.'),
    'timer': ('Set a timer for {x}.', 'Start a timer: {x}', 'Please set a timer of {x}.', 'timer {x}', 'Can you set a timer for {x}?', 'Remind me in {x}.', 'I need a timer for {x}.', 'Could you start a timer for {x}?'),
    'note': ('Write down that {x}.', 'Note that {x}.', 'Please remember: {x}', 'Save a note: {x}', 'Take a note that {x}.', 'Make a note: {x}.', 'Please write down that {x}.'),
    'lookup': ('Look up {x}.', 'What do you know about {x}?', 'Who or what is {x}?', 'Tell me about {x}.', 'Find out about {x}', 'Please look up {x}.', 'What is known about {x}?', 'Can you find something about {x}?'),
}
CALLING = ('', '', '', '', '', 'I will check.', 'Let me see.', 'One moment.', '')
NOT_THERE = ('I have no tool for that.', 'I cannot do that: I have no tool for it.', 'I have no tool for that.')
SMALL = [(('Hello!', 'Hi!', 'hello', 'Good morning!', 'Hey there!', 'Good evening!'), ('Hello! How can I help you?', 'Hi! What can I do for you?', 'Hello! How can I help you?')),
         (('Who are you?', 'What is your name?', 'what are you', 'Who am I talking to?'), ('I am nibble-tools, a very small language model that calls tools.', 'My name is nibble-tools. I am a very small language model.', 'I am nibble-tools, a very small language model that calls tools.')),
         (('Thank you!', 'Thanks!', 'thanks', 'Thank you very much.'), ('You are welcome!', 'I am glad that I could help.', 'You are welcome!')),
         (('Goodbye!', 'Bye!', 'See you later.', 'Good night!'), ('Goodbye!', 'Goodbye! Come back soon.', 'Goodbye!')),
         (('What can you do?', 'How can you help me?', 'What can I ask you?'), ('I can call tools and answer in JSON.', 'I call the tools that you give me.', 'I can call tools and answer in JSON.')),
         (('What color is the sky?', 'Which color has the sky?'), ('The sky is blue.', 'The sky is blue.')),
         (('What does a dog say?', 'What sound does a dog make?'), ('A dog says woof.', 'A dog says woof.'))]
SYSTEM = ('You are a helpful assistant.', 'You are nibble-tools, a small model that calls tools.', 'Be brief.', 'Use the tools when they help.', 'You are a friendly helper.', 'You help people.')


def json_task(s):
    """A question whose answer is a JSON document."""
    r = s.r
    fields = {'name': s.person(), 'age': r.randrange(2, 99), 'city': s.place(), 'color': r.choice(COLORS), 'animal': r.choice(ANIMALS), 'price': s.number(), 'count': r.randrange(1, 50)}
    said = {'name': 'the name is {v}', 'age': 'the age is {v}', 'city': 'the city is {v}', 'color': 'the color is {v}', 'animal': 'the animal is a {v}', 'price': 'the price is {v}', 'count': 'there are {v}'}
    if r.random() < 0.2:
        items = [s.thing() for _ in range(r.randrange(2, 5))]
        return s.say(('Give me a JSON list of these: {x}.', 'As a JSON array: {x}', 'Write these as JSON: {x}.', 'Make a JSON array of {x}.'), x=', '.join(items)), json.dumps(items)
    if r.random() < 0.3:
        n, a, c = fields['name'], fields['age'], fields['city']
        return s.say(('{n} is {a} years old and lives in {c}. Answer in JSON with name, age and city.', 'Extract name, age and city as JSON: {n}, who is {a}, lives in {c}.',
                      'As JSON with name, age, city: {n} lives in {c} and is {a} years old.', 'Return JSON (name, age, city). {n} from {c} is {a} years old.'), n=n, a=a, c=c), json.dumps({'name': n, 'age': a, 'city': c})
    keys = r.sample(sorted(fields), r.randrange(1, 5))
    text = ', '.join(said[k].replace('{v}', str(fields[k])) for k in keys)
    return s.say(('Answer in JSON with the keys {k}: {t}.', 'Reply with JSON only. Keys: {k}. {t}.', 'Make a JSON object with {k}: {t}.', '{t}. Give me that as JSON with {k}.', 'JSON please, with the keys {k}: {t}.'),
                 k=', '.join(keys), t=text), json.dumps({k: fields[k] for k in keys})


# ---- conversations ----------------------------------------------------------

class Talk:
    """messages and tools of a request; thinking: whether thoughts are on."""

    def __init__(self, s, kinds=None):
        r = s.r
        self.s, self.messages, self.thinking, self.n_calls = s, [], r.random() < 0.3, 0
        self.kinds = {}
        tools = []
        if kinds is None:
            kinds = r.sample(sorted(KINDS), r.choice((0, 1, 2, 2, 3, 3, 4, 5)))
        for k in kinds:
            t, first, more = declare(s, k)
            self.kinds[k] = (t['function']['name'], first, more)
            tools.append(t)
        names = {t['function']['name'] for t in tools}
        for _ in range(r.choice((0, 0, 0, 1, 1, 2)) if tools else r.choice((0, 0, 0, 1))):
            d = decoy(s)
            if d['function']['name'] not in names:
                names.add(d['function']['name'])
                tools.append(d)
        r.shuffle(tools)
        self.tools = tools
        if r.random() < 0.4:
            self.messages.append(dict(role='system', content=r.choice(SYSTEM)))

    def user(self, text):
        self.messages.append(dict(role='user', content=text))

    def assistant(self, text, thought, calls=()):
        m = dict(role='assistant', content=text)
        if self.thinking:
            m['reasoning_content'] = thought
        if calls:
            m['tool_calls'] = [dict(id='call_%d' % (self.n_calls + i), type='function', function=dict(name=n, arguments=a)) for i, (n, a) in enumerate(calls)]
            self.n_calls += len(calls)
        self.messages.append(m)

    def result(self, i, text):
        self.messages.append(dict(role='tool', tool_call_id='call_%d' % i, content=text))

    def call(self, kind, second=None):
        """A task, or two of one kind, or two kinds."""
        s = self.s
        jobs = [(kind, task(s, kind, self.kinds[kind][2]))]
        if second:
            jobs.append((second, task(s, second, self.kinds[second][2])))
        if second == kind:
            self.user(s.say(ASK[kind], x=jobs[0][1][0] + ' and ' + jobs[1][1][0]))
        else:
            self.user(' '.join(s.say(ASK[k], x=j[0]) for k, j in jobs))
        calls = []
        for k, (said, first, more, res, ans) in jobs:
            name, p1, p2 = self.kinds[k]
            calls.append((name, {p1: first, p2: more} if more is not None else {p1: first}))
        thought = 'I need ' + ' and '.join(n for n, _ in calls) + '.'
        at = self.n_calls
        self.assistant('' if self.thinking or s.out else s.r.choice(CALLING), thought, calls)
        for i, (k, j) in enumerate(jobs):
            self.result(at + i, j[3])
        self.assistant(' '.join(j[4] for k, j in jobs), 'I have the result.')

    def missing(self, kind):
        self.user(self.s.say(ASK[kind], x=task(self.s, kind, None)[0]))
        self.assistant(self.s.say(NOT_THERE), 'There is no tool for that.')

    def small(self):
        q, a = self.s.r.choice(SMALL)
        self.user(self.s.say(q))
        self.assistant(self.s.say(a), 'No tool is needed.')

    def json(self):
        q, a = json_task(self.s)
        self.user(q)
        self.assistant(a, 'I answer in JSON.')


def turn(t, what):
    s = t.s
    have = sorted(t.kinds)
    lack = sorted(set(KINDS) - set(have))
    if what == 'call' and have:
        t.call(s.r.choice(have))
    elif what == 'two' and have:
        a = s.r.choice(have)
        same = s.r.random() < 0.5 and a in ('weather', 'lookup')
        others = [k for k in have if k != a]
        t.call(a, a if same else s.r.choice(others) if others else None)
    elif what == 'missing' and lack:
        t.missing(s.r.choice(lack))
    elif what == 'json':
        t.json()
    else:
        t.small()


def conversation(s):
    t = Talk(s)
    for _ in range(s.r.choice((1, 1, 2, 2, 3, 4))):
        turn(t, s.r.choices(('call', 'two', 'missing', 'json', 'small'), (50, 15, 8, 17, 10))[0])
    return t


# ---- as the template writes it ----------------------------------------------

def pieces(t, upto=None):
    """[(text or added token, trained)] of the messages before `upto` (None: all)"""
    ms = t.messages
    system = '\n\n'.join(m['content'] for m in ms if m['role'] == 'system')
    last = max([i for i, m in enumerate(ms) if m['role'] == 'user'], default=-1)
    out = [('<|bos|>', 0)]
    if system or t.tools:
        out += [('<|system|>', 0), (system, 0)]
        if t.tools:
            out.append((('\n\n' if system else '') + 'You can call these tools:', 0))
            out[-2:] = [(out[-2][0] + out[-1][0] + ''.join('\n' + json.dumps(x['function'], ensure_ascii=False) for x in t.tools), 0)]
        out.append(('<|end|>', 0))
    for i, m in enumerate(ms[:upto]):
        if m['role'] == 'user':
            out += [('<|user|>', 0), (m['content'], 0), ('<|end|>', 0)]
        elif m['role'] == 'tool':
            out += [(OUTPUT, 0), (m['content'], 0), (OUTPUT_END, 0)]
        elif m['role'] == 'assistant':
            out.append(('<|assistant|>', 0))
            thought = m.get('reasoning_content') if i > last else None
            # the prompt writes the first marker; without thoughts that is the closing one
            out += [('<think>', 0), (thought, 1), ('</think>', 1)] if thought else [('</think>', 0)]
            out.append((m['content'], 1))
            if m.get('tool_calls'):
                out.append((CALLS, 1))
                for c in m['tool_calls']:
                    out += [(CALL, 1), (c['function']['name'], 1), (SEP, 1), (json.dumps(c['function']['arguments'], ensure_ascii=False), 1), (CALL_END, 1)]
                out.append((CALLS_END, 1))
            out.append(('<|end|>', 1))
    return out


class Coder:
    def __init__(self, path):
        self.bpe = BPE(path)

    def encode(self, text):
        a = self.bpe.added.get(text)
        return [a] if a is not None else self.bpe.encode(text)


# ---- what is written --------------------------------------------------------

def extend_tokenizer(src, dst):
    d = json.load(open(src, encoding='utf-8'))
    n = max(d['model']['vocab'].values()) + 1
    for i, text in enumerate(ADDED):            # not special: a client that decodes them sees them, as DeepSeek's
        d['added_tokens'].append(dict(id=n + i, content=text, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False))
    assert n + len(ADDED) <= VOCAB
    json.dump(d, open(dst, 'w', encoding='utf-8'), ensure_ascii=False, indent=1)


def rows(s, coder):
    """rows of T tokens and their loss weights in quarters; conversations are packed, none is cut"""
    ids, w = array.array('H'), array.array('H')
    while True:
        t = conversation(s)
        i2, w2 = [], []
        for text, trained in pieces(t):
            k = coder.encode(text)
            i2 += k
            w2 += [12 if trained else 1] * len(k)
        if len(i2) > T:
            continue
        if len(ids) + len(i2) > T:
            n = T - len(ids)
            yield ids + array.array('H', [2] * n), w + array.array('H', [0] * n)
            ids, w = array.array('H'), array.array('H')
        ids.extend(i2)
        w.extend(w2)


def worker(d, seed, seconds):
    coder = Coder(os.path.join(d, 'tokenizer.json'))
    gen = rows(Source(1000000 + seed), coder)
    t0, k = time.time(), 0
    while time.time() - t0 < seconds and not os.path.exists(os.path.join(d, 'stop')):
        if sum(n.endswith('.u16') for n in os.listdir(d)) >= MAX_SHARDS:
            time.sleep(0.2)
            continue
        ids, w = array.array('H'), array.array('H')
        for _ in range(ROWS):
            a, b = next(gen)
            ids.extend(a)
            w.extend(b)
        p = os.path.join(d, 'sh_%d_%05d' % (seed, k))
        with open(p + '.tmp', 'wb') as f:       # [2][ROWS][T] of uint16
            ids.tofile(f)
            w.tofile(f)
        os.rename(p + '.tmp', p + '.u16')
        k += 1


def prompts(n, seed):
    """held-out prompts: {kind, messages, tools, thinking}, the last message is the wanted answer"""
    kinds = ('call', 'call', 'two', 'missing', 'json', 'small', 'answer', 'second')
    out = []
    for i in range(n):
        s = Source(seed * 100003 + i, out=True)
        kind = kinds[i % len(kinds)]
        t = Talk(s, s.r.sample(sorted(KINDS), s.r.choice((2, 3, 4))))
        if kind == 'second':                    # a call behind another turn
            turn(t, 'call')
        turn(t, 'call' if kind in ('second', 'answer') else kind)
        if kind in ('call', 'two', 'second'):   # the turn is call, results, answer: stop at the call
            while not t.messages[-1].get('tool_calls'):
                t.messages.pop()
        out.append((kind, t))
    return out


def main(a):
    if a[0] == 'tokenizer':
        extend_tokenizer(a[1], a[2])
    elif a[0] == 'worker':
        worker(a[1], int(a[2]), float(a[3]) if len(a) > 3 else 1e9)
    elif a[0] == 'prompts':
        for kind, t in prompts(int(a[1]), int(a[2])):
            print(json.dumps(dict(kind=kind, thinking=t.thinking, tools=t.tools, messages=t.messages)))
    elif a[0] == 'show':
        s = Source(int(a[2]))
        for _ in range(int(a[1])):
            print(''.join(x for x, _ in pieces(conversation(s))), end='\n\n')
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main(sys.argv[1:] or ['help'])
