"""Bandits: which arm the next round runs.

A bandit is built by its class, `bandits.UCB1(num_arms=3, beta=0.01)`; rewards
lie in [0, 1].
"""

from specjax import base
from specjax.bandits.contextual import LinUCB
from specjax.bandits.counts import CountsBandit
from specjax.bandits.epsilon_greedy import EpsilonGreedy
from specjax.bandits.experts import Hedge
from specjax.bandits.experts import NormalHedge
from specjax.bandits.exponential_weights import EXP3
from specjax.bandits.exponential_weights import EXP3Spec
from specjax.bandits.forgetting import DiscountedUCB
from specjax.bandits.forgetting import SlidingWindowUCB
from specjax.bandits.goodput import Goodput
from specjax.bandits.halving import PETC
from specjax.bandits.halving import SequentialHalving
from specjax.bandits.length_ema import LengthEMA
from specjax.bandits.length_heuristic import LengthHeuristic
from specjax.bandits.schedules import Fixed
from specjax.bandits.schedules import RoundRobin
from specjax.bandits.schedules import Uniform
from specjax.bandits.thompson import Thompson
from specjax.bandits.upper_confidence import KLUCB
from specjax.bandits.upper_confidence import UCB1
from specjax.bandits.upper_confidence import UCBSpec
from specjax.bandits.upper_confidence import UCBSpecReleased

__all__ = [
  'BANDITS',
  'CountsBandit',
  'DiscountedUCB',
  'EXP3',
  'EXP3Spec',
  'EpsilonGreedy',
  'Fixed',
  'Goodput',
  'Hedge',
  'KLUCB',
  'LengthEMA',
  'LengthHeuristic',
  'LinUCB',
  'NormalHedge',
  'PETC',
  'RoundRobin',
  'SequentialHalving',
  'SlidingWindowUCB',
  'Thompson',
  'UCB1',
  'UCBSpec',
  'UCBSpecReleased',
  'Uniform',
]

BANDITS: dict[str, type[base.Bandit]] = {
  'discounted_ucb': DiscountedUCB,
  'epsilon_greedy': EpsilonGreedy,
  'exp3': EXP3,
  'exp3_spec': EXP3Spec,
  'fixed': Fixed,
  'goodput': Goodput,
  'hedge': Hedge,
  'kl_ucb': KLUCB,
  'length_ema': LengthEMA,
  'length_heuristic': LengthHeuristic,
  'lin_ucb': LinUCB,
  'normal_hedge': NormalHedge,
  'petc': PETC,
  'round_robin': RoundRobin,
  'sequential_halving': SequentialHalving,
  'sliding_window_ucb': SlidingWindowUCB,
  'thompson': Thompson,
  'ucb1': UCB1,
  'ucb_spec': UCBSpec,
  'ucb_spec_released': UCBSpecReleased,
  'uniform': Uniform,
}
