"""Packs pairs of a source and a response, which encoder-decoders learn from."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from specjax.data import packing


class PairBatch(NamedTuple):
  """Rows for a training step of an encoder-decoder; see `packing.Batch`.

  An example has the same number in both of its segments.
  """

  source_tokens: np.ndarray  # [B, S] int32
  source_segments: np.ndarray  # [B, S] int32 example; -1 is padding
  tokens: np.ndarray  # [B, T] int32 of the decoder, from the start token on
  segments: np.ndarray  # [B, T] int32 example; -1 is padding
  weights: np.ndarray  # [B, T] float32 weight of predicting token t + 1


def pack(
  sequences: Sequence[tuple[Sequence[int], int]],
  source_length: int,
  target_length: int,
  seed: int,
) -> PairBatch:
  """Packs token sequences into rows of two sides, as `packing.pack` does.

  Args:
    sequences: `(tokens, start)`; the tokens from index `start` on, at least 2,
      are to be predicted. The one before starts the decoder, and all before
      that are the source.
    source_length: `S`; what exceeds it on its side is cut off.
    target_length: `T`; what exceeds it on its side is cut off.
    seed: of the order in which sequences are packed.

  Returns:
    All rows as one batch.
  """
  packing.check_starts(sequences, 2)
  sources, targets = [], []
  for tokens, start in sequences:
    sources.append((tokens[: start - 1][:source_length], 1))
    targets.append((tokens[start - 1 :][:target_length], 1))
  sizes = [[len(s), len(t)] for (s, _), (t, _) in zip(sources, targets)]
  rows = packing.first_fit(sizes, [source_length, target_length], seed)

  def lay_out(examples: list[Any], row_length: int) -> packing.Batch:
    """Lays out one side."""
    examples_of_rows = [[examples[i] for i in row] for row in rows]
    return packing.lay_out(examples_of_rows, row_length, before=0.0)

  source = lay_out(sources, source_length)
  target = lay_out(targets, target_length)
  return PairBatch(
    source_tokens=source.tokens,
    source_segments=source.segments,
    tokens=target.tokens,
    segments=target.segments,
    weights=target.weights,
  )
