"""Simple English stories with facts about them; pure standard library, seeded.

story(rng) -> Story(title, paras, facts, tags, hero); paras is a list of
paragraphs, each a list of sentences; facts is a list of (question, answer).

Templates use {a|b|c} for a choice (nested freely) and $name for variables.
"""
import random
import re

# ---------------------------------------------------------------- expansion
_cache = {}


def _parse(s, i=0, depth=0):
    """-> (list of parts, next index); a part is str, ('v', name) or ('c', options)"""
    out, buf = [], []
    n = len(s)
    while i < n:
        ch = s[i]
        if ch == '{':
            if buf:
                out.append(''.join(buf)); buf = []
            opts = []
            i += 1
            while True:
                p, i = _parse(s, i, depth + 1)
                opts.append(p)
                if s[i] == '}':
                    i += 1
                    break
                i += 1
            out.append(('c', opts))
        elif depth and ch in '|}':
            break
        elif ch == '$':
            if buf:
                out.append(''.join(buf)); buf = []
            j = i + 1
            while j < n and (s[j].isalnum() or s[j] == '_'):
                j += 1
            out.append(('v', s[i + 1:j]))
            i = j
        else:
            buf.append(ch)
            i += 1
    if buf:
        out.append(''.join(buf))
    return out, i


def _emit(parts, rng, env, out):
    for p in parts:
        if p.__class__ is str:
            out.append(p)
        elif p[0] == 'v':
            out.append(env[p[1]])
        else:
            o = p[1]
            _emit(o[int(rng.random() * len(o))], rng, env, out)


_fix1 = re.compile(r'(^|[.!?]"? |^"|[.!?] "|: "|, ")([a-z])')
_fixa = re.compile(r'\b([Aa]) (?=[aeiouAEIOU])')
_spc = re.compile(r'  +')


def ex(rng, env, s, cap=True):
    p = _cache.get(s)
    if p is None:
        p = _cache[s] = _parse(s)[0]
    out = []
    _emit(p, rng, env, out)
    t = _spc.sub(' ', ''.join(out)).strip()
    t = _fixa.sub(lambda m: m.group(1) + 'n ', t)
    if cap and t[:1].islower():
        t = t[0].upper() + t[1:]
    return t


_sent = re.compile(r'(?<=[.!?])\s+(?=[A-Z"])')


def sentences(t):
    """Split at a sentence end, keeping quoted speech together."""
    out, cur, q = [], [], 0
    for piece in _sent.split(t):
        cur.append(piece)
        q += piece.count('"')
        if q % 2 == 0:
            out.append(' '.join(cur)); cur = []; q = 0
    if cur:
        out.append(' '.join(cur))
    return out


# ---------------------------------------------------------------- word lists
GIRLS = '''Lily Mia Anna Sara Emma Lucy Ella Zoe Ruby Nora Rosa Ivy Daisy Molly Amy Clara Hana Jane Kate Lena Maya Nina
Olive Penny Sophie Tess Vera Wendy Alice Beth Cora Dora Elsie Fay Grace Holly Iris Julia Kitty Leila Mary Nell Polly
Rita Susie Tilly Amina Zuri Neema Asha Priya Meena Lila Tara Anjali Wanja Akinyi Nandi Sana Kavya Martha Hetty Bella
Flora Greta Heidi Ida June Lotte Mabel Opal Pearl Robin Stella Thea Una Violet Willa Yara Zelda Bibi Chipo Esi'''.split()
BOYS = '''Tom Tim Ben Sam Max Leo Jack Finn Noah Adam Dan Eli Fred George Hugo Ian Jim Ken Luke Mark Ned Oscar Paul Ray
Simon Theo Victor Will Zack Alex Bob Carl David Eric Frank Gus Henry Ivan Joe Kofi Liam Milo Nick Owen Peter Ralph
Sid Toby Walter Kamau Juma Baraka Tau Sipho Ravi Arjun Gopal Kabir Mohan Anil Otis Rufus Arthur Basil Cyril Dick
Edgar Felix Gilbert Harry Isaac Jonas Karl Lars Moses Nat Oliver Percy Quinn Robert Stan Ted Vince Wes Yusuf Zane Abel'''.split()
PETN = '''Pip Dot Bobo Coco Momo Fluff Rusty Biscuit Pepper Sunny Patch Bubbles Whiskers Ginger Muffin Nibbles Hop Button
Fern Clover Maple Pebble Acorn Bramble Dusty Spot Tiny Fuzzy Socks Waffles Pickle Peanut Mango Teddy Honey Mittens
Snowy Shadow Tango Ziggy Bingo Duke Poppy Kiki Lulu Tuppy Bramwell Hazel Snuffles Twig'''.split()
ANIMALS = ['rabbit', 'mouse', 'fox', 'bear', 'squirrel', 'hedgehog', 'frog', 'duck', 'kitten', 'puppy', 'lamb', 'pig',
           'goat', 'elephant', 'monkey', 'lion', 'turtle', 'bird', 'owl', 'deer', 'mole', 'beaver', 'otter', 'badger',
           'penguin', 'zebra', 'giraffe', 'hippo', 'crab', 'chick', 'donkey', 'pony', 'calf', 'raccoon', 'panda', 'parrot']
WILD = ['bird', 'rabbit', 'squirrel', 'fox', 'hedgehog', 'turtle', 'frog', 'duck', 'mouse', 'butterfly', 'kitten',
        'puppy', 'deer', 'owl', 'lamb', 'bee', 'crow', 'lizard', 'beetle', 'goat']
PETS = ['dog', 'cat', 'rabbit', 'hen', 'pony', 'parrot', 'puppy', 'kitten', 'hamster', 'goat', 'duck', 'mouse']
COLORS = ['red', 'blue', 'green', 'yellow', 'purple', 'orange', 'pink', 'white', 'black', 'brown', 'gray', 'golden', 'silver']
SIZES = ['big', 'small', 'tiny', 'little', 'huge', 'long', 'round', 'tall']
TOYS = ['ball', 'doll', 'kite', 'toy car', 'toy boat', 'teddy bear', 'drum', 'puzzle', 'top', 'robot', 'train', 'whistle',
        'rope', 'bucket', 'book', 'hat', 'scarf', 'balloon', 'bell', 'flute', 'toy horse', 'marble', 'umbrella', 'mitten',
        'lantern', 'key', 'ring', 'basket', 'blanket', 'bag', 'spoon', 'cup', 'box of crayons', 'paint brush', 'yo-yo']
FOODS = ['apple', 'cake', 'cookie', 'pear', 'banana', 'mango', 'pie', 'sandwich', 'carrot', 'peach', 'bun', 'orange',
         'biscuit', 'pancake', 'melon', 'corn cob', 'plum', 'muffin', 'potato', 'fig']
DISHES = ['soup', 'bread', 'cake', 'apple pie', 'pancakes', 'porridge', 'cookies', 'rice', 'stew', 'jam', 'pudding', 'noodles', 'buns']
FLOWERS = ['rose', 'daisy', 'sunflower', 'tulip', 'bean', 'pumpkin', 'tomato', 'mango tree', 'apple tree', 'strawberry',
           'carrot', 'lemon tree', 'pea', 'corn', 'lily', 'melon']
OUT = ['the park', 'the garden', 'the forest', 'the river', 'the beach', 'the hill', 'the farm', 'the field', 'the pond',
       'the meadow', 'the market', 'the playground', 'the village', 'the orchard', 'the lake', 'the stream', 'the woods', 'the yard']
HIDE = ['under the bed', 'behind the sofa', 'in the kitchen', 'under the old tree', 'behind the shed', 'in the tall grass',
        'on the roof', 'in the basket', 'under the table', 'near the well', 'in the barn', 'behind the door', 'by the gate',
        'in the attic', 'under the stairs', 'next to the pond', 'on top of the shelf', 'in the garden', 'under the bench',
        'in the laundry', 'behind the big rock', 'in the toy box', 'beside the stream', 'under a pile of leaves', 'in the bushes',
        'in the cellar', 'inside an old boot', 'on the window sill', 'in the cupboard', 'behind the curtain']
REL = ['mother', 'father', 'grandmother', 'grandfather', 'aunt', 'uncle', 'mom', 'dad', 'grandma', 'grandpa']
WHO_F = {'mother', 'grandmother', 'aunt', 'mom', 'grandma', 'sister'}
KIDS = ['friend', 'cousin', 'brother', 'sister', 'neighbor']
ADJ = ['kind', 'brave', 'clever', 'quiet', 'curious', 'happy', 'gentle', 'shy', 'funny', 'busy', 'careful', 'cheerful',
       'stubborn', 'sleepy', 'proud', 'playful', 'patient', 'noisy', 'friendly', 'hungry']
WEATHER = ['sunny', 'windy', 'cold', 'warm', 'cloudy', 'rainy', 'snowy', 'foggy', 'hot', 'bright']
FEARS = ['the dark', 'thunder', 'the deep water', 'big dogs', 'spiders', 'high places', 'loud noises', 'the old bridge', 'the first day of school', 'shadows on the wall']
JOBS = ['baker', 'farmer', 'fisherman', 'teacher', 'painter', 'tailor', 'doctor', 'shopkeeper', 'gardener', 'miller', 'carpenter', 'bus driver', 'postman', 'shepherd', 'blacksmith']
NUMW = ['two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine', 'ten', 'twelve']
BUILD = ['tree house', 'boat', 'kite', 'bird house', 'sand castle', 'swing', 'raft', 'little bridge', 'tower of blocks', 'snow man', 'go-cart', 'tent', 'dog house', 'puppet theater']
DAYS = ['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday']
DAYTIME = ['morning', 'afternoon', 'evening']


class Story:
    __slots__ = ('title', 'paras', 'facts', 'tags', 'hero', 'kind', 'theme', 'moral')

    def text(self, title=False):
        t = '\n'.join(' '.join(p) for p in self.paras)
        return (self.title + '\n\n' + t) if title else t


class S:
    """A story being written."""

    def __init__(self, rng, hero=None, animal=None):
        self.rng = rng
        self.env = e = {}
        self.used = set()
        self.paras = []
        self.facts = []
        r = rng.random()
        if animal is None and hero is None and r < 0.38:
            animal = self.pick(ANIMALS)
        self.is_animal = animal is not None
        if self.is_animal:
            g = rng.random() < 0.5
            e['H'] = self.name(PETN + (BOYS if g else GIRLS)[:30])
            e['kind'] = animal
        else:
            g = rng.random() < 0.5
            e['H'] = hero or self.name(BOYS if g else GIRLS)
            if hero:
                g = hero in BOYS
            e['kind'] = 'boy' if g else 'girl'
            if hero and hero not in BOYS and hero not in GIRLS:
                e['kind'] = 'child'
        self.pron('', g)
        e['adj'] = self.pick(ADJ)
        e['adj2'] = self.pick(ADJ)
        e['place'] = self.pick(OUT)
        e['place2'] = self.pick(OUT)
        e['col'] = self.pick(COLORS)
        e['col2'] = self.pick(COLORS)
        e['toy'] = self.pick(TOYS)
        e['food'] = self.pick(FOODS)
        e['w'] = self.pick(WEATHER)
        e['day'] = self.pick(DAYS)
        e['rel'] = rel = self.pick(REL)
        f = rel in WHO_F
        e['rhe'], e['rhis'], e['rhim'] = ('she', 'her', 'her') if f else ('he', 'his', 'him')
        e['Rel'] = rel.capitalize()
        # second character
        if self.is_animal and rng.random() < 0.8:
            g2 = rng.random() < 0.5
            e['F'] = self.name(PETN)
            e['fkind'] = self.pick(ANIMALS)
        else:
            g2 = rng.random() < 0.5
            e['F'] = self.name(BOYS if g2 else GIRLS)
            e['fkind'] = 'boy' if g2 else 'girl'
        self.pron('f', g2)
        e['num'] = self.pick(NUMW)

    def pron(self, p, male):
        self.env.update({p + 'he': 'he' if male else 'she', p + 'him': 'him' if male else 'her',
                         p + 'his': 'his' if male else 'her', p + 'self': 'himself' if male else 'herself'})

    def pick(self, lst):
        for _ in range(8):
            x = lst[int(self.rng.random() * len(lst))]
            if x not in self.used:
                break
        self.used.add(x)
        return x

    name = pick

    def p(self, *templates):
        """a paragraph from templates; None entries are skipped"""
        t = ' '.join(ex(self.rng, self.env, x) for x in templates if x)
        self.paras.append(sentences(t))

    def maybe(self, pr, t):
        return t if self.rng.random() < pr else None

    def fact(self, q, a):
        self.facts.append((ex(self.rng, self.env, q), ex(self.rng, self.env, a, False)))

    def raw(self, t):
        return ex(self.rng, self.env, t, False)


def lower1(t):
    return t[:1].lower() + t[1:] if t[:4] not in ('The ', ) else 'the ' + t[4:]


# ---------------------------------------------------------------- shared bits
def opening(s):
    e = s.env
    who = '$adj $kind' if s.rng.random() < 0.7 else 'little $kind'
    e['who'] = s.raw(who).lower()
    if s.is_animal:
        o = s.rng.choice([
            'Once upon a time, {there was|there lived} a $who {named|called} $H. $H lived {near|beside|not far from} $place.',
            '$H was a $who. $He had {soft $col fur|a short tail|bright eyes|a small home under a tree|$num brothers and sisters} and {loved to play in|often went to|liked to look at} $place.',
            'In {a quiet corner of|a small house near|a hole close to} $place lived a $who named $H.',
            'Long ago, when the animals could {talk|speak}, a $who {called|named} $H lived by $place.',
            '{Near|Close to} $place there was a {cozy|small|warm} {nest of grass|house|home}. A $who named $H lived there with $his $rel.',
            'There was once a $who whose name was $H. {Everyone in|All the animals near} $place knew $him.',
        ])
    else:
        o = s.rng.choice([
            'Once upon a time, {there was|there lived} a $who {named|called} $H. $H lived {in a small house|with $his $rel} near $place.',
            '$H was a $who who {loved|liked} {to play|to sing|to read|to run|to draw|to climb|to ask questions|stories|animals}.',
            'One $w {morning|afternoon|day}, a $who named $H {went|walked} to $place.',
            'In a {small|quiet|busy} {town|village} near $place there lived a $who named $H.',
            '{It was a $w day.|The day was $w.|It was $day, and it was $w.} $H, a $who, {was at home|sat by the window|stood at the door}.',
            '$H lived with $his $rel in {a $col house|a house with a $col door|a small house on a hill}. $He was a $who.',
            '{Do you know $H?|Let me tell you about $H.|This is a story about $H.} $H was a $who who lived near $place.',
            '$H {woke up early|jumped out of bed|opened $his eyes} {on $day|one $w morning}. $He was a $who, and $he {could not wait to start the day|had a lot to do|was ready for anything}.',
        ])
    s.opened_place = '$place' in o
    e['He'] = e['he'].capitalize(); e['His'] = e['his'].capitalize()
    e['Fhe'] = e['fhe'].capitalize(); e['Rhe'] = e['rhe'].capitalize()
    if '$col fur' not in o:
        pass
    return o


CLOSE = [
    'From that day on, $H {always|never forgot to be $adj|and $F were good friends}.',
    'That night, $H {slept well|fell asleep with a smile|dreamed about the day|told $his $rel all about it}.',
    '{It was a day|It was something} $H {would always remember|never forgot}.',
    '$H {smiled all the way home|went home happy|was very happy|felt warm inside}.',
    'The end.',
    'And they all lived happily {ever after|together}.',
    '$His heart was {full of joy|light}, and $he {sang a little song|hummed all the way home}.',
    '"{What a day|What a good day|This was the best day}," said $H.',
    'When $he {was in bed that night|closed $his eyes that night}, $H {thought about it all again|smiled in the dark}.',
]


def close(s, extra=None):
    c = s.rng.choice(CLOSE)
    if c.startswith('From that day'):
        c = s.rng.choice(['From that day on, $H was {a little more careful|a little braver|a better friend}.',
                          'From then on, $H remembered {what had happened|that day}.', 'After that day, $H {smiled more|was never the same again}.'])
    if extra and s.rng.random() < 0.75:
        return s.p(extra, s.maybe(0.6, c))
    s.p(c)


ASIDE = [
    'A $col2 butterfly {flew by|sat on a flower}.', 'The sun {was shining|was warm|shone on the leaves}.', 'The birds {were singing|sang in the trees}.',
    'A soft wind {blew|moved the leaves}.', '{Somewhere|Far away}, a dog barked.', 'The sky was {blue|gray|clear|full of small clouds}.',
    'It was {very quiet|a little cold|nice and warm}.', 'The air smelled {of flowers|of rain|of fresh bread|of grass}.',
    'The bells of the village rang.', 'An old cart rolled by.', 'Two {boys|girls|ducks|hens} ran {past|by}.', 'A cat was sleeping on a wall.',
]


def aside(s, pr=0.35):
    return s.rng.choice(ASIDE) if s.rng.random() < pr else None


# ---------------------------------------------------------------- plots
def lost_thing(s):
    e = s.env
    e['thing'] = s.raw('$col $toy')
    a, b, c = s.pick(HIDE), s.pick(HIDE), s.pick(HIDE)
    e.update(a=a, b=b, c=c)
    s.p(opening(s), '$H had a $thing. {It was $his favorite thing in the world.|$He took it everywhere.|It was a gift from $his $rel.|$He loved it very much.}', aside(s))
    s.p('{One day|One $w morning|On $day|But one day}, the $thing was {gone|not there|missing}. "{Oh no|Where is it}?" {cried|said|asked} $H. "{Where is my $toy|I cannot find my $toy}?"'.replace('"{Oh no|Where is it}?"', '"{Oh no!|Oh dear!}"'),
        '$H {felt|was} {sad|worried|very upset|ready to cry}.')
    s.p('{First, $he|$He} looked $a. {It was not there.|There was {only dust|nothing|only an old sock}.} {Then|Next} $he looked $b. {The $toy was not there either.|It was not there.|Nothing!}',
        s.maybe(0.4, '$He even looked {in the soup pot|up at the sky|under $his own hat}, but no.'))
    helper = s.rng.random()
    if helper < 0.6:
        s.p('$F {saw|heard|met} $him and asked, "{What is wrong|Why are you sad|What are you looking for}, $H?" "{I lost my $thing|My $thing is gone|I cannot find my $toy}," said $H.',
            '"{Do not worry|Do not cry|Cheer up}," said $F. "{I will help you|We will look together|Two pairs of eyes are better than one}."')
        s.p('{Together they|So they|The two friends} {looked and looked|searched everywhere}. {At last|After a long time|Then}, $F {looked|went to look} $c{.|, just to be sure.} {And there it was!|There was the $toy!|"Here it is!" $fhe called.}',
            '$H {hugged|held} {the $toy|it} {tight|close} and said, "{Thank you, $F!|Oh, thank you!|You are a true friend!}"')
        s.fact('Who {helped $H|helped $H find the $toy}?', '$F')
    else:
        s.p('$H {sat down and thought|tried to remember|closed $his eyes and thought}. "{Where was I|Where did I play|Where did I last see it} {yesterday|last night|this morning}?" {$He remembered!|Then $he knew!}'.replace('? "', '?" '),
            '$H ran {as fast as $he could|quickly} and looked $c. {There it was!|The $thing was there!|And there was the $toy, {waiting|all alone}!}')
        s.p('$H {laughed|jumped for joy|danced around the room}. "{Now I will take better care of you|I will never lose you again|I am so glad}," $he {said|told the $toy}.')
    close(s, s.rng.choice(['$H {put the $toy in a safe place|kept the $toy near $him|never left the $toy outside again}.', '$H {learned|now knew} that {it helps to stay calm|good friends help each other|things should be put away}.']))
    s.fact('What did $H lose?', '{a|the} $thing'.replace('{a|the}', 'a'))
    s.fact('Where was the $toy of $H?', '$c')
    s.fact('What color was the $toy of $H?', '$col')
    s.title = s.raw('{$H and the {Lost|Missing} $toy|The {Lost|Missing} $toy|Where Is the $toy?}')
    s.tags = [e['toy'], 'a lost ' + e['toy'], 'losing something']
    s.theme = 'finding something that was lost'


def share(s):
    e = s.env
    fd = s.rng.random() < 0.5
    e['x'] = e['food'] if fd else e['toy']
    s.p(opening(s), s.rng.choice(['$H had a {friend|good friend|cousin} {named|called} $F.', '$H and $F {were friends|played together every day|lived next door to each other}.']))
    s.p('{One day|On $day|One $w day}, {they|$H and $F} {found|saw} a {big|lovely|nice} $col $x {at|near} $place. "{It is mine|I saw it first|I want it}!" said $H. "{No, it is mine|No, I saw it first|But I want it too}!" said $F.',
        'They {pulled|pushed and shouted|argued} {and pulled|for a long time}. {Nobody was happy.|Soon both of them were angry.|$F began to cry.}')
    s.p('{Then|Just then} $his $rel came {by|along|out of the house} and asked, "{What is the matter|Why are you fighting|What is all this noise}?" {They told $rhim everything.|$H told $rhim about the $x.}',
        '$H\'s $rel {thought|smiled|sat down} and said, "{A thing is more fun when you share it|Friends are worth more than a $x|If you share, you will both be happy}."')
    if fd:
        s.p('$H {looked at|thought about} $F and {felt sorry|was ashamed|felt bad}. {$He took a knife and cut the $x in two.|$He broke the $x into two parts.} "{Here|Take this}," $he said, "{this half is for you|the bigger part is for you}."',
            '$F {smiled|stopped crying|was surprised}. "{Thank you|That is very kind}," $fhe said. {They sat {under a tree|on the grass|side by side} and ate.|The $x tasted sweet.}')
        s.fact('What did $H {cut|divide} {for $F|in two}?', 'the $x')
    else:
        s.p('$H {looked at|thought about} $F and {felt sorry|was ashamed|felt bad}. "{You can play first|You may have it first|Let us take turns}," $he said. $F {smiled|was surprised|stopped crying}. "{Thank you|That is kind}, $H!"',
            '{They took turns all {day|afternoon}.|First $F played, and then $H played.} {It was much more fun than playing alone.|They laughed a lot.}')
        s.fact('Who played {first with the $x|with the $x first} in the story of $H?', '$F')
    close(s, '{From that day|After that}, $H and $F {shared everything|always shared}.')
    s.fact('What did $H and $F find?', 'a $col $x')
    s.fact('Where did $H and $F find the $x?', '{at|near} $place'.replace('{at|near}', 'near'))
    s.fact('Who told $H and $F to share?', "$H's $rel")
    for p in s.paras:
        for i, t in enumerate(p):
            p[i] = t.replace(' at ' + e['place'], ' near ' + e['place'])
    s.title = s.raw('{$H and $F|Sharing the $x|The $col $x}')
    s.tags = ['sharing', 'two friends', e['x']]
    s.theme = 'sharing'


def help_animal(s):
    e = s.env
    e['an'] = s.pick(WILD)
    e['trap'] = s.rng.choice(['a thorn bush', 'a deep hole', 'an old net', 'the mud', 'a fence', 'a bucket', 'a hollow log', 'a tangle of string'])
    s.p(opening(s), '{One $w day|One day|On $day}, $H {walked|was walking|went} {to|toward} $place2.', aside(s))
    s.p('{Suddenly|Then|On the way}, $he heard a {soft|small|sad|strange} {sound|cry|voice}. {It was|There was} a {little|small|$col2} $an, {caught|stuck} in $trap. {It could not get out.|It was very afraid.|It was tired and hurt.}',
        '"{Poor thing|Do not be afraid|Oh, you poor $an}," said $H. "I will help you."'.replace('afraid,"', 'afraid,"'))
    s.p('$H {worked slowly|was very gentle|was careful} {and pulled|as $he pulled} the $an {free|out}. {Its leg was hurt|It was hungry and weak|One of its feet was sore}, so $he {gave it {some water|a bit of $food}|wrapped it in $his scarf|carried it home}.',
        s.maybe(0.6, '{Every day for {a week|many days}|For $num days}, $H {took care of|looked after|fed} the $an.'), s.maybe(0.5, '$His $rel said, "You have a good heart, $H."'))
    s.p('{Soon|At last|One morning}, the $an {was well again|could run again|was strong}. {It looked at $H one more time and went away.|$H let it go, although $he was a little sad.}')
    k = s.rng.random()
    if k < 0.6:
        e['trouble'] = s.rng.choice(['lost $his way in the fog', 'fell into the cold stream', 'dropped $his key in the tall grass', 'could not find the path in the dark', 'was followed by an angry dog'])
        e['trouble'] = s.raw(e['trouble'])[0].lower() + s.raw(e['trouble'])[1:]
        s.p('{Many days later|One month later|Some time later}, $H $trouble. {$He called for help, but nobody came.|$He was afraid and alone.} {Then a small friend appeared.|Then something moved in the grass.} It was the $an!',
            'The $an {had not forgotten|remembered $him}. {It {showed $him what to do|led $him to safety|helped $him}.|It came close and {showed|led} $him the way.} {Soon $H was safe.|In a little while, $H was safe at home.}')
        s.fact('Who helped $H {later|in the end}?', 'the $an')
        ending = '{A kind deed is never lost|One good turn deserves another|Kindness comes back}.'
    else:
        ending = '{Sometimes|Now and then}, $H saw the $an near $place2, and it {seemed to smile|was not afraid of $him}.'
    close(s, ending)
    s.fact('What animal did $H help?', 'a $an')
    s.fact('Where was the $an stuck when $H found it?', 'in $trap')
    s.title = s.raw('{$H and the $an|The $an in $trap|A Friend in Need}')
    s.tags = [e['an'], 'helping an animal', 'kindness']
    s.theme = 'kindness'


def afraid(s):
    e = s.env
    e['fear'] = s.pick(FEARS)
    s.p(opening(s), '{But $H had a secret.|There was one problem.|There was only one thing $he did not like.} $H was afraid of $fear. {Nobody knew.|The others laughed at $him.|$He did not tell anyone.|It made $him feel small.}')
    s.p('{One $w {evening|day}|On $day|One day}, $F {asked|said}, "{Will you come with me to|Let us go to} $place." {$H wanted to go, but $he thought of $fear.|$H shook $his head. "I cannot," $he said.} "{Why not|What is it|What are you afraid of}?" asked $F. {$H looked down.|$H was quiet for a long time.} "I am afraid of $fear," $he {said softly|whispered}.')
    s.p('$F did not laugh. "{I was afraid of $fear too|Everyone is afraid of something|Being afraid is not bad}," $fhe said. "{Take my hand|Hold my hand|Stay close to me}. We will {go slowly|count to ten|sing a song} together."',
        s.rng.choice(['They {went|walked} {one small step at a time|very slowly}. {$H\'s heart went boom, boom, boom.|$H\'s knees were shaking.} But {nothing bad happened|step by step it became easier}.',
                      'They {sang|counted} until $H {felt better|was calm}. "{It is not so bad|I am still afraid, but less}," said $H.',
                      '$F gave $him a {little lamp|smooth stone|small $col stone} to hold. "{It will make you brave|When you hold it, think of me}," $fhe said.']))
    s.p('{The next day|After that|In the end}, $H {tried it alone|did it all by $self}. {It was hard, but $he did it.|$He took a deep breath and went.} "{I did it|Look at me|I am brave now}!" $he {shouted|called}.'.replace('$self', e['self']),
        '{$F clapped.|Everyone clapped.|$F was proud of $him.}')
    close(s, '{Being brave does not mean you are never afraid.|It is easier to be brave with a friend.|Now $H helps others who are afraid.}')
    s.fact('What was $H afraid of?', '$fear')
    s.fact('Who helped $H to be brave?', '$F')
    s.title = s.raw('{Brave $H|$H Is Not Afraid|How $H Became Brave}')
    s.tags = ['being brave', 'someone who is afraid', e['fear']]
    s.theme = 'being brave'


def broke(s):
    e = s.env
    e['obj'] = s.rng.choice(['vase', 'plate', 'window', 'clock', 'lamp', 'mirror', 'tea cup', 'picture', 'jar of honey', 'chair'])
    e['hide'] = s.pick(HIDE)
    s.p(opening(s), '{In the house there was|$His $rel had} a {beautiful|very old|pretty} $col $obj. {It was $rhis favorite.|"Please be careful with it," $rhe always said.|Nobody was allowed to touch it.}')
    s.p('{One $w day|One day|On $day}, $H was {playing with|running with|throwing} {a ball|$his $toy} {inside the house|in the room}. {Crash!|Bang!|Smash!} The $obj fell {down|on the floor} and broke.',
        '$H {was frightened|did not know what to do|turned white}. {"What will $rel say?" $he thought.|"Oh no," $he whispered.} {So $he hid the pieces $hide.|Quickly, $he put the pieces $hide.}')
    lie = s.rng.random() < 0.5
    s.p('{That evening|Later|In the evening}, $his $rel {came home|came into the room} and asked, "{Where is the $obj|What happened to the $obj|Has anyone seen the $obj}?"',
        ('"{I do not know|The cat did it|Maybe the wind took it}," said $H. But {$he felt bad inside|$his face turned red|the lie felt like a stone in $his stomach}. {$He could not eat.|$He could not sleep that night.}' if lie else '$H {wanted to say nothing|looked at the floor}. {It was hard to speak.|$His heart beat fast.}'))
    s.p('{At last|Then|In the morning}, $H {went to $his $rel|took a deep breath} and {told the truth|said, "It was me"}. "I broke the $obj{| when I was playing}. {I am sorry|I am very, very sorry}," $he said.',
        '$H\'s $rel {was quiet|looked at $him for a while} and then {hugged $him|smiled}. "{Thank you for telling the truth|A $obj can be mended, but trust is hard to mend|I am a little sad, but I am proud of you}," $rhe said.')
    s.p('{Together they|They} {glued the pieces|fixed it with glue|swept the floor and made a new one from clay}. {It did not look the same, but $H liked it even more.|Now there was a line on it, and it made them smile.}')
    close(s, '{It is always better to tell the truth.|$H never hid the truth again.|$H felt as light as a feather.}')
    s.fact('What did $H break?', 'a $col $obj')
    s.fact('Where did $H hide the pieces?', '$hide')
    s.fact('Who did $H tell the truth to?', "$his $rel")
    s.title = s.raw('{The Broken $obj|$H Tells the Truth|The $col $obj}')
    s.tags = ['telling the truth', 'a broken ' + e['obj'], e['obj']]
    s.theme = 'honesty'


def gift(s):
    e = s.env
    e['gift'] = s.rng.choice(['a $col scarf', 'a card with a $col heart', 'a $col hat', 'a picture of {the sea|a house|their family}', 'a necklace of shells', 'a small wooden boat', 'a pot of honey', 'a basket of plums', 'a $col cup', 'a song', 'a box made of wood', 'a pair of $col socks'])
    e['gift'] = s.raw(e['gift'])[0].lower() + s.raw(e['gift'])[1:] if '{' not in e['gift'] and '$' not in e['gift'] else lower1(s.raw(e['gift']))
    buy = s.rng.random() < 0.4
    s.p(opening(s), '{Tomorrow was the birthday of $his $rel.|It was almost the birthday of $his $rel.|$His $rel was going to have a birthday on $day.} $H wanted to {give $rhim something special|find the best gift|make $rhim happy}.')
    if buy:
        e['job'] = s.pick(JOBS)
        s.p('But $H had {only $num coins|no money}. {So $he went to the $job.|So $he walked to the house of the $job.} "{Can I work for you|Do you have some work for me|May I help you}?" $he asked. "{Yes|Of course|Why not}," said the $job. "{You can {sweep the floor|carry the baskets|feed the hens|wash the cart}}."',
            '$H worked {all day|hard|until the sun went down}. The $job {was pleased|smiled} and gave $him {some coins|a few coins|a shiny coin}. {With the money|Then} $he bought $gift.')
        s.fact('Who did $H work for?', 'the $job')
    else:
        s.p('{But what could $he give?|What could it be?} $H asked $F. "{Make something yourself|Something you make yourself is the best gift|Make something with your own hands}," said $F. {So $H sat down and began to work.|"That is a good idea!" said $H.}',
            '{It was not easy.|It took a long time.} {Twice it went wrong, and twice $he started again.|$H worked {all day|until late|in secret}.} {At last it was ready:|At last $he had it:} $gift.')
        s.fact('Who told $H to make a gift?', '$F')
    s.p('{The next morning|On the birthday|When the day came}, $H {gave it to $his $rel|put it on the table|held it behind $his back}. "{Happy birthday|This is for you}!" $he said. {$His $rel opened $rhis eyes wide.|$His $rel looked at it for a long time.} "{It is beautiful|I love it|This is the best gift of all}," $rhe said, and {hugged $him|gave $him a big kiss|there were tears in $rhis eyes}.')
    close(s, '{A gift from the heart is the best gift.|They {ate cake|danced|sang} together{| until late}.|$H was as happy as if it was $his own birthday.}')
    s.fact('What did $H give to $his $rel?', '$gift')
    s.fact('Whose birthday was it in the story of $H?', "$his $rel's birthday")
    s.title = s.raw('{A Gift for $Rel|The Birthday|The Best Gift}')
    s.tags = ['a birthday', 'a gift', 'a birthday gift']
    s.theme = 'giving'


def garden(s):
    e = s.env
    e['fl'] = s.pick(FLOWERS)
    e['spot'] = s.rng.choice(['behind the house', 'near the gate', 'by the well', 'in a $col pot', 'beside the wall', 'next to the pond', 'in the corner of the garden', 'under the window'])
    e['spot'] = lower1(s.raw(e['spot']))
    s.p(opening(s), '{One day|In the spring|On $day}, $his $rel gave $him {a small seed|some seeds|a tiny brown seed}. "{Plant this and wait|Take good care of it|One day it will be a $fl}," $rhe said.')
    s.p('$H {dug a hole|made a little hole} $spot and planted {it|the seed}. {Every morning|Each day} $he {gave it water|watered it}. {"Grow, little seed," $he said.|$He sang to it.|$He sat beside it and waited.}',
        '{But nothing happened.|A day went by, and then $num days. Nothing came up.|The earth stayed brown.} "{Why does it not grow|Is it asleep|Maybe it is dead}?" $H {asked|said}. "{Be patient|Good things take time|Wait a little more}," said $his $rel.')
    s.p(s.rng.choice(['{Then the rain came.|Then came a week of sun.|Then, one $w morning,} {there was|$H saw} {a small green leaf|something green}!', 'One night it rained, and in the morning there was {a tiny green leaf|a little green shoot}.']).replace('came. there', 'came. There').replace('sun. there', 'sun. There'),
        s.maybe(0.5, '{A hungry {goat|hen|snail|rabbit} wanted to eat it, but $H {built a little fence|put stones around it}.|A strong wind came, so $H tied it to a stick.}'),
        '{It grew and grew.|Day by day it became taller.|Week after week it grew.} {At last|In the summer}, {there was a|it was a} {big|fine|beautiful} $fl.')
    s.p('$H {called|showed it to} $F. "{Look|See}, I grew it {from a little seed|myself}!" {$F was amazed.|"It is wonderful," said $F.} {$H gave {some of it|a piece|a part} to $F and {everyone on the street|all the neighbors}.|$H saved the new seeds for the next spring.}')
    close(s, '{Good things come to those who wait.|$H had learned to be patient.|"Waiting was the hardest part," said $H.}')
    s.fact('What did $H plant?', 'a seed')
    s.fact('What grew from the seed of $H?', 'a $fl')
    s.fact('Where did $H plant the seed?', '$spot')
    s.title = s.raw('{The Little Seed|$H and the $fl|The Garden of $H}')
    s.tags = ['a garden', 'a seed', e['fl']]
    s.theme = 'being patient'


def lost_way(s):
    e = s.env
    e['an'] = s.pick(WILD)
    e['lure'] = s.rng.choice(['a $col2 butterfly', 'a shiny beetle', 'a strange sound', 'a trail of berries', 'a $col2 bird', 'a little white rabbit'])
    e['lure'] = lower1(s.raw(e['lure']))
    s.p(opening(s), '"{Do not go far|Stay close to home|Come back before dark}," said $his $rel {every day|that morning}. $H {nodded|promised|said yes}.')
    s.p('{But that day|Then} $H saw $lure and followed it. {It went left, and it went right.|Farther and farther $he went.} {Soon the trees were tall and dark.|When $he looked up, $he did not know where $he was.} "{Where am I|Which way is home}?" {cried|said} $H. {Only the wind answered.|Nobody answered.|It was getting dark.}',
        s.maybe(0.5, '$H sat down {on a stone|under a tree} and {began to cry|cried a little}.'))
    s.p('{Then|After a while|Just then} {a|an old|a friendly} $an {came out of the bushes|came near|looked at $him}. "{Why are you crying|Are you lost|What is the matter}?" it asked. "{I cannot find the way home|I am lost|I followed $lure, and now I am lost}," said $H.',
        '"{Follow me|Come with me|I know these woods well}," said the $an. {They walked {over the hill|along the stream|past the big rock} {and over a bridge|and through the tall grass|and down the hill}.|They went along the stream until they saw a light.} {At last|Soon} $H {saw|could see} $his own house.')
    s.p('{$His $rel was standing at the door.|$His $rel ran to meet $him.} "{I was so worried|Where have you been|Thank goodness you are safe}!" $rhe {said|cried}. "{I am sorry|I will not go so far again|I should have listened}," said $H. {They thanked the $an and gave it {some bread|a $food|a warm place to sleep}.|When $H turned around to thank the $an, it was gone.}')
    close(s, '{After that, $H always came home before dark.|$H never forgot the kind $an.}')
    s.fact('What did $H follow?', '$lure')
    s.fact('Who showed $H the way home?', 'a $an')
    s.title = s.raw('{$H Gets Lost|Lost in the Woods|The Way Home}')
    s.tags = ['getting lost', 'the forest', e['an']]
    s.theme = 'listening to good advice'


def race(s):
    e = s.env
    e['sport'] = s.rng.choice(['running race', 'swimming race', 'singing contest', 'drawing contest', 'jumping contest', 'kite contest', 'baking contest', 'spelling contest', 'boat race', 'dancing contest'])
    e['prize'] = s.rng.choice(['a golden cup', 'a $col ribbon', 'a big cake', 'a silver bell', 'a basket of $foods', 'a new $toy']).replace('$foods', 'fruit')
    e['prize'] = lower1(s.raw(e['prize']))
    win = s.rng.random()
    s.p(opening(s), '{Every year|Each summer} there was a $sport {at|near} $place2. The prize was $prize. $H {wanted to win|dreamed of winning|wanted it more than anything}.'.replace('{at|near}', 'near'))
    s.p('{So $he practiced every day.|Day after day, $H practiced.|$H practiced in the morning and in the evening.} {At first it went badly.|The first time $he was very bad at it.} "{You will never win|I am better than you|You are too slow}," said $F, {who always won|and laughed}. {$H said nothing and practiced more.|$H was sad, but $he did not stop.}')
    s.p('{At last|Finally} the day {came|was there}. {Many people came to watch.|Everybody was there.|The drums went boom.} "{Ready, set, go|One, two, three, go|Begin}!" called the {judge|teacher|old owl}.',
        '{$H did $his best.|$H thought of nothing else.|$H\'s heart beat fast.}')
    if win < 0.35:
        s.p('$F was {so sure|too proud|so proud} that $fhe {stopped to rest|did not even try|waved to the crowd}. {But $H never stopped.|But $H went on and on.} And {in the end|when it was over}, the winner was... $H! {Everyone cheered.|The crowd clapped.} $H got $prize.', '"{Well done|You were better than me today}," said $F. "{I should not have laughed|I am sorry I laughed}."')
        s.fact('Who won the $sport?', '$H')
    elif win < 0.7:
        s.p('{In the end|When it was over}, $F was first and $H was second. $H {felt sad for a moment|wanted to cry}. Then $he {took a deep breath|smiled} and {shook the hand of $F|said, "Well done, $F"}. {$F was surprised.|"You were very good too," said $F.} "{Will you practice with me|Let us practice together next time}?" $fhe asked.'.replace('time}?', 'time}."').replace('."" $fhe asked.', '," $fhe said.') if False else
            '{In the end|When it was over}, $F was first and $H was second. $H {felt sad for a moment|wanted to cry}. Then $he {took a deep breath|smiled} and said, "Well done, $F!" {$F was surprised.|"You were very good too," said $F.} "{Will you practice with me|Can we practice together}?" $fhe asked. $F even shared $prize with $H.')
        s.fact('Who won the $sport?', '$F')
    else:
        s.p('{Halfway|In the middle of it}, $F fell {and hurt $fhis leg|and could not get up}. $H {stopped|saw it}. {If $he went on, $he would win.|The prize was so near!} But $H {turned around|went back} and helped $F {up|to stand}. {They came in last, arm in arm.|They finished together, and they were the last.}',
            'But {everyone clapped for them|the people cheered for them more than for the winner}. The {judge|teacher} gave {$H|them} $prize {for being kind|for having a good heart}.')
        s.fact('Why did $H stop in the $sport?', '$F fell')
    close(s, '{Winning is nice, but friends are nicer.|Hard work is never wasted.|$H still has it today.}')
    s.fact('What was the prize of the $sport?', '$prize')
    s.title = s.raw('{The $sport|$H and the $sport|The Prize}')
    s.tags = ['a ' + e['sport'], 'a contest', 'winning and losing']
    s.theme = 'trying hard'


def disobey(s):
    e = s.env
    r = s.rng.choice([('touch the {hot pot|stove}', 'burned $his {finger|paw|hand}'), ('eat the {green|unripe} {plums|apples}', 'had a bad stomach ache'), ('climb the {tall|old} {tree|wall}', 'fell down and hurt $his knee'),
                      ('open the {$col box|little door}', 'let all the {bees|hens|mice} out'), ('play near the {well|river}', 'fell into the cold water'), ('go out without a {coat|hat}', 'caught a bad cold'),
                      ('ride the big {bicycle|horse}', 'rolled into a {bush|ditch}'), ('feed the {goat|dog} cake', 'lost {$his hat|both shoes} to it'), ('eat too many {sweets|cookies}', 'felt very sick')])
    e['rule'] = lower1(s.raw(r[0])); e['bad'] = lower1(s.raw(r[1]))
    s.p(opening(s), '"{Listen|Now listen to me}, $H," said $his $rel. "{Do not|You must not|Never} $rule. {It is dangerous|You will be sorry|It will end badly}." "{Yes, I know|I promise|All right}," said $H.')
    s.p('{Then $rel went out|But when $rel was gone|As soon as $he was alone}, $H {began to wonder|became curious|could think of nothing else}. "{Just once|Nobody will see|What can happen}," $he {thought|said}.'.replace('Then $rel', 'Then $his $rel').replace('when $rel', 'when $his $rel'),
        s.maybe(0.5, '"{Do not do it|Remember what you promised}!" said $F. But $H did not listen.'),
        'So $H did it. {And|At once|A moment later} $he $bad.')
    s.p('"{Ow|Help|Oh no}!" {cried|shouted} $H. {$His $rel heard it and came running.|$F ran to get help.} {"What happened?" asked $his $rel.|$His $rel saw at once what had happened.}',
        '"{I did not listen|I broke my promise|You told me not to do it, and I did it}," said $H {with tears in $his eyes|in a small voice}. {$Rel|$His $rel} {took care of $him|helped $him and gave $him warm milk|dried $his tears}.'.replace('{$Rel|$His $rel}', '$His $rel'),
        s.maybe(0.6, '"{Now you know why I said it|I tell you these things because I love you|Rules can keep you safe}," $rhe said.'))
    close(s, '{After that, $H listened.|$H {never did it again|had learned a lesson}.}')
    s.fact('What was $H told not to do?', '$rule')
    s.fact('Who told $H not to $rule?', '$his $rel')
    s.fact('What happened to $H?', '$he $bad')
    s.title = s.raw('{$H Does Not Listen|The Promise|A Hard Lesson}')
    s.tags = ['a broken promise', 'not listening', 'learning a lesson']
    s.theme = 'listening'


def new_friend(s):
    e = s.env
    e['from'] = s.rng.choice(['the city', 'the mountains', 'a far country', 'the sea', 'the other side of the river', 'the desert', 'a small island', 'the north'])
    e['game'] = s.rng.choice(['hide and seek', 'tag', 'football', 'marbles', 'cards', 'house', 'pirates', 'catch', 'hopscotch'])
    s.p(opening(s), '{One day|On $day|One $w morning}, a new {family|neighbor} came {to live|and moved in} {next door|across the road|near $place}. They had a {child|little one} named $F, who came from $from.' if not s.is_animal else
        '{One day|One $w morning}, a new animal came to $place. It was a $fkind named $F, who came from $from.')
    s.p('$F {was very shy|did not know anyone|sat alone}. {The others {did not talk to $fhim|played without $fhim|thought $fhe was strange}.|Nobody asked $fhim to play.} $H {saw this|noticed|watched} and {thought, "How lonely $fhe must be."|felt sorry for $fhim.}')
    s.p('$H {walked up to|went to|sat down beside} $F and said, "{Hello|Hi}, {my name is $H|I am $H}. {Do you want to play $game|Would you like to play $game with me}?" {$F looked up and smiled a little.|At first $F said nothing. Then $fhe nodded.} "{Yes, please|I would like that|I do not know how}," said $F{.| softly.}',
        '$H {showed|taught} $fhim how to play. {Soon they were laughing.|They played until it was dark.} {Then $F taught $H a song from $from.|$F told $H stories about $from.|$F shared {a $food|some sweet bread} with $H.}')
    s.p('{The others heard them laughing and came too.|One by one, the others came to play.} {Now $F was not alone any more.|Soon $F had many friends.} "{Thank you for saying hello|You were my first friend here}," $F {told $H|said to $H}.')
    close(s, '{A kind word is a small thing, but it can change a day.|It is easy to make a friend: you only have to say hello.|They are still best friends today.}')
    s.fact('Where did $F come from?', '{from|} $from'.replace('{from|} ', ''))
    s.fact('What game did $H and $F play?', '$game')
    s.fact('Who was the first friend of $F?', '$H')
    s.title = s.raw('{A New Friend|$H Says Hello|$H and $F}')
    s.tags = ['a new friend', 'making friends', 'being shy']
    s.theme = 'friendship'


def wish(s):
    e = s.env
    e['giver'] = s.rng.choice(['a golden fish', 'a tiny fairy', 'an old woman with a $col hat', 'a talking tree', 'a $col stone', 'a little star', 'a magic lamp', 'a wise old frog', 'a $col bird'])
    e['giver'] = lower1(s.raw(e['giver'])); e['thegiver'] = 'the ' + e['giver'].split(' ', 1)[1]
    w = s.rng.choice([('all the {cake|candy} in the world', 'soon $he was so full that $he felt sick'), ('to be as {big as a house|tall as a tree}', 'then $he did not fit through the door and nobody could hug $him'),
                      ('to fly like a bird', 'the wind was so strong that $he could not come down'), ('that it would never be night', 'everybody was tired and nobody could sleep'),
                      ('a {mountain|room full} of gold', 'there was no room left for $his bed, and gold cannot be eaten'), ('to be {invisible|as small as an ant}', 'nobody could see $him, and nobody could hear $him call'),
                      ('that it would always be summer', 'the grass turned brown and the river became dry'), ('that every {day|meal} was a {party|feast}', 'after a week $he was tired of it and could not even look at a cake')])
    e['wish'] = lower1(s.raw(w[0])); e['res'] = lower1(s.raw(w[1]))
    s.p(opening(s), aside(s), '{One day|One $w evening|On $day}, {near|at} $place2, $H {found|met|saw} $giver.'.replace('{near|at}', 'near'))
    s.p('"{You have been kind|You found me|Do not be afraid}," said $thegiver. "{I will give you one wish|You may make one wish|Make a wish}, {but think well|but be careful|and choose well}." {$H did not think for long.|$H thought for a moment.|$H jumped up and down.} $H wished for $wish.'.replace('for to', 'to'))
    if e['wish'].startswith(('to ', 'that ')):
        s.paras[-1] = [x.replace('wished for to', 'wished to').replace('wished for that', 'wished that') for x in s.paras[-1]]
    s.p('{Whoosh!|Puff!|There was a flash of light.} The wish came true. {At first it was wonderful.|"Hooray!" shouted $H.|$H laughed and danced.} But $res.',
        '{"This is not what I wanted," said $H.|$H was not happy any more.} {$He missed {$his $rel|$F|$his old life}.|$He began to cry.}')
    s.p('{So $H went back to $thegiver.|$H ran back to find $thegiver.} "{Please take the wish back|Can you make it all as it was}," $he {said|begged}.'.replace('was}," $he', 'was}," $he'), '"{Are you sure|Have you learned something}?" asked $thegiver. "Yes," said $H. "{What I had was good enough|I only want my home and my friends|I will think before I wish}." {And in a blink everything was as before.|Then everything was the same as before.}')
    close(s, '{$H hugged $his $rel for a long, long time.|Be careful what you wish for.|$H looked at $his little house and thought it was the best house in the world.}')
    s.fact('Who gave $H a wish?', '$giver')
    s.fact('What did $H wish for?', '$wish')
    s.title = s.raw('{The Wish|$H Makes a Wish|The One Wish}')
    s.tags = ['a wish', 'magic', 'a magic wish']
    s.theme = 'being happy with what you have'


def cooking(s):
    e = s.env
    e['dish'] = s.pick(DISHES)
    m = s.rng.choice([('salt', 'sugar'), ('pepper', 'cinnamon'), ('vinegar', 'milk'), ('soap', 'butter'), ('mustard', 'honey'), ('mud', 'chocolate')])
    e['wrong'], e['right'] = m
    s.p(opening(s), '{One day|On $day|One $w day}, $his $rel said, "{Let us make $dish|Today we will cook $dish|Will you help me make $dish}{.|, $H.}" {"Yes!" said $H.|$H clapped $his hands.|$H {put on an apron|washed $his hands} {at once|quickly}.}'.replace('make $dish}{.', 'make $dish}{.'))
    s.p('{They needed|They took} {flour|water|a big pot}, {$num eggs|some butter|a wooden spoon} and {a little|some} $right. {$H stirred and stirred.|$H broke the eggs into a bowl.|There was flour everywhere, even on the cat.} "{Now put in the $right|Now we need $right}," said $his $rel{.| and went to open the door.}',
        'But $H {took the wrong jar|did not look well|was thinking about something else} and put in {$wrong|a lot of $wrong} instead.')
    s.p('{When the $dish was ready, they sat down to eat.|Soon it smelled strange.|At last it was time to eat.} {$F came to eat with them.|Everybody took a bite.} {"Ugh!"|"Oh!"|"What is this?"} {said|cried} $F. {It tasted terrible.|Nobody could eat it.} $H {looked at the jar and turned red|saw what had happened}. "I put in $wrong and not $right," $he said.',
        '{For a moment it was quiet.|Everybody looked at $him.} Then $his $rel began to laugh. {Soon they all laughed.|And $H laughed too.} "{Everyone makes mistakes|When I was small, I did the same}," $rhe said. "{Let us try again|We will make a new one}."')
    s.p('{This time $H read every label.|This time they looked twice.|The second time, $H was careful.} And the $dish was {wonderful|sweet and good|the best they had ever eaten}. {They gave a bowl to the neighbors.|$F asked for more.|Even the {cat|dog} got a little.}'.replace('a bowl', 'some'))
    close(s, '{Mistakes are for learning.|Now $H always looks twice.}')
    s.fact('What did $H and $his $rel make?', '$dish')
    s.fact('What did $H put in by mistake?', '$wrong')
    s.title = s.raw('{$H Cooks|The Funny $dish|$H Makes $dish}')
    s.tags = ['cooking', e['dish'], 'a mistake in the kitchen']
    s.theme = 'learning from mistakes'


def rainy(s):
    e = s.env
    e['plan'] = s.rng.choice(['have a picnic', 'fly a kite', 'go swimming', 'ride bicycles', 'visit the fair', 'play ball', 'go fishing', 'climb the hill'])
    e['fun'] = s.rng.choice(['a ship from chairs and a sheet', 'a tent from blankets', 'a castle from boxes', 'a train from pillows', 'a puppet show with old socks', 'paper boats', 'a band with pots and spoons', 'a big map of an island'])
    s.p(opening(s), '{Today|That day} $H and $F wanted to $plan. {They had waited all week.|$H had {packed a $food|put on new boots}.|They had talked about it for days.}')
    s.p('But {when they opened the door|just then}, {it began to rain|the rain came down}. {Drip, drop, drip, drop!|It rained and rained.|There was thunder too.} "{Our day is spoiled|Now we cannot $plan|It is not fair}," said $F. {$H pressed $his nose to the window.|They sat on the floor and looked sad.}')
    s.p('Then $H had an idea. "{We can have fun inside|Who needs the sun|Let us make our own fun}," $he said. "{Help me|Come and see}!" {Together they|The two of them} made $fun. {$His $rel brought {warm milk|a plate of cookies|a lamp}.|Even $his $rel came to play.} {They laughed so much that they forgot the rain.|The rain on the roof sounded like drums.}')
    s.p('{After a while|When it was almost evening}, $F looked out. "{Look|See}, the rain has stopped," $fhe said. {There was a rainbow over $place.|The sun came out.} "{Do you want to go out now|Shall we $plan now}?" asked $his $rel. {"No, thank you! We are busy," said $H.|They looked at each other. "Not yet," they said.|They ran out and jumped into every puddle.}')
    close(s, '{A bad day can turn into a good day.|"I hope it rains tomorrow," said $H.}')
    s.fact('What did $H and $F want to do before it rained?', '$plan')
    s.fact('What did $H and $F make in the house?', '$fun')
    s.title = s.raw('{A Rainy Day|Rain, Rain|$H and the Rain}')
    s.tags = ['a rainy day', 'rain', 'playing inside']
    s.theme = 'making the best of things'


def sick(s):
    e = s.env
    e['ill'] = s.rng.choice(['a cold', 'a sore throat', 'a fever', 'a broken leg', 'a tooth ache', 'a stomach ache'])
    e['bring'] = s.rng.choice(['a pot of soup', 'a bunch of flowers', 'a basket of oranges', 'a book of stories', 'a $col blanket', 'a jar of honey', 'a funny picture'])
    e['bring'] = lower1(s.raw(e['bring']))
    s.p(opening(s), '$H and $F {went to school together|played together every day|always met near $place}. But {one day|on $day}, $F did not come. "{Where is $F|Why is $F not here}?" asked $H. "$F {is ill|is in bed}," said $his $rel. "$Fhe has $ill."')
    s.p('$H {was sad|was worried|could not play alone}. "{What can I do for $F|How can I help}?" $he asked. {$He thought and thought.|$He walked up and down.} Then $he {went to the kitchen|looked around} and took $bring. {It was a long way to the house of $F, and it was $w.|On the way it began to {rain|snow}, but $H did not turn back.}',
        s.maybe(0.5, 'On the road, $H met a {hungry dog|hungry crow|boy}. "{What do you have there|Give that to me}?" {it seemed to ask|he asked}. "{This is for my friend|No, this is for $F}," said $H, and walked on.').__class__ and None)
    s.p('{Knock, knock!|Tap, tap, tap!} "{Who is there|Come in}," said a weak voice.'.replace('there|Come in},"', 'there|Come in},"'), '{$F was lying in bed with a red nose.|$F looked pale and tired.} "{I brought you something|This is for you}," said $H, and gave $fhim $bring. {$F\'s eyes began to shine.|$F sat up and smiled for the first time in days.} $H {stayed and told $fhim funny stories|read to $fhim|sang for $fhim} until $fhe fell asleep.')
    s.p('{After a few days|A week later|The next $day}, $F was well again. {They ran to $place together.|$F ran out to play.} "{You were the best medicine|I got well because of you}," said $F.')
    close(s, '{A good friend is good medicine.|And when $H was ill {that winter|later}, guess who came to visit? It was $F.}')
    s.fact('What did $F have?', '$ill')
    s.fact('What did $H bring to $F?', '$bring')
    s.title = s.raw('{A Visit to $F|$F Is Ill|The Best Medicine}')
    s.tags = ['a sick friend', 'visiting a friend', 'caring for others']
    s.theme = 'caring for a friend'


def trip(s):
    e = s.env
    d = s.rng.choice([('the sea', ['ships', 'shells', 'white birds', 'crabs', 'big waves']), ('the zoo', ['monkeys', 'a sleepy lion', 'tall giraffes', 'striped zebras', 'a gray elephant']),
                      ('the market', ['baskets of fish', 'piles of oranges', 'a man with a drum', 'bright cloth', 'hens in cages']), ('the farm', ['cows', 'a brown horse', 'ducks on a pond', 'fat pigs', 'a red tractor']),
                      ('the city', ['tall houses', 'trams', 'a fountain', 'bright lights', 'a big clock']), ('the mountains', ['snow', 'goats on the rocks', 'a waterfall', 'an eagle', 'clouds below them']),
                      ('the fair', ['a wheel with lights', 'a juggler', 'a dancing bear', 'sweets of every color', 'a puppet show']), ('the museum', ['old bones', 'a golden crown', 'a huge whale', 'swords', 'a room of clocks'])])
    e['dest'] = d[0]
    x = s.rng.sample(d[1], 3)
    e['x1'], e['x2'], e['x3'] = x
    e['veh'] = s.rng.choice(['by train', 'by bus', 'in a cart', 'on foot', 'by boat', 'in an old car', 'on a bicycle', 'on a donkey'])
    e['buy'] = s.rng.choice(['a $col balloon', 'a paper fan', 'a $col ribbon', 'a little bell', 'a bag of nuts', 'a $col stone', 'an ice cream', 'a small drum'])
    e['buy'] = lower1(s.raw(e['buy']))
    s.p(opening(s), '{One $w day|On $day|That summer}, $H went to $dest with $his $rel. {It was the first time.|$H had never been there before.} They went $veh. {The way was long, and $H asked, "Are we there yet?" again and again.|They left before the sun was up.|$H sang all the way.}')
    s.p('{At last they were there.|When they arrived, $H opened $his eyes wide.} {There was so much to see!|"Oh!" said $H.} $H saw $x1 and $x2. {Then they saw $x3.|But best of all were the $x3.|They stopped a long time to look at $x3.}'.replace('the $x3', '$x3'), s.maybe(0.6, '{With $his own money|For one coin}, $H bought $buy.'))
    bought = 'bought' in ' '.join(s.paras[-1])
    k = s.rng.random()
    if k < 0.5:
        s.p('{But then $H turned around, and $his $rel was not there.|There were so many people that $H lost $his $rel.} {$H was afraid.|$H felt very small.} {$He remembered what $his $rel had said: "If you are lost, stay where you are."|"I must not run," $he thought. "I will stay here."} So $H {waited|stood still} {near $x1|under a big sign}. {Soon|After a while}, a {warm|familiar} hand took $his hand. "{There you are|You did the right thing}," said $his $rel.'.replace('near $x1', 'by a wall'))
        s.fact('Who did $H lose at $dest?', '$his $rel')
    else:
        s.p('{There $H met $F.|At noon, $H met a {child|little one} named $F.} {They shared a $food|They ate together} and {talked|laughed} {about everything|like old friends}. "{Will you come back|Shall we meet again}?" asked $F. "{Yes, next year|I hope so|I promise}," said $H.')
        s.fact('Who did $H meet at $dest?', '$F')
    s.p('{In the evening|When the sun went down}, they went home. {$H was tired but happy.|$H fell asleep on the way.} {"What did you like best?" asked $his $rel. "All of it," said $H.|"Thank you for this day," $he said.}')
    close(s)
    s.fact('Where did $H go with $his $rel?', '{to|} $dest'.replace('{to|}', 'to'))
    s.fact('How did $H travel to $dest?', '$veh')
    if bought:
        s.fact('What did $H buy at $dest?', '$buy')
    s.title = s.raw('{A Day at $dest|$H Goes to $dest|The Trip}')
    s.tags = ['a trip', e['dest'], 'a trip to ' + e['dest']]
    s.theme = 'seeing new things'


def fable(s):
    e = s.env
    big, small = s.rng.choice([('wolf', 'lamb'), ('lion', 'mouse'), ('crocodile', 'monkey'), ('fox', 'hen'), ('hyena', 'hare'), ('tiger', 'goat'), ('cat', 'mouse'), ('bear', 'squirrel'), ('eagle', 'rabbit'), ('leopard', 'tortoise'), ('snake', 'frog'), ('hawk', 'chick')])
    e['big'], e['small'] = big, small
    e['trick'] = s.rng.choice(['"My {brother|cousin} is much fatter than I am. {Wait for him|He will come soon},"', '"I am only skin and bones. Let me eat for a week, and I will be fat,"', '"First let me sing one last song,"', '"A king should not eat without washing his hands,"', '"There is another $big in the well, and he says he is stronger than you,"', '"My heart is at home {in a tree|in my bed}. Let me fetch it for you,"'])
    e['trick'] = s.raw(e['trick'])
    e['end'] = {'M': 'ran home', 'A': 'x'}.get('M')
    s.p('{Once|Long ago|One $w day|In the old times}, a {hungry|greedy|strong|proud} $big {lived near|was walking by|went hunting near} $place. {He had not eaten for $num days.|Everyone was afraid of him.} {There|On the path} he {met|saw|caught} a {little|clever|young} $small named $H.')
    s.p('"{Good|Ha|Now I have you}!" said the $big. "{You will be my dinner|I am going to eat you|You look {sweet|tasty}}." {The $small was shaking with fear.|$H was very afraid.} But {$H was clever|$H thought quickly|a small head can have big ideas}. $trick said $H.'.replace('$trick said', '$trick said'))
    s.p('The $big {was greedy, so he believed it|scratched his head|thought about this}. "{Very well|All right}," he said, "{but be quick|but do not be long}." {He {closed his eyes|sat down|looked away} for one moment.|He turned his head.} {That was enough.|That was a mistake.} {Quick as the wind, $H ran {into a hole|away|up the hill|home}.|$H {jumped|slipped} {away|between the stones} and was gone.}',
        '"{Come back|You tricked me}!" {roared|shouted} the $big. "{Goodbye|Better luck next time}!" called $H from far away. {And the $big went to bed hungry.|The $big {looked very silly|was ashamed}.}')
    s.p('{All the animals laughed when they heard it.|$F, {a|an old} $fkind, had seen it all and told everyone.}'.replace('{a|an old}', 'an old') if s.is_animal else '{All the animals laughed when they heard it.|The birds told the story in every tree.}',
        '{A quick mind is better than strong teeth.|It is better to be clever than to be big.|Those who are greedy often end with nothing.}')
    s.fact('What animal was $H?', 'a $small')
    s.fact('Who wanted to eat $H?', 'a $big')
    s.fact('Where did $H meet the $big?', 'near $place')
    for p in s.paras:
        for i, t in enumerate(p):
            p[i] = t.replace(' by ' + e['place'], ' near ' + e['place'])
    e['kind'] = small
    s.is_animal = True
    s.title = s.raw('{The $big and the $small|The Clever $small|The Greedy $big}')
    s.tags = [small, big, 'a $big and a $small'.replace('$big', big).replace('$small', small), 'a clever ' + small]
    s.theme = 'being clever'


def build(s):
    e = s.env
    e['b'] = s.pick(BUILD)
    e['mat'] = s.rng.choice(['old boards', 'sticks and rope', 'paper and string', 'boxes', 'branches', 'stones and mud', 'an old sheet'])
    e['fail'] = s.rng.choice(['it fell down', 'a strong wind broke it', 'one side was too short', 'it broke in the middle', 'the rain washed it away', 'a goat ran into it'])
    s.p(opening(s), '{One day|On $day|One $w day} $H had an idea. "{I will build a $b|Let us build a $b|I want to make a $b}," $he {said|told $F}. {$His $rel laughed. "That is hard work," $rhe said.|"Can you do that?" asked $F.|"I will help you," said $F.}')
    s.p('$H {found|took|used} $mat. {$He worked all morning.|$He hammered and tied and pulled.|It was hot, but $he did not stop.} {But when it was done|At noon it was ready, but}, $fail. {"Oh no!" cried $H.|$H wanted to give up.|$H kicked a stone.}'.replace('done}', 'done,}').replace('ready, but},', 'ready, but}').replace('done,', 'done,'))
    s.p('$F {sat down beside $him|looked at it}. "{The first try is only practice|Even a bird builds its nest one straw at a time|Let us see what went wrong}," $fhe said. {They looked {at it|at the pieces} together.|They drew a plan in the sand.} "{It needs to be stronger here|We must make the bottom wider|We need more rope}," said $H.',
        'So they {began again|tried again}. {$F held, and $H tied.|One worked, and the other helped.} {This time they worked slowly.|This time they took care.}')
    s.p('{In the evening|At last|When the sun was low}, the $b was {ready|finished}. {And it was strong!|It was not perfect, but it was good.} {"We did it!" they shouted.|Everyone came to see it.} {They gave it a name and painted it $col.|They painted it $col.|On top, $H put a $col flag.}'.replace('They gave it a name and painted it $col.', 'They painted it $col and gave it a name.'))
    painted = 'flag' not in ' '.join(s.paras[-1])
    close(s, '{If you fall, get up and try again.|$H was proud, and $F was proud too.|It is still there today.}')
    s.fact('What did $H build?', 'a $b')
    s.fact('What did $H use to build the $b?', '$mat')
    s.fact('Who helped $H build the $b?', '$F')
    s.fact(('What color did they paint the $b of $H?' if painted else 'What color was the flag on the $b of $H?'), '$col')
    s.title = s.raw('{The $b|$H Builds a $b|Try Again, $H}')
    s.tags = [e['b'], 'building a ' + e['b'], 'trying again']
    s.theme = 'trying again'


def treasure(s):
    e = s.env
    e['c1'], e['c2'] = s.rng.sample(['the old bridge', 'the broken mill', 'the tall pine tree', 'the white rock', 'the empty well', 'the red gate', 'the stone lion', 'the little church', 'the three oaks', 'the cave'], 2)
    e['tre'] = s.rng.choice(['a box of old letters', 'a bag of silver coins', 'a golden ring', 'a $col shell', 'a wooden horse', 'a book with no words', 'a photograph of $his $rel as a child', 'a jar of buttons', 'a map to another treasure', 'a crown made of paper'])
    e['tre'] = lower1(s.raw(e['tre']))
    e['found'] = s.rng.choice(['in an old book', 'in a bottle', 'under the floor', 'in the pocket of an old coat', 'in the attic', 'inside a clock'])
    s.p(opening(s), '{One day|On $day|One rainy day}, $H found a {map|yellow piece of paper|letter} $found. {It showed the way to a treasure!|There were words on it: "Start at $c1."|A $col cross was drawn on it.} {$H ran to $F.|$H showed it to $F.} "{Let us find the treasure|Shall we go and look}," {said|cried} $H. {$F took a spade and a lamp.|"Yes!" said $F.}')
    s.p('First they went to $c1. {There they found a sign: it pointed to $c2.|Under a stone there was a note: "Go to $c2."|There was an arrow, and it pointed to $c2.} {The way was steep, and $F was tired.|On the way, they had to cross a stream.|Thick bushes were in the way.} "{Do not give up|We are almost there}," said $H.')
    s.p('At $c2 they began to dig. {They dug and dug.|The earth was hard.|Deeper and deeper they went.} {Then|At last}, clonk! {There was|They found} a {small|rusty|wooden} box. {Slowly $H opened it.|Their hands were shaking as they opened it.} Inside was $tre. {"Oh!" said $F.|They looked at it in wonder.}')
    s.p('{They took it home to $his $rel.|They ran to $his $rel.} {$Rhe looked at it and laughed. "I hid this when I was small," $rhe said. "I thought nobody would ever find it."|"What a find!" $rhe said. "Your great-grandfather must have put it there long ago."}', '{"The treasure is nice," said $H, "but looking for it was the best part."|That evening they sat together and {$rhe told|told} stories about old times.}'.replace('{$rhe told|told}', 'told'))
    close(s)
    s.fact('Where did $H find the {map|paper|letter}?'.replace('{map|paper|letter}', 'way to the treasure') , '$found')
    s.fact('What treasure did $H and $F find?', '$tre')
    s.fact('Where was the treasure of $H {hidden|buried}?', 'at $c2')
    s.title = s.raw('{The Treasure|$H and the Treasure|The Old Map}')
    s.tags = ['a treasure', 'a treasure map', 'an adventure']
    s.theme = 'adventure'


def night(s):
    e = s.env
    e['noise'] = s.rng.choice(['tap, tap, tap', 'scratch, scratch', 'bump, bump', 'whoo, whoo', 'creak, creak', 'drip, drop', 'rustle, rustle'])
    e['src'] = s.rng.choice(['a little kitten', 'a branch at the window', 'a lost puppy', 'an owl on the roof', 'a mouse with a crumb', 'a loose door', 'a hedgehog in a bucket', '$his $rel, who could not sleep'])
    e['src'] = lower1(s.raw(e['src']))
    e['where'] = s.pick(HIDE)
    s.p(opening(s), 'One {dark|cold|windy|quiet} night, $H {woke up|could not sleep|was lying in bed}. {Everything was still.|The moon was shining.|The house was dark.} Then $he heard a sound. "{$noise|$noise|$noise}," it went.'.replace('"{$noise|$noise|$noise},"', '"$noise,"'))
    s.p('{$H pulled the blanket over $his head.|$H\'s heart began to beat fast.} "{Is it a monster|Is it a thief|Is it a ghost}?" $he thought. {The sound came again, a little louder.|There it was again!} {$H wanted to call $his $rel, but no word came out.|$H took {a lamp|a big spoon|$his $toy} and got out of bed.}',
        '{Very quietly|On the tips of $his toes}, $H {went down the stairs|walked along the hall|opened the door}. {The floor was cold.|Every shadow looked strange.} {It came from somewhere: $where.|The sound came from $where.}'.replace('{It came from somewhere: $where.|The sound came from $where.}', 'Something was moving $where.'))
    s.p('$H {held up the light|looked|took one more step}. And what did $he see? It was only $src! {$H began to laugh.|"Oh, it is only you!" said $H.} {All the fear was gone.|$He was not afraid any more.}',
        s.rng.choice(['$H gave it {some milk|a bit of bread|a warm place} .'.replace(' .', '.'), 'Then $he {drank some water and went back to bed|went back to bed}.']) if e['src'][:2] in ('a ', 'an') and any(k in e['src'] for k in ('kitten', 'puppy', 'mouse', 'hedgehog')) else 'Then $he {drank some warm milk and went back to bed|went back to bed and slept until morning}.')
    s.p('{In the morning|At breakfast}, $H told $his $rel {about it|everything}. "{You were brave|Most things are less scary when you look at them}," said $his $rel.')
    close(s)
    s.fact('What sound did $H hear in the night?', '$noise')
    s.fact('What made the sound that $H heard?', '$src')
    s.fact('Where was the thing that $H heard?', '$where')
    s.title = s.raw('{A Sound in the Night|$H and the Strange Sound|Who Is There?}')
    s.tags = ['a strange sound', 'the night', 'a dark night']
    s.theme = 'looking before being afraid'


def work(s):
    """the lazy one and the busy one; or a job with a reward"""
    e = s.env
    e['job'] = s.pick(JOBS)
    e['task'] = s.rng.choice(['carry water', 'feed the hens', 'pick apples', 'sweep the yard', 'bring letters to the people', 'paint the fence', 'watch the sheep', 'stack the wood', 'wash the windows'])
    e['pay'] = s.rng.choice(['$num coins', 'a loaf of bread', 'a $col coat', 'a little pig', 'a basket of eggs', 'a warm meal', 'a pair of boots'])
    e['pay'] = lower1(s.raw(e['pay']))
    s.p(opening(s), '{Near by|In that place} there {lived|was} {an old|a kind|a busy} $job. {One day|On $day}, the $job {was ill|had too much work|hurt $his back} and {asked for help|needed help}.'.replace('hurt $his back', 'had a sore back'), '"{Who will $task for me|Can someone $task for me}?" asked the $job.')
    s.p('$F {came first|said, "I will do it"}. But $F was lazy. {After a short time, $fhe lay down under a tree and slept.|$Fhe did half of the work and went off to play.} {The work was not done.|The $job shook his head.}'.replace('his head', 'a tired head'),
        'Then $H came. "{I am small, but I will try|Let me help you}," said $H. {$He worked from morning to evening.|$He did not stop until everything was done.} {It was hard, and $his arms were sore.|$He sang while $he worked.}')
    s.p('{In the evening|When the work was done}, the $job {came to look|was very pleased}. "{You did this well|I have never seen such good work}," said the $job, and gave $H $pay. {$F saw it and was ashamed.|"And what do I get?" asked $F. "You get what you worked for," said the $job.}',
        s.maybe(0.7, '{$H shared it with $F. "Next time we will work together," $he said.|"Tomorrow I will work too," said $F. And $fhe did.}'))
    close(s, '{Good work brings good things.|$H took it home to $his $rel, who was very proud.}')
    s.fact('Who did $H help?', 'the $job')
    s.fact('What did the $job give to $H?', '$pay')
    s.fact('What work did $H do?', '$task')
    s.title = s.raw('{$H and the $job|A Day of Work|The Lazy One and the Busy One}')
    s.tags = ['a ' + e['job'], 'working hard', 'helping a ' + e['job']]
    s.theme = 'working hard'


def pet(s):
    e = s.env
    e['pet'] = s.pick(PETS)
    e['pn'] = s.pick(PETN)
    e['trouble'] = s.rng.choice(['ate the {bread|cake} from the table', 'chewed $his shoes', 'ran away with a sock', 'made a hole in the garden', 'knocked over the milk', 'hid all the spoons', 'woke everyone up at night'])
    e['trouble'] = lower1(s.raw(e['trouble']))
    e['good'] = s.rng.choice(['smelled smoke and woke everyone', 'found the baby who had crawled away', 'made a noise when a thief came', 'found the lost key', 'led them home in the fog', 'chased the fox away from the hens'])
    s.p(opening(s), '$H wanted a pet. "{Please, please|I will take care of it}," $he {begged|said} every day. {At last|On $day|One day} $his $rel {brought home|gave $him} a {small|$col|young} $pet. $H named it $pn.')
    s.p('{At first everything went wrong.|But $pn was not easy.} $pn $trouble. "{That $pet must go|This cannot go on}," said $his $rel. "{Please give $pn one more chance|$pn is still learning|I will teach it}," said $H. {So every day $H taught $pn something.|$H was patient and taught it a little every day.}')
    s.p('{Then, one night|One $w day|A few weeks later}, something happened. {Nobody else noticed, but|Everyone was busy, but} $pn $good. {What a clever $pet!|Without $pn, it would have ended badly.} {Everyone thanked $pn.|$His $rel picked up $pn and gave it {a big hug|a treat}.} "{I was wrong|$pn can stay for ever}," $rhe said.')
    close(s, '{$H and $pn were never apart again.|And that night $pn slept at the foot of the bed.}')
    s.fact('What was the name of the $pet of $H?', '$pn')
    s.fact('What kind of animal was $pn?', 'a $pet')
    s.fact('What bad thing did $pn do?', 'it $trouble')
    s.title = s.raw('{$H and $pn|A $pet Named $pn|The New $pet}')
    s.tags = [e['pet'], 'a pet', 'a pet ' + e['pet']]
    s.theme = 'giving a second chance'


def quarrel(s):
    e = s.env
    e['why'] = s.rng.choice(['$F had broken the $toy of $H', '$F forgot to come to the party', '$F said that $H was too slow', '$F told a secret', '$F took the last $food'])
    e['why'] = s.raw(e['why'])
    s.p('$H and $F were {best friends|the best of friends}. {Every day they {played|went} {at|near} $place.|They did everything together.|If you saw one, you saw the other.}'.replace('{at|near}', 'near'), aside(s),
        'But {one day|on $day} they had a quarrel. {It started because|It was because} $why. "{I will never play with you again|You are not my friend any more}!" shouted $H. "{Good|I do not care}!" shouted $F. {And they both went home.|And each went a different way.}')
    s.p('{The next day was long and dull.|For $num days they did not speak.} $H tried to play alone, but {it was no fun|the games were not good with one}. {$He built a tower and had nobody to show it to.|$He looked out of the window all the time.} "{Why do you not go to $F|What would make you happy}?" asked $his $rel. "{$F should come first|I am still angry}," said $H. {But $he was not angry any more. $He was only sad.|"Somebody has to be first," said $his $rel.}')
    s.p('{At last|So in the end}, $H {took $his $col $toy|picked some flowers|made a card} and {went to|walked to} the house of $F. {Halfway, $he saw someone coming.|Before $he could knock, the door opened.} It was $F! "{I was coming to see you|I wanted to say sorry}," said $F. "{Me too|So did I}," said $H. {They both began to laugh.|They hugged.}')
    close(s, '{Even best friends can quarrel, and even a quarrel can end.|It takes courage to say sorry.|They never let a quarrel last so long again.}')
    s.fact('Why did $H and $F quarrel?', '$why')
    s.fact('Where did $H and $F {play|use to play}?'.replace('{play|use to play}', 'play'), 'near $place')
    e['He'] = e['he'].capitalize()
    s.facts = [f for f in s.facts if not (f[0].startswith('Where') and ('near ' + e['place']) not in ' '.join(s.paras[0]))]
    s.title = s.raw('{The Quarrel|$H and $F Are Friends Again|Saying Sorry}')
    s.tags = ['a quarrel', 'saying sorry', 'two best friends']
    s.theme = 'saying sorry'


def moonstar(s):
    """bedtime, slow story: asking several animals the same question"""
    e = s.env
    e['want'] = s.rng.choice(['where the moon goes in the day', 'why the sky is blue', 'where the wind sleeps', 'what snow tastes like', 'who paints the rainbow', 'why leaves fall', 'how fish sleep', 'what the stars are made of'])
    a, b, c = s.rng.sample(['owl', 'cow', 'frog', 'cat', 'hen', 'horse', 'snail', 'goose', 'donkey', 'bee', 'crow', 'sheep'], 3)
    e.update(a=a, b=b, c=c)
    ans = s.rng.sample(['Ask someone else. I am busy eating', 'I only know about grass', 'I never think about such things', 'I think it is a secret', 'It has something to do with cheese', 'Nobody knows that', 'I dreamed about it once, but I forgot'], 2)
    e['a1'], e['a2'] = ans
    s.p(opening(s), '$H {always asked questions|wanted to know everything}. {One $w day|One evening|On $day}, $H wanted to know $want.')
    s.p('So $H went to the $a. "{Dear $a|Please, $a}, do you know $want?" $he asked. "$a1," said the $a.', 'Then $H went to the $b and asked the same thing. "$a2," said the $b. {$H walked on.|$H thanked the $b and walked on.}')
    s.p('At last $H came to the old $c. {The $c thought for a long time.|The $c smiled.} "{Sit down beside me|Look up}," said the $c, "{and watch|and be very quiet}. {Some answers can only be found by looking|The best questions take a whole life}." {So they sat and watched until the first star came out.|They sat together, and it was very still.}')
    s.p('{When it was late, $his $rel came to take $him home.|$His $rel found $him there, half asleep.} "{Did you find the answer|What did you learn today}?" $rhe asked. "{Not yet|A little bit}," said $H, "but I found {a friend|a better question}."')
    close(s)
    s.fact('What did $H want to know?', '$want')
    s.fact('Who did $H ask first?', 'the $a')
    s.fact('Who did $H ask last?', 'the old $c')
    s.title = s.raw('{$H Asks a Question|The Question|$H Wants to Know}')
    s.tags = ['a question', 'someone who asks questions', 'the ' + c]
    s.theme = 'asking questions'


PLOTS = [lost_thing, share, help_animal, afraid, broke, gift, garden, lost_way, race, disobey, new_friend, wish, cooking,
         rainy, sick, trip, fable, build, treasure, night, work, pet, quarrel, moonstar]


def story(rng, plot=None, hero=None, animal=None):
    s = S(rng, hero, animal)
    e = s.env
    for k in ('he', 'his'):
        e[k.capitalize()] = e[k].capitalize()
    e['Fhe'] = e['fhe'].capitalize(); e['Rhe'] = e['rhe'].capitalize()
    f = plot or PLOTS[int(rng.random() * len(PLOTS))]
    f(s)
    st = Story()
    st.title = ' '.join(w if w in ('the', 'a', 'an', 'of', 'and', 'in', 'to', 'at', 'for') and i else w[:1].upper() + w[1:] for i, w in enumerate(s.title.split()))
    paras = s.paras
    # vary the layout: merge paragraphs, or give speech its own line
    k = rng.random()
    if k < 0.15:
        paras = [[x for p in paras for x in p]]
    elif k < 0.35:
        m, cur = [], []
        for p in paras:
            cur = cur + p
            if rng.random() < 0.5:
                m.append(cur); cur = []
        if cur:
            m.append(cur)
        paras = m
    elif k < 0.45:
        paras = [p[i:i + 2] for p in paras for i in range(0, len(p), 2)]
    st.paras = paras
    st.facts = s.facts
    st.tags = s.tags
    st.hero = e['H']
    st.kind = e['kind']
    st.theme = s.theme
    return st


if __name__ == '__main__':
    import sys
    r = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    for pl in PLOTS if len(sys.argv) > 2 else [None] * 5:
        st = story(r, pl)
        print('##', st.title, '|', st.tags, '|', st.theme)
        print(st.text())
        for q, a in st.facts:
            print('Q:', q, 'A:', a)
        print()
