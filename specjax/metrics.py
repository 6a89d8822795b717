"""What a set of results says: block efficiency and acceptance by position."""

from collections.abc import Sequence

import numpy as np


def block_efficiency(results: Sequence) -> tuple[float, float]:
  """Returns emitted tokens per target call, and its standard error.

  Pooled over all rounds of all results (Spec-Bench's mean accepted tokens).
  Tokens past a stop token were never emitted and count nowhere. The error is
  that of a ratio of sums over independent prompts.
  """
  efficiency, deviations = _efficiency(results)
  return efficiency, float(np.sqrt((deviations**2).sum()))


def _efficiency(results):
  """The block efficiency, and by how much each result moves it."""
  emitted = np.array([len(result.tokens) for result in results], float)
  rounds = np.array([result.rounds for result in results], float)
  if not rounds.sum():
    return float('nan'), np.full(1, np.nan)
  ratio = float(emitted.sum() / rounds.sum())
  return ratio, (emitted - ratio * rounds) / rounds.sum()


def efficiency_ratio(
  results: Sequence, others: Sequence
) -> tuple[float, float]:
  """Returns the ratio of two block efficiencies, and its standard error.

  Args:
    results: of some prompts.
    others: of the same prompts, in the same order, so that what prompts have in
      common cancels.
  """
  if len(results) != len(others):
    raise ValueError(
      f'results and others must pair up, got {len(results)} and {len(others)}.'
    )
  (ours, our_deviations), (theirs, their_deviations) = map(
    _efficiency, (results, others)
  )
  ratio = ours / theirs
  deviations = our_deviations / ours - their_deviations / theirs
  return ratio, ratio * float(np.sqrt((deviations**2).sum()))


def acceptance_by_position(results: Sequence) -> np.ndarray:
  """Returns `[D]`: of the drafts that were reached at a depth, the share kept.

  A draft token is reached if all before it in its round were accepted; where
  none was, the share is NaN.
  """
  accepted = np.sum([result.accepted for result in results], axis=0)
  drafted = np.sum([result.drafted for result in results], axis=0)
  reached = np.minimum(drafted, np.append(np.inf, accepted[:-1]))
  with np.errstate(invalid='ignore', divide='ignore'):
    return np.where(reached > 0, accepted / reached, np.nan)
