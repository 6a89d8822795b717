"""Examples packed into rows of equal length, and batches addressed by step."""

from collections.abc import Sequence
import operator
from typing import NamedTuple

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


class PairBatch(NamedTuple):
  """Rows for a training step of an encoder-decoder, as in `Batch`.

  An example has the same number in both of its segments.
  """

  source_tokens: np.ndarray  # [B, S] int32
  source_segments: np.ndarray  # [B, S] int32 example; -1 is padding
  tokens: np.ndarray  # [B, T] int32 of the decoder, from the start token on
  segments: np.ndarray  # [B, T] int32 example; -1 is padding
  weights: np.ndarray  # [B, T] float32 weight of predicting token t + 1


AnyBatch = Batch | TaughtBatch | PairBatch


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
  _check_starts(sequences, 1)
  items = [(tokens[:row_length], start) for tokens, start in sequences]
  rows = _first_fit([[len(tokens)] for tokens, _ in items], [row_length], seed)
  return _lay_out([[items[i] for i in row] for row in rows], row_length, before)


def pack_pairs(
  sequences: Sequence[tuple[Sequence[int], int]],
  source_length: int,
  target_length: int,
  seed: int,
) -> PairBatch:
  """Packs token sequences into rows of two sides, as `pack` into one.

  Args:
    sequences: `(tokens, start)`; the tokens from index `start` on, at least 2,
      are to be predicted. The one before starts the decoder, and all before
      that are the source.
    source_length: `S`; what exceeds it on its side is cut off.
    target_length: `T`, likewise.
    seed: of the order in which sequences are packed.

  Returns:
    All rows as one batch.
  """
  _check_starts(sequences, 2)
  cut = lambda tokens, length: (tokens[:length], 1)
  sources = [
    cut(tokens[: start - 1], source_length) for tokens, start in sequences
  ]
  targets = [
    cut(tokens[start - 1 :], target_length) for tokens, start in sequences
  ]
  sizes = [[len(s), len(t)] for (s, _), (t, _) in zip(sources, targets)]
  rows = _first_fit(sizes, [source_length, target_length], seed)
  source, target = (
    _lay_out([[items[i] for i in row] for row in rows], length, before=0.0)
    for items, length in ((sources, source_length), (targets, target_length))
  )
  return PairBatch(
    source_tokens=source.tokens,
    source_segments=source.segments,
    tokens=target.tokens,
    segments=target.segments,
    weights=target.weights,
  )


def num_tokens(batch: AnyBatch) -> int:
  """Returns how many tokens a batch has room for, on all sides."""
  return batch.tokens.size + getattr(batch, 'source_tokens', np.empty(0)).size


def batch_at(rows: AnyBatch, step: int, batch_size: int, seed: int) -> AnyBatch:
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


def take(rows: AnyBatch, chosen: np.ndarray | slice) -> AnyBatch:
  """Returns some of the rows."""
  return jax.tree.map(lambda field: field[chosen], rows)


def _check_starts(sequences, first):
  for tokens, start in sequences:
    if not first <= start <= len(tokens):
      raise ValueError(
        f'start must lie in [{first}, {len(tokens)}], the length, got {start}.'
      )


def _first_fit(sizes, room, seed):
  """Returns rows of indices; `sizes` and `room` may have several sides."""
  rows: list[list[int]] = []
  rooms: list[list[int]] = []
  open_rows: list[int] = []
  for index in np.random.default_rng(seed).permutation(len(sizes)):
    size = sizes[index]
    fits = (row for row in open_rows if all(map(operator.ge, rooms[row], size)))
    row = next(fits, None)
    if row is None:
      row = len(rows)
      rows.append([])
      rooms.append(room)
      open_rows = [*open_rows[-63:], row]
    rows[row].append(index)
    rooms[row] = list(map(operator.sub, rooms[row], size))
  return rows


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
