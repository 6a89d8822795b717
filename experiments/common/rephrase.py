"""The same prompt in other words, by templates.

MetaSD (Kim et al. 2026, Tables 6, 8 and 12) asks a large model for paraphrases,
to see what a router that knows one wording makes of another. Here the
instruction is reworded, by the first rule that fits, and often set in a frame.
What it is about stays verbatim: texts to translate or to summarize, passages,
numbers, code.
"""

import random
import re


def _question(marks):
  """Matches what stands before a question: nothing, a passage, a story.

  The question is the end of the prompt, or a first line with a question mark. A
  story is of one line and ends with one of the marks.
  """
  rest = r'(?:[^.?!\n]|\.\d)*'
  return (
    rf'\A(?:(?:(?s:.*)\nQuestion: |[^\n]*[{marks}] +)?(?={rest}[.?!]?\s*\Z)'
    rf'|(?={rest}\?\n))'
  )


_SENTENCE = _question('.?!')
_CLAUSE = _question('.?!,')

_OBJECT = r'(?= (?:an?|the|this|some|[A-Z]\w*)\b)'
# How many of what, unless a verb or a comparison follows.
_COUNTED = (
  r'(?= (?!(?:of|more|fewer|less|are|is|were|was|do|does|did|can|could|will'
  r'|would|should|must|has|have|had)\b))'
)
_LEADS = (
  'Tell me: ',
  'Please find out: ',
  'Here is what I want to know: ',
  'Answer me this: ',
)

# What prompts begin with, and what can replace it.
_ORDERS = {
  r'Translate (?P<source>\w+) to (?P<target>\w+):': (
    r'What does this \g<source> text mean in \g<target>?',
    r'How would you say it in \g<target>? This is \g<source>:',
    r'I know no \g<source>. Give me this in \g<target>, please:',
    r'Here is something in \g<source>. Put it into \g<target>:',
    r'Render from \g<source> into \g<target>:',
  ),
  r'Summarize:': (
    'Give me the gist of this:',
    'What is this about, in short?',
    'I have no time to read all of it. Condense the following:',
    'In a sentence or two, what does the text below say?',
    'Sum this up:',
  ),
  r'(?:Write|Create|Implement|Design|Develop|Construct|Build)' + _OBJECT: (
    *('I need', 'Please come up with', 'I am looking for'),
    *('Could you put together', 'Make me'),
  ),
  r'(?:Fix|Debug|Correct)' + _OBJECT: (
    *('Please repair', 'Find and remove what is wrong with', 'Set right'),
  ),
  r'(?:Explain|Describe)' + _OBJECT: (
    *('Tell me about', 'Help me understand', 'Say something about'),
  ),
  r'(?:Translate|Convert|Rewrite)' + _OBJECT: (
    *('Please change', 'I would like you to adapt', 'Rework'),
  ),
  r'(?:Provide|Show(?: me)?|Give(?: me)?|Generate)' + _OBJECT: (
    *('Let me see', 'I would like', 'Please present'),
  ),
  r'How (?:would you|can I|do I|do you|to)(?= )': (
    *('What is the method to', 'Do you know how to', 'What would it take to'),
  ),
  r'(?:Can|Could) you (?:please )?(?=[a-z])': (
    *('Please ', 'I would like you to ', 'Would you '),
  ),
}
# What stands before the words, the words, and what can replace them. Case
# does not matter, and carries over.
_RULES = (
  *((r'\A', words, others) for words, others in _ORDERS.items()),
  (
    *(_CLAUSE, r'How many' + _COUNTED),
    ('What number of', 'Work this out: how many', 'Count: how many'),
  ),
  (
    *(_CLAUSE, r'What is(?= )'),
    ("What's", 'Do you know what is', 'Could you say what is'),
  ),
  (_CLAUSE, r'(?=(?:what|how)\b)', _LEADS),
  (_SENTENCE, r'(?=(?:who|whom|whose|where|which|why)\b)', _LEADS),
  (_SENTENCE, r'(?=when (?:did|do|does|is|are|was|were|will)\b)', _LEADS),
)

_FRAMES = (
  'Could you help me with something? {}',
  'Hi! {}',
  'I have a request. {}',
  'Hello, a friend asked me this. {}',
  '{}\n\nThanks in advance!',
  '{}\n\nTake your time.',
)


def rephrase(prompt: str, seed: int) -> str:
  """Returns another prompt, the same one for the same prompt and seed."""
  if not prompt:
    raise ValueError('prompt must not be empty.')
  # Seeded with a string, which has no hash that differs between processes.
  draw = random.Random(f'{seed} {prompt}')
  reworded = _reword(prompt, draw)
  if reworded != prompt and draw.random() < 0.5:
    return reworded
  return draw.choice(_FRAMES).format(reworded)


def _reword(prompt, draw):
  """Applies the first rule that fits, if any does."""
  for before, words, alternatives in _RULES:
    found = re.search(f'{before}(?P<words>{words})', prompt, re.IGNORECASE)
    if found:
      start, end = found.span('words')
      said = found.expand(draw.choice(alternatives))
      case = str.upper if prompt[start].isupper() else str.lower
      return prompt[:start] + case(said[0]) + said[1:] + prompt[end:]
  return prompt
