"""Drafters with a constant acceptance rate: tokens, rounds and rewards.

In a chain of length `L`, every draft token is accepted with probability `a`,
independently of the others. Leviathan et al. (2023); MetaSD (Kim et al. 2026),
Lemmas 5 to 7, 12 and Theorem 3; BanditSpec (Hou et al. 2025), the truncated
geometric distribution.
"""

from typing import NamedTuple

import numpy as np

from specjax import checks


def block_lengths(acceptance: float, draft_length: int) -> np.ndarray:
  """Returns `[L + 1]`, how likely a round emits 1, 2, ... `L + 1` tokens."""
  _check(acceptance, draft_length)
  powers = acceptance ** np.arange(draft_length + 1)
  return powers * np.append(np.full(draft_length, 1 - acceptance), 1.0)


def block_efficiency(acceptance: float, draft_length: int) -> float:
  """Returns the block efficiency, `(1 - a**(L+1)) / (1 - a)`.

  This is the expected number of emitted tokens per target call.
  """
  _check(acceptance, draft_length)
  return float((acceptance ** np.arange(draft_length + 1)).sum())


def expected_rounds(
  acceptance: float, draft_length: int, num_tokens: int
) -> float:
  """Returns the expected rounds until at least `num_tokens` are emitted."""
  checks.check_integers('num_tokens', num_tokens, 0)
  lengths = block_lengths(acceptance, draft_length)
  rounds = np.zeros(num_tokens + 1)
  for num in range(1, num_tokens + 1):
    remaining = np.maximum(num - 1 - np.arange(draft_length + 1), 0)
    rounds[num] = 1 + lengths @ rounds[remaining]
  return float(rounds[num_tokens])


class RewardStatistics(NamedTuple):
  """Means and variances of MetaSD's rewards BE and BD."""

  # BE is the number of accepted drafts over `L`.
  efficiency_mean: float
  efficiency_variance: float
  # BD is the mean of `1 - TV` over the drafted positions.
  divergence_mean: float
  divergence_variance_bound: float


def reward_statistics(acceptance: float, draft_length: int) -> RewardStatistics:
  """Returns the moments in MetaSD's Lemmas 5 to 7.

  For the variance of BD, the lemma has an upper bound only.
  """
  _check(acceptance, draft_length)
  steps = np.arange(1, draft_length + 1)
  powers = acceptance ** (steps - 1) - acceptance ** (
    2.0 * draft_length - steps
  )
  return RewardStatistics(
    efficiency_mean=float((acceptance**steps).sum() / draft_length),
    efficiency_variance=float(
      acceptance * (steps * powers).sum() / draft_length**2
    ),
    divergence_mean=float(acceptance),
    divergence_variance_bound=1 / (4 * draft_length),
  )


def feedback_signal(gap: float, variance: float, best_variance: float) -> float:
  """Returns the feedback signal, which grows as a reward separates two arms.

  MetaSD, equation (6): the squared gap between the mean rewards, divided by the
  larger variance. For block divergence, it is at least `4 * L * gap**2`
  (Theorem 3).

  Args:
    gap: difference of the mean rewards of the best arm and another arm.
    variance: variance of the other arm's reward.
    best_variance: variance of the best arm's reward.
  """
  return gap**2 / max(variance, best_variance)


def _check(acceptance: float, draft_length: int) -> None:
  """Raises a `ValueError` if an argument is out of range."""
  checks.check_range('acceptance', acceptance, 0, 1)
  checks.check_integers('draft_length', draft_length, 1)
