"""Bandits: which arm plays the next round.

`factory(num_arms, **options) -> base.Bandit`; rewards lie in [0, 1].
"""

from collections.abc import Callable

from specjax import base
from specjax.bandits.epsilon_greedy import epsilon_greedy
from specjax.bandits.experts import hedge
from specjax.bandits.experts import normal_hedge
from specjax.bandits.exponential_weights import exp3
from specjax.bandits.exponential_weights import exp3_spec
from specjax.bandits.forgetting import discounted_ucb
from specjax.bandits.forgetting import sliding_window_ucb
from specjax.bandits.goodput import goodput
from specjax.bandits.halving import petc
from specjax.bandits.halving import sequential_halving
from specjax.bandits.schedules import fixed
from specjax.bandits.schedules import round_robin
from specjax.bandits.schedules import uniform
from specjax.bandits.thompson import thompson
from specjax.bandits.upper_confidence import kl_ucb
from specjax.bandits.upper_confidence import ucb1
from specjax.bandits.upper_confidence import ucb_spec

__all__ = [
  'BANDITS',
  'discounted_ucb',
  'epsilon_greedy',
  'exp3',
  'exp3_spec',
  'fixed',
  'goodput',
  'hedge',
  'kl_ucb',
  'normal_hedge',
  'petc',
  'round_robin',
  'sequential_halving',
  'sliding_window_ucb',
  'thompson',
  'ucb1',
  'ucb_spec',
  'uniform',
]

BANDITS: dict[str, Callable[..., base.Bandit]] = {
  'discounted_ucb': discounted_ucb,
  'epsilon_greedy': epsilon_greedy,
  'exp3': exp3,
  'exp3_spec': exp3_spec,
  'fixed': fixed,
  'goodput': goodput,
  'hedge': hedge,
  'kl_ucb': kl_ucb,
  'normal_hedge': normal_hedge,
  'petc': petc,
  'round_robin': round_robin,
  'sequential_halving': sequential_halving,
  'sliding_window_ucb': sliding_window_ucb,
  'thompson': thompson,
  'ucb1': ucb1,
  'ucb_spec': ucb_spec,
  'uniform': uniform,
}
