"""Talks with a model, turn by turn, on the terminal."""

import time

from experiments.common import compare
from experiments.common import methods
from experiments.common import terminal
from specjax import families

# One workdir will do for all conversations.
MAY_CHANGE = (
  'arms',
  'bandit',
  'max_new_tokens',
  'sampling',
  'seed',
  'system',
  'turns',
)
_NEW = '/new'


def prepare(config):
  """Returns the family and the method; prompts are what is typed."""
  return compare.of_entries(config, methods.entry(config))


def run(config, workdir):
  """Answers what is typed, or `config.turns`; returns a row for every turn."""
  del workdir  # A conversation is not resumed.
  family, (method,), _ = prepare(config)
  decoder = methods.build(method, family, config.max_length).decoder
  begin = lambda: families.Conversation(
    family.tokenizer, decoder, seed=config.seed
  )
  conversation, rows = begin(), []
  print(
    f'{config.family} by {method.label} ({terminal.legend()} tokens). {_NEW} '
    'begins a new conversation, Ctrl-C cuts an answer short, Ctrl-D ends. '
    'Before its first answer, a program is compiled.'
  )
  for text in _turns(config.turns):
    if text == _NEW:
      conversation = begin()
      continue
    try:
      rows.append(_answer(conversation, text, config.max_new_tokens))
    except ValueError as error:
      print(f'{error} {_NEW} begins a new conversation.')
  return rows


def _turns(given):
  """What the user says: as given, or as typed."""
  for text in given:
    print(f'\n> {text}')
    yield text
  while not given:
    try:
      text = input('\n> ').strip()
    except (EOFError, KeyboardInterrupt):
      print()
      return
    if text:
      yield text


def _answer(conversation, text, max_new_tokens):
  """Prints an answer as it comes; returns its row."""
  tokens, rounds, began = 0, 0, time.perf_counter()
  try:
    for said in conversation.say(text, max_new_tokens):
      for piece, origin in said.pieces:
        print(terminal.paint(piece, origin), end='', flush=True)
      tokens += said.num_tokens
      rounds += said.num_tokens > 0
  except KeyboardInterrupt:
    print(' ...', end='')
  seconds = time.perf_counter() - began
  row = {
    'turn': text,
    'answer': conversation.messages[-1]['content'],
    'tokens': tokens,
    'tokens_per_round': tokens / max(rounds, 1),
    'tokens_per_second': tokens / seconds,
  }
  print(
    f'\n[{tokens} tokens, {row["tokens_per_round"]:.2f} a round, '
    f'{row["tokens_per_second"]:.1f} a second]'
  )
  return row
