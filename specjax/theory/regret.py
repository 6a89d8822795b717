"""Bounds of the stopping-time regret: rounds lost to the best single arm.

BanditSpec (Hou et al. 2025), Theorems 4.3 and 5.3. A round emits between 1 and
`L + 1` tokens; the number of emitted tokens excludes the prompt.
"""

from collections.abc import Sequence
import math

import numpy as np

from specjax import checks


def ucb_upper_bound(
  means: Sequence[float],
  draft_length: int,
  num_tokens: float,
  delta: float = 0.5,
) -> float:
  """Returns the upper bound of UCBSpec, equation (42).

  Args:
    means: mean tokens a round of each arm.
    draft_length: `L`.
    num_tokens: expected emitted tokens.
    delta: the confidence that its radius was built with.
  """
  lengths = _means(means)
  checks.check_range('delta', delta, 1e-12, 1)
  checks.check_range('draft_length', draft_length, 1)
  best = lengths.max()
  total = math.pi**2 * delta / 6 + len(lengths)
  for gap in best - lengths[lengths < best]:
    inside = draft_length * len(means) * num_tokens**2 / (gap * delta)
    pulls = 4 + 2 * draft_length**2 / gap**2 * (1 + 2 * math.log(inside))
    total += gap / best * pulls
  return float(total)


def exp3_upper_bound(
  num_arms: int, draft_length: int, num_tokens: float, best_rounds: float
) -> float:
  """Returns the upper bound of EXP3Spec, Theorem 5.3.

  Args:
    num_arms: how many arms there are.
    draft_length: `L`.
    num_tokens: expected emitted tokens.
    best_rounds: expected rounds of the best single arm.
  """
  checks.check_range('num_arms', num_arms, 1)
  checks.check_range('draft_length', draft_length, 1)
  scale = num_arms * math.log(num_arms)
  return (
    2
    * draft_length
    * min(
      math.sqrt(num_tokens * scale),
      2 * draft_length * scale + math.sqrt(best_rounds * scale),
    )
  )


def _means(means):
  means = np.asarray(means, np.float64)
  if means.ndim != 1 or not len(means) or not (means >= 1).all():
    raise ValueError(
      f'means must be a list of tokens a round >= 1, got {means}.'
    )
  return means
