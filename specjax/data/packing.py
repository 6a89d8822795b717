"""Examples packed into rows of equal length, and batches addressed by step."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Batch(NamedTuple):
  """Rows for a training step; several examples share a row, unseen by each
  other."""

  tokens: np.ndarray  # [B, T] int32
  positions: np.ndarray  # [B, T] int32 within the example; -1 is padding
  segments: np.ndarray  # [B, T] int32 example within the row; -1 is padding
  weights: np.ndarray  # [B, T] float32 weight of predicting token t + 1


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
  for tokens, start in sequences:
    if not 1 <= start <= len(tokens):
      raise ValueError(
        f'start must lie in [1, {len(tokens)}], the length, got {start}.'
      )
  rows, room, open_rows = [], [], []
  for index in np.random.default_rng(seed).permutation(len(sequences)):
    tokens, start = sequences[index]
    item = list(tokens[:row_length]), start
    fits = (row for row in open_rows if room[row] >= len(item[0]))
    row = next(fits, None)
    if row is None:
      row = len(rows)
      rows.append([])
      room.append(row_length)
      open_rows = [*open_rows[-63:], row]
    rows[row].append(item)
    room[row] -= len(item[0])
  return _lay_out(rows, row_length, before)


def batch_at(rows: Batch, step: int, batch_size: int, seed: int) -> Batch:
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
  return Batch(*(field[chosen] for field in rows))


def _lay_out(rows, row_length, before):
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
