"""Examples packed into rows of equal length, and batches addressed by step."""

from collections.abc import Sequence
import operator
from typing import NamedTuple
from typing import Protocol
from typing import TypeVar

import jax
import numpy as np


class Batch(NamedTuple):
  """Rows for a training step; several examples share a row, unseen by each
  other."""

  tokens: np.ndarray  # [B, T] int32
  positions: np.ndarray  # [B, T] int32 within the example; -1 is padding
  segments: np.ndarray  # [B, T] int32 example within the row; -1 is padding
  weights: np.ndarray  # [B, T] float32 weight of predicting token t + 1


class TaughtBatch(NamedTuple):
  """Rows as in `Batch`, and what a teacher computed of them."""

  tokens: np.ndarray  # [B, T] int32
  positions: np.ndarray  # [B, T] int32
  segments: np.ndarray  # [B, T] int32
  weights: np.ndarray  # [B, T] float32
  features: np.ndarray  # [B, T, F] float16, what the teacher's head reads
  normalizers: np.ndarray  # [B, T] float32, logsumexp of its logits
  best: np.ndarray  # [B, T] int32, the token of its largest logit
  taps: tuple[np.ndarray, ...]  # [B, T, F] float16 each, other features


class AnyBatch(Protocol):
  """Rows for a training step: a pytree of arrays `[B, ...]`."""

  @property
  def tokens(self) -> np.ndarray:
    """`[B, T]` int32."""


_Rows = TypeVar('_Rows', bound=AnyBatch)


def pack(
  sequences: Sequence[tuple[Sequence[int], int]],
  row_length: int,
  seed: int,
  *,
  before: float = 0.0,
) -> Batch:
  """Packs token sequences into rows, first fit over the rows still open.

  Args:
    sequences: `(tokens, start)`; the tokens from index `start` on, at least 1,
      are to be predicted. What exceeds `row_length` is cut off.
    row_length: `T`.
    seed: of the order in which sequences are packed.
    before: weight of predicting a token before `start`.

  Returns:
    All rows as one batch.
  """
  check_starts(sequences, 1)
  items = [(tokens[:row_length], start) for tokens, start in sequences]
  rows = first_fit([[len(tokens)] for tokens, _ in items], [row_length], seed)
  return lay_out([[items[i] for i in row] for row in rows], row_length, before)


def num_tokens(batch: AnyBatch) -> int:
  """Returns how many tokens a batch has room for, on all sides."""
  return batch.tokens.size + getattr(batch, 'source_tokens', np.empty(0)).size


def batch_at(rows: _Rows, step: int, batch_size: int, seed: int) -> _Rows:
  """Returns the batch of a step: shuffled epochs as a function of the step.

  Nothing is remembered between steps, so a resumed run sees the same batches.
  """
  num_rows = len(rows.tokens)
  if batch_size > num_rows:
    raise ValueError(
      f'batch_size must be <= the number of rows ({num_rows}), got '
      f'{batch_size}.'
    )
  epoch, within = divmod(step, num_rows // batch_size)
  order = np.random.default_rng((seed, epoch)).permutation(num_rows)
  chosen = order[within * batch_size : (within + 1) * batch_size]
  return take(rows, chosen)


def take(rows: _Rows, chosen: np.ndarray | slice) -> _Rows:
  """Returns some of the rows."""
  return jax.tree.map(lambda field: field[chosen], rows)


def check_starts(
  sequences: Sequence[tuple[Sequence[int], int]], first: int
) -> None:
  """Refuses a `start` before `first` or past the end of its tokens."""
  for tokens, start in sequences:
    if not first <= start <= len(tokens):
      raise ValueError(
        f'start must lie in [{first}, {len(tokens)}], the length, got {start}.'
      )


def first_fit(
  sizes: Sequence[Sequence[int]], capacity: Sequence[int], seed: int
) -> list[list[int]]:
  """Returns the indices of the examples that share each row.

  Args:
    sizes: tokens of each example, on each of its sides.
    capacity: tokens that a row holds, on each side.
    seed: of the order in which examples are packed.
  """
  rows: list[list[int]] = []
  remaining: list[list[int]] = []
  open_rows: list[int] = []
  for index in np.random.default_rng(seed).permutation(len(sizes)):
    size = sizes[index]
    fits = (
      row for row in open_rows if all(map(operator.ge, remaining[row], size))
    )
    row = next(fits, None)
    if row is None:
      row = len(rows)
      rows.append([])
      remaining.append(list(capacity))
      open_rows = [*open_rows[-63:], row]
    rows[row].append(index)
    remaining[row] = list(map(operator.sub, remaining[row], size))
  return rows


def lay_out(
  rows: Sequence[Sequence[tuple[Sequence[int], int]]],
  row_length: int,
  before: float,
) -> Batch:
  """Writes the examples of each row one after the other.

  Args:
    rows: `(tokens, start)` of the examples of each row.
    row_length: `T`.
    before: weight of predicting a token before `start`.
  """
  shape = len(rows), row_length
  tokens = np.zeros(shape, np.int32)
  positions = np.full(shape, -1, np.int32)
  segments = np.full(shape, -1, np.int32)
  weights = np.zeros(shape, np.float32)
  for i, row in enumerate(rows):
    at = 0
    for segment, (sequence, start) in enumerate(row):
      end = at + len(sequence)
      tokens[i, at:end] = sequence
      positions[i, at:end] = np.arange(len(sequence))
      segments[i, at:end] = segment
      weights[i, at : end - 1] = before
      weights[i, at + start - 1 : end - 1] = 1.0
      at = end
  return Batch(tokens, positions, segments, weights)
