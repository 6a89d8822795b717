"""Drafters of constant acceptance: tokens a round, rounds, reward statistics.

Every draft token is accepted with chance `a`, independently, in chains of
length `L`. Leviathan et al. (2023); MetaSD (Kim et al.), Lemmas 5 to 7, 12 and
Theorem 3; BanditSpec (Hou et al. 2025), the truncated geometric distribution.
"""

from typing import NamedTuple

import numpy as np


def block_lengths(acceptance: float, draft_length: int) -> np.ndarray:
  """Returns `[L + 1]` chances of 1 to `L + 1` emitted tokens a round."""
  _check(acceptance, draft_length)
  powers = acceptance ** np.arange(draft_length + 1)
  return powers * np.append(np.full(draft_length, 1 - acceptance), 1.0)


def block_efficiency(acceptance: float, draft_length: int) -> float:
  """Returns expected emitted tokens a round, `(1 - a**(L+1)) / (1 - a)`."""
  _check(acceptance, draft_length)
  return float((acceptance ** np.arange(draft_length + 1)).sum())


def expected_rounds(
  acceptance: float, draft_length: int, num_tokens: int
) -> float:
  """Returns expected rounds until at least so many tokens stand, exactly."""
  if num_tokens < 0:
    raise ValueError(f'num_tokens must be >= 0, got {num_tokens}.')
  lengths = block_lengths(acceptance, draft_length)
  rounds = np.zeros(num_tokens + 1)
  for wanted in range(1, num_tokens + 1):
    left = np.maximum(wanted - 1 - np.arange(draft_length + 1), 0)
    rounds[wanted] = 1 + lengths @ rounds[left]
  return float(rounds[num_tokens])


class RewardStatistics(NamedTuple):
  """Mean and variance of MetaSD's two rewards."""

  efficiency_mean: float  # of accepted drafts / L (BE)
  efficiency_variance: float
  divergence_mean: float  # of the mean of 1 - TV over the drafts (BD)
  divergence_variance_bound: float


def reward_statistics(acceptance: float, draft_length: int) -> RewardStatistics:
  """Returns MetaSD's Lemmas 5 to 7; the last is an upper bound."""
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
  """Returns MetaSD's equation (6): how clearly a reward separates two arms.

  The squared gap of the means over the larger variance. With block divergence
  it is at least `4 L gap**2` (Theorem 3).
  """
  return gap**2 / max(variance, best_variance)


def _check(acceptance, draft_length):
  if not 0 <= acceptance <= 1:
    raise ValueError(f'acceptance must lie in [0, 1], got {acceptance}.')
  if draft_length < 1:
    raise ValueError(f'draft_length must be >= 1, got {draft_length}.')
