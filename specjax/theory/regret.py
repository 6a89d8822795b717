"""Bounds of the stopping-time regret: rounds lost to the best single arm.

BanditSpec (Hou et al. 2025), Theorems 4.3, 4.4 and 5.3. A round emits `Y` in
`[1, L + 1]` tokens; the number of emitted tokens excludes the prompt.
"""

from collections.abc import Sequence
import math

import numpy as np

from specjax import checks


def decomposition(means: Sequence[float], pulls: Sequence[float]) -> float:
  """Returns the regret of expected pulls, equation (36).

  Args:
    means: mean tokens a round of each arm.
    pulls: expected rounds of each arm.
  """
  lengths, rounds = _means(means), np.asarray(pulls, np.float64)
  if rounds.shape != lengths.shape:
    raise ValueError(
      f'pulls must be of the shape {lengths.shape} of means, got '
      f'{rounds.shape}.'
    )
  best = lengths.max()
  return float(((best - lengths) / best * rounds).sum())


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


def lower_bound_rate(acceptances: Sequence[float], draft_length: int) -> float:
  """Returns what regret over `log(tokens)` tends to at least, Theorem 4.4.

  For arms of constant acceptance, with the exact divergence of their tokens
  a round, equation (133). The closed form of Proposition 4.5 is wrong
  where drafts are short or the best arm is good, and is not offered.
  """
  chances = np.asarray(acceptances, np.float64)
  _check_open('acceptances', chances)
  best = chances.max()
  best_mean = _mean(best, draft_length)
  rate = 0.0
  for each in chances[chances < best]:
    gap = best_mean - _mean(each, draft_length)
    rate += gap / best_mean / length_divergence(each, best, draft_length)
  return float(rate)


def length_divergence(
  acceptance: float, other: float, draft_length: int
) -> float:
  """Returns the divergence of tokens a round, equation (133)."""
  _check_open('acceptance', acceptance)
  _check_open('other', other)
  accepted = (acceptance - acceptance ** (draft_length + 1)) / (1 - acceptance)
  return accepted * math.log(acceptance / other) + (
    1 - acceptance**draft_length
  ) * math.log((1 - acceptance) / (1 - other))


def _check_open(name, values):
  if not ((0 < np.asarray(values)) & (np.asarray(values) < 1)).all():
    raise ValueError(f'{name} must lie in (0, 1), got {values}.')


def _mean(acceptance, draft_length):
  return (1 - acceptance ** (draft_length + 1)) / (1 - acceptance)


def _means(means):
  means = np.asarray(means, np.float64)
  if means.ndim != 1 or not len(means) or not (means >= 1).all():
    raise ValueError(
      f'means must be a list of tokens a round >= 1, got {means}.'
    )
  return means
