"""What a set of results says: block efficiency and acceptance by position."""

from collections.abc import Sequence

import numpy as np


def block_efficiency(results: Sequence) -> tuple[float, float]:
  """Returns emitted tokens per target call, and its standard error.

  Pooled over all rounds of all results (Spec-Bench's mean accepted tokens).
  Tokens past a stop token were never emitted and count nowhere. The error is
  that of a ratio of sums over independent prompts.
  """
  emitted = np.array([len(result.tokens) for result in results], float)
  rounds = np.array([result.rounds for result in results], float)
  if not rounds.sum():
    return float('nan'), float('nan')
  ratio = emitted.sum() / rounds.sum()
  deviations = emitted - ratio * rounds
  return float(ratio), float(np.sqrt((deviations**2).sum()) / rounds.sum())


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
