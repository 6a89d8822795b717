"""Bounds on the stopping-time regret.

The regret is the expected number of rounds minus that of the best single arm.

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
    means: mean emitted tokens per round, for each arm.
    draft_length: `L`.
    num_tokens: expected number of emitted tokens.
    delta: confidence parameter of UCBSpec.
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
    num_arms: number of arms.
    draft_length: `L`.
    num_tokens: expected number of emitted tokens.
    best_rounds: expected number of rounds with the best single arm.
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


def _means(means: Sequence[float]) -> np.ndarray:
  """Returns the means as float64, or raises a `ValueError`."""
  values = np.asarray(means, np.float64)
  if values.ndim != 1 or not len(values) or not (values >= 1).all():
    raise ValueError(
      f'means must be a list of tokens per round, each >= 1, got {values}.'
    )
  return values
