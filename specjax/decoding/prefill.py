"""What a decoder is asked: prompts, numbers of tokens, seeds; checked early."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import itertools
from typing import Any
from typing import NamedTuple
import warnings

import numpy as np

from specjax import base
from specjax import checks

# Seeds and request ids are folded into keys as 32 bits.
_LARGEST = 2**32 - 1


class Requests(NamedTuple):
  """Prompts of a batch, row by row."""

  prompts: list[list[int]]
  limits: np.ndarray  # [B] int32, longest length of each row
  ids: np.ndarray  # [B] uint32


def read(
  target: base.LanguageModel,
  max_length: int,
  prompts: Sequence[Sequence[int]],
  max_new_tokens: int | Sequence[int],
  request_ids: Sequence[int] | None,
  first: int = 0,
) -> Requests:
  """Checks what `Decoder.init` is given.

  Args:
    target: the model to sample from.
    max_length: longest row in tokens, prompt included.
    prompts: token ids of each prompt; an integer array `[B, T]` will do.
    max_new_tokens: how many tokens to emit at most, for all or for each.
    request_ids: a number for each prompt; 0, 1, ... if None.
    first: number of the first prompt, in what is refused.

  Raises:
    ValueError: something is of the wrong type or shape, or out of its range.
  """
  checked = _prompts(prompts, target.vocab_size, first=first)
  num = len(checked)
  news = _integers('max_new_tokens', max_new_tokens, num)
  checks.check_range('max_new_tokens', max_new_tokens, 0)
  ids = np.arange(num)
  if request_ids is not None:
    ids = _integers('request_ids', list(request_ids), num)
    checks.check_range('request_ids', request_ids, 0, _LARGEST)
  for i, (prompt, new) in enumerate(zip(checked, news), first):
    _check_source(f'prompts[{i}]', prompt, target.start_id)
    if len(prompt) + new > max_length:
      raise ValueError(
        f'prompts[{i}] has {len(prompt)} tokens; with max_new_tokens='
        f'{new} it exceeds max_length={max_length}.'
      )
  limits = np.array([len(p) + n for p, n in zip(checked, news)], np.int32)
  return Requests(checked, limits, ids.astype(np.uint32))


def queues(
  target: base.LanguageModel,
  max_length: int,
  prompts: Iterable[Sequence[int]],
  max_new_tokens: int | Iterable[int],
  request_ids: Iterable[int] | None,
  size: int,
) -> Iterator[Requests]:
  """Yields prompts, so many at a time; each is checked once its turn comes.

  Args:
    target: the model to sample from.
    max_length: longest row in tokens, prompt included.
    prompts: token ids of each prompt.
    max_new_tokens: how many tokens to emit at most, for all or for each.
    request_ids: a number for each prompt; 0, 1, ... if None.
    size: prompts of a queue; the last one may have fewer.

  Raises:
    ValueError: as in `read`; or there is no prompt at all.
  """
  waiting: Any = prompts
  if isinstance(waiting, str):
    _prompts(waiting, target.vocab_size)
  waiting, news, ids = (
    iter(each) if isinstance(each, Iterable) else otherwise
    for each, otherwise in (
      (waiting, iter(())),
      (max_new_tokens, itertools.repeat(max_new_tokens)),
      (request_ids, itertools.count()),
    )
  )
  first = 0
  take = lambda each, num: list(itertools.islice(each, num))
  while some := take(waiting, size):
    num = len(some)
    own = take(news, num), take(ids, num)
    yield read(target, max_length, some, *own, first=first)
    first += num
  if not first:
    raise ValueError('prompts must hold at least one prompt, got none.')


def read_more(
  target: base.LanguageModel,
  max_length: int,
  texts: Sequence[Sequence[int]],
  max_new_tokens: int | Sequence[int],
  lengths: np.ndarray,
) -> Requests:
  """Checks what `Decoder.append` is given.

  Args:
    target: the model to sample from.
    max_length: longest row in tokens.
    texts: token ids of each row, as prompts in `read`.
    max_new_tokens: as in `read`.
    lengths: `[B]` of the rows until then.

  Raises:
    ValueError: as in `read`; or the target cannot read on.
  """
  if target.start_id is not None:
    raise ValueError(
      'An encoder-decoder cannot be continued: its source ends where its '
      'answer begins.'
    )
  if len(texts) != len(lengths):
    raise ValueError(
      f'texts must be one for each of {len(lengths)} rows, got {len(texts)}.'
    )
  checked = _prompts(texts, target.vocab_size, 'texts')
  num = len(checked)
  news = _integers('max_new_tokens', max_new_tokens, num)
  checks.check_range('max_new_tokens', max_new_tokens, 0)
  limits = lengths + [len(text) for text in checked] + news
  if limits.max() > max_length:
    row = int(limits.argmax())
    raise ValueError(
      f'texts[{row}] has {len(checked[row])} tokens; behind a row of '
      f'{lengths[row]}, with max_new_tokens={news[row]}, it exceeds '
      f'max_length={max_length}.'
    )
  return Requests(checked, limits.astype(np.int32), np.arange(num))


def warn_beyond_positions(
  target: base.LanguageModel, arms: Sequence[base.Arm], requests: Requests
) -> None:
  """Warns where texts may outgrow what target or drafters were trained for."""
  longest = int(requests.limits.max())
  known = {'target': target.max_length}
  known |= {
    f'drafter of arm {i}': arm.drafter.max_length for i, arm in enumerate(arms)
  }
  for name, positions in known.items():
    if positions is not None and positions < longest:
      warnings.warn(
        f'A row may grow to {longest} tokens, but the model of the {name} was '
        f'trained for {positions} positions (its max_length): past them, its '
        'predictions may be poor.',
        stacklevel=3,
      )


def check_seed(seed: int) -> None:
  """Raises a `ValueError` unless it is an integer of 32 bits."""
  if not np.issubdtype(np.asarray(seed).dtype, np.integer):
    raise ValueError(f'seed must be an integer, got {seed!r}.')
  checks.check_range('seed', seed, 0, _LARGEST)


def _prompts(prompts, vocab_size, name='prompts', first=0):
  if isinstance(prompts, str):
    raise ValueError(
      f'{name} must be a list of lists of token ids, got the text '
      f'{prompts!r}: encode it first.'
    )
  if not len(prompts):
    raise ValueError(f'{name} must hold at least one prompt, got none.')
  return [
    _prompt(f'{name}[{i}]', prompt, vocab_size)
    for i, prompt in enumerate(prompts, first)
  ]


def _prompt(name, prompt, vocab_size):
  if isinstance(prompt, str):
    raise ValueError(
      f'{name} must be a list of token ids, got the text {prompt!r}: encode it '
      'first.'
    )
  try:
    tokens = np.asarray(prompt)
  except ValueError:  # Lists of different lengths.
    tokens = np.zeros((0, 0))
  if tokens.ndim != 1:
    raise ValueError(f'{name} must be a list of token ids, got {prompt!r}.')
  if not tokens.size:
    raise ValueError(f'{name} must not be empty.')
  if not np.issubdtype(tokens.dtype, np.integer):
    raise ValueError(
      f'{name} must hold integers, got {_first_other(prompt)!r}.'
    )
  if not 0 <= tokens.min() <= tokens.max() < vocab_size:
    raise ValueError(
      f'{name} must hold tokens in [0, {vocab_size}), got {tokens.min()} to '
      f'{tokens.max()}.'
    )
  return tokens.tolist()


def _first_other(values: Any) -> Any:
  """The first value that is no integer."""
  return next(
    value
    for value in values
    if not np.issubdtype(np.asarray(value).dtype, np.integer)
  )


def _integers(name, values, num):
  """Returns `[num]` integers, of one for all or of one for each."""
  array = np.asarray(values)
  if not np.issubdtype(array.dtype, np.integer):
    raise ValueError(f'{name} must be an integer or integers, got {values!r}.')
  if array.shape not in ((), (num,)):
    raise ValueError(
      f'{name} must be one for each of {num} prompts, got {array.size}.'
    )
  return np.broadcast_to(array, num)


def _check_source(name, prompt, start_id):
  """Refuses what an encoder-decoder cannot take apart."""
  if start_id is None:
    return
  if len(prompt) < 2 or [*prompt, start_id].index(start_id) != len(prompt) - 1:
    raise ValueError(
      f'{name} must be a source and then the start token {start_id}, once, got '
      f'{prompt}.'
    )
