import re

import pytest

from experiments.common import rephrase

SEEDS = range(40)
PASSAGE = (
  'Of what is told here, what is 12? Who knows how many times. What is more, '
  'Write a note. Summarize: 7.\n\nQuestion: '
)
STORY = 'A box holds 2.5 kg.  What is in it costs $3. '

# The text before the words, the words ('' if words are inserted), the suffix.
REWORDED = {
  'translation': ('', 'Translate German to English:', ' Was? Write a 7, what?'),
  'summary': ('', 'Summarize:', f' {PASSAGE}What is this?'),
  'writing': ('', 'Write', ' a function f.\nassert f(3) == "what is 4?"'),
  'creating': ('', 'Create', ' Java code.\n\nWrite a loop? How many: 5'),
  'mending': ('', 'Fix', ' this bug:\n\nif x = 2:\n  return {"Fix": "{}"}'),
  'explaining': ('', 'Explain', ' the loop `for i in range(10)`.'),
  'code to code': ('', 'Translate', ' the C code to Rust:\n\nint x = 1;'),
  'showing': ('', 'Show me', ' an example of a merge, with 3 keys.'),
  'methods': ('', 'How would you', ' sort a list?\n\n[3, 1, 2]'),
  'favours': ('', 'Can you', ' sort this?\n\n[3, 1, 2]'),
  'naming': ('', 'What is', ' 1 of the capitals of Peru?\n\nWhat is Lima?'),
  'who': ('', '', 'who wrote dracula in 1897'),
  'when': ('', '', 'when did the 2nd war end'),
  'counting': (STORY, 'How many', ' boxes are 10?'),
  'counting on': (f'{STORY}If 3 are sold, ', '', 'how many are left?'),
  'counting things': ('If 3 are sold, ', 'how many', ' boxes are left?'),
  'price': (STORY, '', 'How much are 3 at $2.50?'),
  'passage': (PASSAGE, 'What is', ' told?'),
  'who of a passage': (PASSAGE, '', 'Who knows?'),
}

# Instructions and questions that belong to code, data or a story.
FRAMED = (
  'def f(x):\n  """What is x? How many are there, what is 3?"""\n',
  'Say it again.\n\nHow many, what is it?',
  'If 5 are sold, how many are left?\n\nWrite a program, 7 lines.',
  'He sailed in 1492, which is when the pen, where it lay, was lost.',
  'What is here is 7.\n\nKeep it.',
  'Say {} and {0}.',
)


@pytest.mark.parametrize('case', REWORDED)
def test_the_words_change_and_what_they_are_about_does_not(case):
  """Keeps the text around the words, and all numbers.

  Each rule has at least 3 alternatives, which 40 draws almost surely cover.
  """
  story, words, suffix = REWORDED[case]
  prompt = story + words + suffix
  texts = [rephrase.rephrase(prompt, seed) for seed in SEEDS]
  for text in texts:
    assert text != prompt and story in text and text.count(suffix) == 1
    assert re.findall(r'\d+', text) == re.findall(r'\d+', prompt)
    if story or words:
      assert prompt not in text  # A frame is not enough.
  texts = [text[text.index(story) + len(story) :] for text in texts]
  assert len({text[: text.index(suffix)] for text in texts}) >= 3


@pytest.mark.parametrize('prompt', FRAMED)
def test_what_is_no_instruction_is_framed_verbatim(prompt):
  texts = {rephrase.rephrase(prompt, seed) for seed in SEEDS}
  assert prompt not in texts and len(texts) >= 3
  assert all(prompt in text for text in texts)


@pytest.mark.parametrize('word', ['What', 'what'])
def test_case_carries_over(word):
  texts = [rephrase.rephrase(f'{word} is love?', seed) for seed in SEEDS]
  unframed_texts = {text for text in texts if re.fullmatch(r"[\w' ]+\?", text)}
  assert len(unframed_texts) == 3
  assert {text[0].isupper() for text in unframed_texts} == {word[0].isupper()}


def test_the_draw_is_the_same_in_every_process():
  """A seed made with `hash` would give another text each time."""
  text = rephrase.rephrase('Translate German to English: Gut.', 0)
  assert text == 'I have a request. Render from German into English: Gut.'


def test_an_empty_prompt_raises():
  with pytest.raises(ValueError, match='prompt must not be empty'):
    rephrase.rephrase('', 0)
