"""Packs pairs of a source and a response, to train encoder-decoders."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from specjax.data import packing


class PairBatch(NamedTuple):
  """Rows for a training step of an encoder-decoder; see `packing.Batch`.

  Attributes:
    source_tokens: `[B, S]` int32, tokens of the encoder.
    source_segments: `[B, S]` int32, indices of the example within the row; -1
      for padding.
    tokens: `[B, T]` int32, tokens of the decoder, from the start token on.
    segments: `[B, T]` int32, indices of the example within the row; -1 for
      padding.
    weights: `[B, T]` float32, weight of predicting token `t + 1`.
  """

  source_tokens: np.ndarray
  source_segments: np.ndarray
  tokens: np.ndarray
  segments: np.ndarray
  weights: np.ndarray


def pack(
  sequences: Sequence[tuple[Sequence[int], int]],
  source_length: int,
  target_length: int,
  seed: int,
) -> PairBatch:
  """Packs token sequences into rows for encoder and decoder.

  Args:
    sequences: pairs `(tokens, start)`; the tokens from index `start` on, at
      least 2, are predicted. The token before is the decoder's start token, and
      all tokens before that are the source.
    source_length: `S`; longer sources are cut off.
    target_length: `T`; longer responses are cut off.
    seed: seed of the order in which sequences are packed.

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
    """Lays out the sources or the responses of all rows."""
    row_examples = [[examples[i] for i in row] for row in rows]
    return packing.lay_out(row_examples, row_length, before=0.0)

  source = lay_out(sources, source_length)
  target = lay_out(targets, target_length)
  return PairBatch(
    source_tokens=source.tokens,
    source_segments=source.segments,
    tokens=target.tokens,
    segments=target.segments,
    weights=target.weights,
  )
