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
  calls: list[tuple[int, float]] = []  # Tokens of each, and when it ended.
  num_messages = len(conversation.messages)
  try:
    for chunk in conversation.say(text, max_new_tokens):
      for piece, origin in chunk.pieces:
        print(terminal.paint(piece, origin), end='', flush=True)
      if chunk.num_tokens:
        calls.append((chunk.num_tokens, time.perf_counter()))
  except KeyboardInterrupt:
    print(' ...', end='')
  # There is no answer if the prefill was interrupted.
  answers = conversation.messages[num_messages + 1 :]
  row = {
    'turn': text,
    'answer': ''.join(message['content'] for message in answers),
    **rates(calls),
  }
  print(f'\n[{_describe(row)}]')
  return row


def rates(calls: Sequence[tuple[int, float]]) -> dict[str, Any]:
  """Returns the tokens per target call and per second of an answer.

  The rate begins at the end of the first call, which follows the prefill and,
  in the first turn, compilation. It is None if there is no other call.

  Args:
    calls: for each target call, its emitted tokens and the second of its end.
  """
  tokens = sum(num for num, _ in calls)
  row = {'tokens': tokens, 'block_efficiency': tokens / max(len(calls), 1)}
  if len(calls) < 2:
    return row | {'tokens_per_second': None}
  (first, start), *_, (_, end) = calls
  return row | {'tokens_per_second': (tokens - first) / (end - start)}


def _describe(row: dict[str, Any]) -> str:
  """Returns the rates of an answer in words."""
  text = (
    f'{row["tokens"]} tokens, {row["block_efficiency"]:.2f} per target call'
  )
  if row['tokens_per_second'] is None:
    return text
  return f'{text}, {row["tokens_per_second"]:.1f} per second'
