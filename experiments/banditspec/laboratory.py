"""Thousands of bandits at once on simulated arms, without models.

BanditSpec (Hou et al. 2025), sections 4 and 5: a round with an arm emits `Y`
in [1, L + 1] tokens, and a run ends once it has emitted enough.
"""

from collections.abc import Callable
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import checks

# Rounds that are played before one looks whether all runs have ended.
_STRIDE = 256


class Environment(NamedTuple):
  """What rounds of `A` arms would emit: the chances, round after round."""

  tails: jax.Array  # [P, A, L] float32 chances of 1, 2, ... tokens more than 1
  period: int  # rounds from one row of `tails` to the next
  repeats: bool  # begins anew behind the last row, which goes on otherwise

  @property
  def num_arms(self):
    return self.tails.shape[1]

  @property
  def draft_length(self):
    return self.tails.shape[2]

  def draw(self, key, round_):
    """Returns `[A]` int32 tokens of a round, in [1, L + 1]."""
    uniforms = jax.random.uniform(key, (self.num_arms, 1))
    return 1 + (uniforms < self._now(round_)).sum(1, dtype=jnp.int32)

  def means(self, round_):
    """Returns `[A]` expected tokens of a round."""
    return 1 + self._now(round_).sum(1)

  def _now(self, round_):
    row, num_rows = round_ // self.period, len(self.tails)
    last = jnp.minimum(row, num_rows - 1)
    return self.tails[jnp.where(self.repeats, row % num_rows, last)]


class Runs(NamedTuple):
  """What was played, and what all arms would have emitted.

  Results of a run that ends with `num_tokens` are those of its first rounds.
  """

  arms: np.ndarray  # [R, T]
  tokens: np.ndarray  # [R, T, A]

  @property
  def emitted(self):
    """Returns `[R, T]` tokens of each round."""
    return np.take_along_axis(self.tokens, self.arms[..., None], 2)[..., 0]

  def rounds(self, num_tokens):
    """Returns `[R]` rounds of each run; the last one counts whole."""
    return _rounds(self.emitted, num_tokens)

  def fixed_rounds(self, num_tokens):
    """Returns `[R, A]` rounds that each arm needs if it is always played."""
    return _rounds(self.tokens, num_tokens)

  def lost(self, num_tokens):
    """Returns `[R]` rounds more than those of the arm with the lowest mean.

    The mean over runs is the stopping-time regret (1)-(2).
    """
    fixed = self.fixed_rounds(num_tokens)
    return self.rounds(num_tokens) - fixed[:, fixed.mean(0).argmin()]

  def pulls(self, num_tokens):
    """Returns `[R, A]` how often each arm was played."""
    live = self._before() < num_tokens
    each = range(self.tokens.shape[2])
    return np.stack([(live & (self.arms == arm)).sum(1) for arm in each], 1)

  def missed(self, num_tokens):
    """Returns `[R]` tokens since their own last round, of arms changed to."""
    before = self._before()
    changed = self.arms[:, 1:] != self.arms[:, :-1]
    total = np.zeros(len(self.arms), int)
    for arm in range(self.tokens.shape[2]):
      own = np.where(self.arms == arm, before, 0)
      last = np.maximum.accumulate(own, 1)[:, :-1]
      to = changed & (self.arms[:, 1:] == arm) & (before[:, 1:] < num_tokens)
      total += np.where(to, before[:, 1:] - last, 0).sum(1)
    return total

  def _before(self):
    """`[R, T]` tokens before each round."""
    emitted = self.emitted
    return np.cumsum(emitted, 1, dtype=np.int32) - emitted


def truncated_geometric(acceptances, draft_length):
  """Builds arms whose drafts are kept with `[A]` chances, equation (10)."""
  return drifting(np.asarray(acceptances)[None], draft_length, 1)


def drifting(acceptances, draft_length, period):
  """Builds arms whose acceptances change every `period` rounds, `[P, A]`."""
  acceptances = np.asarray(acceptances, np.float64)
  _check_table('acceptances', acceptances)
  if not ((0 < acceptances) & (acceptances < 1)).all():
    raise ValueError(f'acceptances must lie in (0, 1), got {acceptances}.')
  _check_count('draft_length', draft_length)
  _check_count('period', period)
  tails = acceptances[..., None] ** np.arange(1, draft_length + 1)
  return Environment(jnp.asarray(tails, jnp.float32), period, False)


def adversarial(lengths, draft_length):
  """Builds arms that emit `[T, A]` tokens fixed in advance, again and again."""
  lengths = np.asarray(lengths)
  _check_table('lengths', lengths)
  _check_count('draft_length', draft_length)
  checks.check_range('lengths', lengths, 1, draft_length + 1)
  if (lengths != np.floor(lengths)).any():
    raise ValueError(f'lengths must be integers, got {lengths}.')
  tails = lengths[..., None] > np.arange(1, draft_length + 1)
  return Environment(jnp.asarray(tails, jnp.float32), 1, True)


# Of configs; all are given `draft_length`.
ENVIRONMENTS: dict[str, Callable[..., Environment]] = {
  'adversarial': adversarial,
  'drifting': drifting,
  'truncated_geometric': truncated_geometric,
}


def play(key, bandit, environment, num_tokens, num_runs):
  """Plays until all `num_runs`, and all arms, have emitted `num_tokens`.

  What arms would emit depends on key, run and round alone: bandits of one key
  meet the same arms. A bandit learns from `(Y - 1) / L`, and is given those of
  all arms, too.
  """
  _check_count('num_tokens', num_tokens)
  _check_count('num_runs', num_runs)
  # A run's key depends on its index, not on how many there are.
  keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_runs))
  states = jax.vmap(lambda _: bandit.init())(keys)
  seen, total = [], 0
  while np.min(total) < num_tokens:
    first = len(seen) * _STRIDE
    states, each = _play(bandit, environment, keys, states, first)
    runs = Runs(*jax.device_get(each))
    seen.append(runs)
    total += np.column_stack([runs.tokens.sum(1), runs.emitted.sum(1)])
  return Runs(*(np.concatenate(each, 1) for each in zip(*seen)))


@jax.jit
def _play(bandit, environment, keys, states, first):
  """The next rounds of all runs: their states, arms and tokens."""

  def step(key, state, round_):
    tokens = environment.draw(jax.random.fold_in(key, 2 * round_), round_)
    arm = bandit.select(jax.random.fold_in(key, 2 * round_ + 1), state)
    rewards = (tokens - 1) / environment.draft_length
    state = bandit.update(state, arm, rewards[arm], rewards=rewards)
    return state, (arm, tokens)

  def run(key, state):
    rounds = first + jnp.arange(_STRIDE)
    return jax.lax.scan(functools.partial(step, key), state, rounds)

  return jax.vmap(run)(keys, states)


def _rounds(tokens, num_tokens):
  """Rounds until so many of `[R, T, ...]` tokens are emitted."""
  total = np.cumsum(tokens, 1, dtype=np.int32)
  return 1 + (total < num_tokens).sum(1)


def _check_count(name, value):
  checks.check_range(name, value, 1)
  if value != int(value):
    raise ValueError(f'{name} must be an integer, got {value}.')


def _check_table(name, table):
  if table.ndim != 2 or not table.size:
    raise ValueError(
      f'{name} must have rows and arms, got shape {table.shape}.'
    )
