"""Bounds on the stopping-time regret.

The regret is the expected number of rounds minus that of the best single arm.

BanditSpec (Hou et al. 2025), Theorems 4.3 and 5.3; MetaSD (Kim et al. 2026),
Theorem 7 and Lemmas 8 and 14. A round emits between 1 and `L + 1` tokens; the
number of emitted tokens excludes the prompt.
"""

from collections.abc import Sequence
import math

import numpy as np
import numpy.typing as npt

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


def ucb1_pulls_bound(
  gap: float, num_rounds: float, beta: float, num_terms: int = 1
) -> float:
  """Returns how often UCB1 selects a suboptimal arm at most, in expectation.

  MetaSD, Theorem 7 and equation (48), for independent rewards.

  Args:
    gap: mean reward of the best arm minus that of this arm, in (0, 1].
    num_rounds: number of rounds, at least 1.
    beta: exploration factor of `bandits.UCB1`, above 1/2.
    num_terms: a reward is the mean of this many independent terms in [0, 1], as
      in Theorem 2. The factor of the bandit is `beta / sqrt(num_terms)`.
  """
  checks.check_range('gap', gap, 1e-12, 1)
  checks.check_range('num_rounds', num_rounds, 1)
  checks.check_range('num_terms', num_terms, 1)
  if not 0.5 < beta < math.inf:
    raise ValueError(f'beta must lie in (0.5, inf), got {beta}.')
  factor = 2 * beta**2
  tail = ((factor + 0.5) / (factor - 0.5)) ** 2 * 4 / math.log(factor + 0.5)
  pulls = 4 * factor * math.log(num_rounds) / (num_terms * gap**2)
  return pulls + 1 + tail


def ucb1_upper_bound(
  rewards: Sequence[float], num_tokens: float, beta: float, num_terms: int = 1
) -> float:
  """Returns the upper bound of UCB1 (MetaSD, Theorem 7 and Lemma 13).

  Each selection of a suboptimal arm costs at most one round, and there are at
  most as many rounds as tokens.

  Args:
    rewards: mean reward of each arm, in [0, 1]. The arm with the highest mean
      must emit the most tokens per round.
    num_tokens: expected number of emitted tokens, at least 1. It may be random
      (Theorem 6), as the bound is concave.
    beta: See `ucb1_pulls_bound`.
    num_terms: See `ucb1_pulls_bound`.
  """
  values = np.asarray(rewards, np.float64)
  checks.check_range('rewards', values, 0, 1)
  gaps = values.max() - values
  bounds = [
    ucb1_pulls_bound(gap, num_tokens, beta, num_terms) for gap in gaps[gaps > 0]
  ]
  return float(sum(bounds))


def rounds_of_reward_regret(
  reward_regret: float, best_tokens: float, draft_length: int
) -> tuple[float, float]:
  """Returns the range of the stopping-time regret, given that of rewards.

  MetaSD, Lemma 8, for the reward BE, the share of `L` draft tokens that are
  accepted. The printed equation (19) lacks the factor `best_tokens`: by Wald's
  identity, the rewards lost in a run's rounds are `(best_tokens regret + o) /
  L`. There, `o` is how many more tokens past the end the best arm emits in its
  last round than the run does, between `-L` and `L`.

  Args:
    reward_regret: expected sum, over the rounds of a run, of the mean reward of
      the best arm minus that of the selected arm.
    best_tokens: mean emitted tokens per round of the best arm.
    draft_length: `L`.
  """
  checks.check_range('draft_length', draft_length, 1)
  checks.check_range('best_tokens', best_tokens, 1, draft_length + 1)
  return (
    draft_length * (reward_regret - 1) / best_tokens,
    draft_length * (reward_regret + 1) / best_tokens,
  )


def length_distribution(end_probs: npt.ArrayLike) -> np.ndarray:
  """Returns `[T]` probabilities that a text has 1, ..., T tokens.

  MetaSD, Lemma 14. The texts go on forever: they are sampled from the target
  without the end-of-sequence token. Both the bounds of this module and the
  expected number of rounds depend on the length (Theorem 6).

  Args:
    end_probs: `[n, T]` the target's probabilities of the end-of-sequence token
      as token 1, ..., T of each text.
  """
  probs = np.asarray(end_probs, np.float64)
  if probs.ndim != 2 or not probs.size:
    raise ValueError(
      f'end_probs must have texts and tokens, got shape {probs.shape}.'
    )
  checks.check_range('end_probs', probs, 0, 1)
  going = np.cumprod(1 - probs, axis=1)
  reached = np.concatenate([np.ones_like(going[:, :1]), going[:, :-1]], axis=1)
  return (reached * probs).mean(axis=0)


def _means(means: Sequence[float]) -> np.ndarray:
  """Returns the means as float64, or raises a `ValueError`."""
  values = np.asarray(means, np.float64)
  if values.ndim != 1 or not len(values) or not (values >= 1).all():
    raise ValueError(
      f'means must be a list of tokens per round, each >= 1, got {values}.'
    )
  return values
