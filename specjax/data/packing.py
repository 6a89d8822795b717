"""Packs examples into rows of equal length, and selects batches by step."""

from collections.abc import Sequence
import operator
from typing import NamedTuple
from typing import Protocol
from typing import TypeVar

import jax
import numpy as np


class Batch(NamedTuple):
  """Rows for a training step.

  Several examples share a row, but do not attend to each other.

  Attributes:
    tokens: `[B, T]` int32.
    positions: `[B, T]` int32, positions within the example; -1 for padding.
    segments: `[B, T]` int32, indices of the example within the row; -1 for
      padding.
    weights: `[B, T]` float32, weight of predicting token `t + 1`.
  """

  tokens: np.ndarray
  positions: np.ndarray
  segments: np.ndarray
  weights: np.ndarray


class TaughtBatch(NamedTuple):
  """Rows for a training step, and a teacher's outputs for them.

  Attributes:
    tokens: See `Batch`.
    positions: See `Batch`.
    segments: See `Batch`.
    weights: See `Batch`.
    features: `[B, T, F]` float16, the input of the teacher's output head.
    normalizers: `[B, T]` float32, logsumexp of the teacher's logits.
    best: `[B, T]` int32, the token of the teacher's largest logit.
    taps: other features of the teacher, `[B, T, F]` float16.
  """

  tokens: np.ndarray
  positions: np.ndarray
  segments: np.ndarray
  weights: np.ndarray
  features: np.ndarray
  normalizers: np.ndarray
  best: np.ndarray
  taps: tuple[np.ndarray, ...]


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
  """Packs token sequences into rows, each into the first row with room for it.

  Args:
    sequences: pairs `(tokens, start)`; the tokens from index `start` on, at
      least 1, are predicted. Tokens past `row_length` are cut off.
    row_length: `T`.
    seed: seed of the order in which sequences are packed.
    before: weight of predicting a token before `start`.

  Returns:
    All rows as one batch.
  """
  check_starts(sequences, 1)
  items = [(tokens[:row_length], start) for tokens, start in sequences]
  rows = first_fit([[len(tokens)] for tokens, _ in items], [row_length], seed)
  return lay_out([[items[i] for i in row] for row in rows], row_length, before)


def num_tokens(batch: AnyBatch) -> int:
  """Returns the number of tokens of a batch, including padding and sources."""
  return batch.tokens.size + getattr(batch, 'source_tokens', np.empty(0)).size


def batch_at(rows: _Rows, step: int, batch_size: int, seed: int) -> _Rows:
  """Returns the batch of a step, from epochs that are shuffled.

  The batch depends only on the arguments, so that a resumed run uses the same
  batches.

  Args:
    rows: all rows.
    step: index of the step.
    batch_size: rows per batch.
    seed: seed of the order of each epoch.

  Raises:
    ValueError: there are fewer rows than `batch_size`.
  """
  num_rows = len(rows.tokens)
  if batch_size > num_rows:
    raise ValueError(
      f'batch_size must be <= the number of rows ({num_rows}), got '
      f'{batch_size}.'
    )
  epoch, within = divmod(step, num_rows // batch_size)
  order = np.random.default_rng((seed, epoch)).permutation(num_rows)
  return take(rows, order[within * batch_size : (within + 1) * batch_size])


def take(rows: _Rows, indices: np.ndarray | slice) -> _Rows:
  """Returns the rows with some indices."""
  return jax.tree.map(lambda field: field[indices], rows)


def check_starts(
  sequences: Sequence[tuple[Sequence[int], int]], first: int
) -> None:
  """Raises `ValueError` if a `start` is below `first` or past the tokens."""
  for tokens, start in sequences:
    if not first <= start <= len(tokens):
      raise ValueError(
        f'start must lie in [{first}, {len(tokens)}], the length, got {start}.'
      )


def first_fit(
  sizes: Sequence[Sequence[int]], capacity: Sequence[int], seed: int
) -> list[list[int]]:
  """Returns the indices of the examples in each row, packed by first fit.

  Args:
    sizes: numbers of tokens of each example, one for each of its sides: a
      source and a response have separate rows.
    capacity: number of tokens in a row, for each side.
    seed: seed of the order in which examples are packed.
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
  """Returns a batch with the examples of each row one after the other.

  Args:
    rows: pairs `(tokens, start)` of the examples in each row.
    row_length: `T`.
    before: weight of predicting a token before `start`.
  """
  shape = len(rows), row_length
  tokens = np.zeros(shape, np.int32)
  positions = np.full(shape, -1, np.int32)
  segments = np.full(shape, -1, np.int32)
  weights = np.zeros(shape, np.float32)
  for i, row in enumerate(rows):
    begin = 0
    for segment, (sequence, start) in enumerate(row):
      end = begin + len(sequence)
      tokens[i, begin:end] = sequence
      positions[i, begin:end] = np.arange(len(sequence))
      segments[i, begin:end] = segment
      weights[i, begin : end - 1] = before
      weights[i, begin + start - 1 : end - 1] = 1.0
      begin = end
  return Batch(tokens, positions, segments, weights)
