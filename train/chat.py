"""Short conversations: lists of (role, text); pure standard library."""
import stories as st

SYSTEM = ['You are a helpful assistant.', 'You are nibble-tiny, a very small language model.', 'You tell short stories for children.',
          'Answer questions about the text with a few words.', 'You are a friendly helper.', 'Be brief.', 'You are a kind storyteller.']
HELLO = ['Hello!', 'Hi!', 'Hi there!', 'Good morning!', 'Hey!', 'Hello there.', 'Good evening.', 'hello', 'hi', 'Hello, how are you?', 'How are you today?', 'Good afternoon!']
HELLO_A = ['Hello! {How can I help you?|Would you like to hear a story?|It is nice to meet you.}', 'Hi! {What shall we do today?|Shall I tell you a story?|How can I help you?}',
           '{Hello|Hi}! I am {fine|well}, thank you. {How can I help you?|Would you like a story?}']
QA = [(['What is your name?', 'Who are you?', 'What are you?', 'what is your name'], ['I am nibble-tiny, a very small language model.', 'My name is nibble-tiny. I am a very small language model.']),
      (['What can you do?', 'How can you help me?', 'What are you good at?'], ['I can tell {simple|short} stories and answer questions about a text that you give me.', 'I can tell you a story, or find a fact in a text.']),
      (['Thank you!', 'Thanks!', 'Thank you, that was nice.', 'thanks'], ['You are welcome!', 'You are very welcome!', 'I am glad you liked it.']),
      (['Goodbye!', 'Bye!', 'Good night!', 'See you later.'], ['Goodbye!', 'Goodbye! Come back soon.', 'Good night! Sleep well.', 'See you soon!']),
      (['Who made you?', 'Where do you come from?'], ['I was trained for the nibble inference engine.']),
      (['How are you?', 'Are you well?'], ['I am fine, thank you. How are you?', 'I am well, thank you.']),
      (['Are you a person?', 'Are you human?', 'Are you a robot?'], ['No, I am a small language model.']),
      (['What is the capital of France?', 'Who is the president?', 'What is 1234 times 77?', 'What happened in the news today?', 'Can you write a program?', 'Translate this into French.'],
       ['I do not know that. I can tell stories and find facts in a text.', 'I am too small to know that. Would you like a story?']),
      (['What color is the sky?'], ['The sky is blue.']), (['What color is grass?'], ['Grass is green.']), (['What sound does a dog make?', 'What does a dog say?'], ['A dog says woof.']),
      (['What sound does a cat make?', 'What does a cat say?'], ['A cat says meow.']), (['What does a cow say?'], ['A cow says moo.']), (['How many legs does a dog have?', 'How many legs does a cat have?'], ['Four legs.', 'It has four legs.']),
      (['What is the opposite of big?'], ['Small.']), (['What is the opposite of hot?'], ['Cold.']), (['What comes after Monday?'], ['Tuesday.']), (['Where do fish live?'], ['Fish live in the water.'])]
REQ = ['Tell me a story about {x}.', 'Tell me a story about {x}', 'Can you tell me a story about {x}?', 'Write a short story about {x}.', 'Please tell me a story about {x}.', 'I want to hear a story about {x}.',
       'Write a story about {x} for a child.', 'tell me a story about {x}', 'Could you write a little story about {x}?']
REQ0 = ['Tell me a story.', 'Tell me a story!', 'Can you tell me a story?', 'Please tell me a bedtime story.', 'I want to hear a story.', 'Write a short story.', 'Tell me another story.']
LEAD = ['', '', '', '', 'Here is a story.\n\n', 'Sure! Here is a story.\n\n', 'Of course.\n\n']


def topic(r, s):
    k = r.random()
    an = lambda w: ('an ' if w[0] in 'aeiou' else 'a ') + w
    if k < 0.3:
        return '%s named %s' % (an(s.kind), s.hero)
    if k < 0.5:
        return an(s.kind)
    if k < 0.6:
        t = r.choice(s.tags)
        return '%s and %s' % (an(s.kind), t if ' ' in t or t.endswith('ing') or t in ('magic', 'rain', 'kindness') else an(t))
    if k < 0.7:
        return s.theme
    t = r.choice(s.tags)
    if not t.startswith(('a ', 'an ', 'the ')) and ' ' not in t and not t.endswith('ing') and t not in ('magic', 'rain', 'kindness'):
        t = an(t)
    return t


def small(r):
    k = r.random()
    if k < 0.35:
        return r.choice(HELLO), st.ex(r, {}, r.choice(HELLO_A))
    q, a = r.choice(QA)
    return r.choice(q), st.ex(r, {}, r.choice(a))


def story_turn(r, s):
    q = r.choice(REQ).replace('{x}', topic(r, s)) if r.random() < 0.85 else r.choice(REQ0)
    t = s.text(r.random() < 0.25)
    return q, r.choice(LEAD) + t


def conversation(r):
    m = []
    if r.random() < 0.3:
        m.append(('system', r.choice(SYSTEM)))
    k = r.random()

    def add(p):
        m.extend((('user', p[0]), ('assistant', p[1])))
    if r.random() < 0.25:
        add(small(r))
    if k < 0.2:
        add(small(r))
        if r.random() < 0.5:
            add(small(r))
    else:
        s = st.story(r)
        f = [x for x in s.facts]
        r.shuffle(f)
        if k < 0.72:
            add(story_turn(r, s))
            if r.random() < 0.4:
                for q, a in f[:r.choice((1, 2))]:
                    add((q, cap(a)))
        else:
            q, a = f[0]
            t = s.text()
            w = r.choice(('{t}\n\n{q}', 'Read this story and answer the question.\n\n{t}\n\n{q}', 'Here is a story:\n{t}\n\nQuestion: {q}', '{q}\n\n{t}'))
            add((w.replace('{t}', t).replace('{q}', q), cap(a)))
            for q, a in f[1:r.choice((1, 2, 3))]:
                add((q, cap(a)))
        if r.random() < 0.15:
            add(small(r))
    return m


def cap(a):
    return a[:1].upper() + a[1:] + '.'
