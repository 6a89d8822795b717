"""Distributions of sequences, and tests of samples against them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats


def random_table(
  rng: np.random.Generator, *shape: int, low: float = 0.1
) -> np.ndarray:
  """Returns random transition tables without tiny entries, float32.

  Args:
    rng: random generator of the entries.
    *shape: shape of the tables, whose last axis is the vocabulary.
    low: lower bound of the entries before rows are normalized; the upper bound
      is 1.
  """
  table = rng.uniform(low, 1, shape)
  return (table / table.sum(-1, keepdims=True)).astype(np.float32)


def sequence_probs(
  table: Any, start: int, length: int, position: int = 0
) -> np.ndarray:
  """Returns `[V**length]` probabilities of the tokens after `start`.

  Args:
    table: `[V, V]` transition probabilities of a Markov model, or `[T, V, V]`
      if they change with the position.
    start: the token before the sequence.
    length: number of tokens in a sequence.
    position: position of the first token.
  """
  tables = np.asarray(table, np.float64)
  tables = tables if tables.ndim == 3 else tables[None]
  probs, last = np.ones(1), np.array([start])
  for step in range(position, position + length):
    rows = tables[min(step, len(tables) - 1)][last]
    probs = (probs[:, None] * rows / rows.sum(-1, keepdims=True)).ravel()
    last = np.arange(probs.size) % tables.shape[-1]
  return probs


def chi_square(sequences: Sequence[Any] | np.ndarray, probs: Any) -> float:
  """Returns the p-value of sampled sequences in a chi-square test.

  Args:
    sequences: `[n, T]` tokens. Sequences with an expected count below 5 are
      merged into one cell.
    probs: `[V**T]` probabilities of all sequences.

  Raises:
    AssertionError: a sequence of probability 0 was sampled.
  """
  rows = np.asarray(sequences).reshape(len(sequences), -1)
  probs = np.asarray(probs, np.float64)
  vocab_size = round(probs.size ** (1 / rows.shape[1]))
  cells = np.ravel_multi_index(tuple(rows.T), (vocab_size,) * rows.shape[1])
  counts = np.bincount(cells, minlength=probs.size)
  if counts[probs == 0].any():
    raise AssertionError('A sequence of probability 0 was sampled.')
  expected = len(cells) * probs / probs.sum()
  rare = expected < 5
  if rare.any():
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
  keep = expected > 0
  if keep.sum() < 2:
    return 1.0
  return float(stats.chisquare(counts[keep], expected[keep]).pvalue)
