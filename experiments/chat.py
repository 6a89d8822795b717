"""Chats with a model on the terminal."""

from collections.abc import Iterator
from collections.abc import Sequence
import time
from typing import Any

from experiments.common import compare
from experiments.common import methods
from experiments.common import terminal
from specjax import families

# Fields that may differ between conversations in one workdir.
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
  """Returns the family and the method; the user types the prompts."""
  return compare.prepare_entries(config, methods.entry(config))


def run(config, workdir):
  """Answers typed input or `config.turns`; returns a row per turn."""
  del workdir  # A conversation is not resumed.
  family, (method,), _ = prepare(config)
  decoder = methods.build(method, family, config.max_length).decoder
  begin = lambda: families.Conversation(
    family.tokenizer, decoder, seed=config.seed
  )
  conversation, rows = begin(), []
  print(
    f'{config.family} with {method.label} ({terminal.legend()} tokens). {_NEW} '
    'begins a new conversation, Ctrl-C cuts an answer short, Ctrl-D ends. '
    'A program is compiled before the first answer.'
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


def _turns(texts: Sequence[str]) -> Iterator[str]:
  """Yields the user's messages: the texts, or typed input without any."""
  for text in texts:
    print(f'\n> {text}')
    yield text
  while not texts:
    try:
      text = input('\n> ').strip()
    except (EOFError, KeyboardInterrupt):
      print()
      return
    if text:
      yield text


def _answer(
  conversation: families.Conversation, text: str, max_new_tokens: int
) -> dict[str, Any]:
  """Prints an answer while it is decoded; returns its row."""
  tokens, rounds, began = 0, 0, time.perf_counter()
  try:
    for chunk in conversation.say(text, max_new_tokens):
      for piece, origin in chunk.pieces:
        print(terminal.paint(piece, origin), end='', flush=True)
      tokens += chunk.num_tokens
      rounds += chunk.num_tokens > 0
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
    f'\n[{tokens} tokens, {row["tokens_per_round"]:.2f} per round, '
    f'{row["tokens_per_second"]:.1f} per second]'
  )
  return row
