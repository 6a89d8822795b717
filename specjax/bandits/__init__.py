"""Bandits: which arm plays the next round.

`factory(num_arms, **options) -> base.Bandit`; rewards lie in [0, 1].
"""

from specjax.bandits import epsilon_greedy
from specjax.bandits import exponential_weights
from specjax.bandits import forgetting
from specjax.bandits import halving
from specjax.bandits import schedules
from specjax.bandits import thompson
from specjax.bandits import upper_confidence

BANDITS = {
  'discounted_ucb': forgetting.discounted_ucb,
  'epsilon_greedy': epsilon_greedy.epsilon_greedy,
  'exp3': exponential_weights.exp3,
  'exp3_spec': exponential_weights.exp3_spec,
  'fixed': schedules.fixed,
  'hedge': exponential_weights.hedge,
  'kl_ucb': upper_confidence.kl_ucb,
  'petc': halving.petc,
  'round_robin': schedules.round_robin,
  'sequential_halving': halving.sequential_halving,
  'sliding_window_ucb': forgetting.sliding_window_ucb,
  'thompson': thompson.thompson,
  'ucb1': upper_confidence.ucb1,
  'ucb_spec': upper_confidence.ucb_spec,
  'uniform': schedules.uniform,
}
