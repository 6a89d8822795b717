"""Rephrases prompts by templates.

MetaSD (Kim et al. 2026, Tables 6, 8 and 12) uses paraphrases from a large model
to test routers that were trained on one wording. Here the instruction is
reworded by the first rule that matches, and often put into a frame. Its subject
stays verbatim: texts to translate or to summarize, passages, numbers, code.
"""

import random
import re


def _question(marks: str) -> str:
  """Returns a pattern for the text before a question: '', a passage, a story.

  The question is the end of the prompt, or a first line with a question mark. A
  story is a single line that ends with one of the marks.
  """
  question = r'(?:[^.?!\n]|\.\d)*'
  return (
    rf'\A(?:(?:(?s:.*)\nQuestion: |[^\n]*[{marks}] +)?(?={question}[.?!]?\s*\Z)'
    rf'|(?={question}\?\n))'
  )


_SENTENCE = _question('.?!')
_CLAUSE = _question('.?!,')

_OBJECT = r'(?= (?:an?|the|this|some|[A-Z]\w*)\b)'
# The object of "how many", unless a verb or a comparison follows.
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

# Beginnings of prompts, and their replacements.
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
# The text before the words, the words, and their replacements. Matching ignores
# case, and the case carries over.
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
  """Returns a rephrased prompt, a function of the prompt and the seed.

  Raises:
    ValueError: the prompt is empty.
  """
  if not prompt:
    raise ValueError('prompt must not be empty.')
  # Seeded with a string: unlike hashes, it is equal in all processes.
  draw = random.Random(f'{seed} {prompt}')
  reworded = _reword(prompt, draw)
  if reworded != prompt and draw.random() < 0.5:
    return reworded
  return draw.choice(_FRAMES).format(reworded)


def _reword(prompt: str, draw: random.Random) -> str:
  """Applies the first rule that matches, if any does."""
  for before, words, alternatives in _RULES:
    match = re.search(f'{before}(?P<words>{words})', prompt, re.IGNORECASE)
    if match:
      start, end = match.span('words')
      text = match.expand(draw.choice(alternatives))
      case = str.upper if prompt[start].isupper() else str.lower
      return prompt[:start] + case(text[0]) + text[1:] + prompt[end:]
  return prompt
