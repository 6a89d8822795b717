"""Simulates bandits on arms with known distributions, in parallel.

In BanditSpec (Hou et al. 2025), Sections 4 and 5, a round with an arm emits `Y`
in [1, L + 1] tokens, and a run ends once it has emitted enough. No models are
needed, so that thousands of runs take seconds.
"""

from collections.abc import Callable
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks

# Rounds between two checks whether all runs have ended.
_STRIDE = 256


class Environment(NamedTuple):
  """The distributions of the tokens that `A` arms emit, by round.

  Attributes:
    tails: `[P, A, L]` float32 probabilities that a round emits more than
      1, ..., L tokens.
    period: the number of rounds for which one row of `tails` is used.
    repeats: whether the first row follows the last one; otherwise the last row
      is used for all further rounds.
  """

  tails: jax.Array
  period: int
  repeats: bool

  @property
  def num_arms(self):
    return self.tails.shape[1]

  @property
  def draft_length(self):
    return self.tails.shape[2]

  def draw(self, key, round_):
    """Draws the tokens that each arm emits in a round: `[A]`, in [1, L + 1]."""
    uniforms = jax.random.uniform(key, (self.num_arms, 1))
    return 1 + (uniforms < self._tails(round_)).sum(1, dtype=jnp.int32)

  def means(self, round_):
    """Returns `[A]` expected tokens of a round."""
    return 1 + self._tails(round_).sum(1)

  def _tails(self, round_: jax.Array | int) -> jax.Array:
    row, num_rows = round_ // self.period, len(self.tails)
    last = jnp.minimum(row, num_rows - 1)
    return self.tails[jnp.where(self.repeats, row % num_rows, last)]


class Runs(NamedTuple):
  """Selected arms, and the tokens that all arms would have emitted.

  Statistics for `num_tokens` use the first rounds of each run.

  Attributes:
    arms: `[R, T]` the selected arm of each round.
    tokens: `[R, T, A]` the tokens that each arm would have emitted.
  """

  arms: np.ndarray
  tokens: np.ndarray

  @property
  def emitted(self):
    """Returns `[R, T]` tokens of each round."""
    return np.take_along_axis(self.tokens, self.arms[..., None], 2)[..., 0]

  def rounds(self, num_tokens):
    """Returns `[R]` rounds of each run; the last round counts fully."""
    return _rounds(self.emitted, num_tokens)

  def fixed_rounds(self, num_tokens):
    """Returns `[R, A]` rounds of each run if one arm is always selected."""
    return _rounds(self.tokens, num_tokens)

  def lost_rounds(self, num_tokens):
    """Returns `[R]` rounds in excess of the best fixed arm's.

    The mean over runs is the stopping-time regret (1)-(2).
    """
    fixed = self.fixed_rounds(num_tokens)
    return self.rounds(num_tokens) - fixed[:, fixed.mean(0).argmin()]

  def pulls(self, num_tokens):
    """Returns `[R, A]` how often each arm was selected."""
    live = self._before() < num_tokens
    indices = range(self.tokens.shape[2])
    return np.stack([(live & (self.arms == arm)).sum(1) for arm in indices], 1)

  def missed_tokens(self, num_tokens):
    """Returns `[R]` tokens that arms missed before they were selected again.

    An arm misses the tokens that others emit after its last round began.
    """
    before = self._before()
    changed = self.arms[:, 1:] != self.arms[:, :-1]
    total = np.zeros(len(self.arms), int)
    for arm in range(self.tokens.shape[2]):
      starts = np.where(self.arms == arm, before, 0)
      last_starts = np.maximum.accumulate(starts, 1)[:, :-1]
      is_change = changed & (self.arms[:, 1:] == arm)
      is_change &= before[:, 1:] < num_tokens
      total += np.where(is_change, before[:, 1:] - last_starts, 0).sum(1)
    return total

  def _before(self) -> np.ndarray:
    """Returns `[R, T]` tokens before each round."""
    emitted = self.emitted
    return np.cumsum(emitted, 1, dtype=np.int32) - emitted


def truncated_geometric(acceptances, draft_length):
  """Builds arms with `[A]` acceptance probabilities: equation (10)."""
  return drifting(np.asarray(acceptances)[None], draft_length, 1)


def drifting(acceptances, draft_length, period):
  """Builds arms whose `[P, A]` acceptances change every `period` rounds."""
  acceptances = np.asarray(acceptances, np.float64)
  _check_table('acceptances', acceptances)
  if not ((0 < acceptances) & (acceptances < 1)).all():
    raise ValueError(f'acceptances must lie in (0, 1), got {acceptances}.')
  checks.check_integers('draft_length', draft_length, 1)
  checks.check_integers('period', period, 1)
  tails = acceptances[..., None] ** np.arange(1, draft_length + 1)
  return Environment(jnp.asarray(tails, jnp.float32), period, False)


def adversarial(lengths, draft_length):
  """Builds arms that emit fixed numbers of tokens, `[T, A]`, repeatedly."""
  lengths = np.asarray(lengths)
  _check_table('lengths', lengths)
  checks.check_integers('draft_length', draft_length, 1)
  checks.check_integers('lengths', lengths, 1, draft_length + 1)
  tails = lengths[..., None] > np.arange(1, draft_length + 1)
  return Environment(jnp.asarray(tails, jnp.float32), 1, True)


# By their names in configs; all take `draft_length`.
ENVIRONMENTS: dict[str, Callable[..., Environment]] = {
  'adversarial': adversarial,
  'drifting': drifting,
  'truncated_geometric': truncated_geometric,
}


def simulate(key, bandit, environment, num_tokens, num_runs):
  """Simulates runs until all runs, and all arms, have emitted `num_tokens`.

  The tokens of an arm depend only on the key, the run and the round, so that
  bandits with the same key face the same arms. The reward is `(Y - 1) / L`;
  bandits with full information receive the rewards of all arms.

  Args:
    key: a key of `jax.random`.
    bandit: the bandit.
    environment: the distributions of the arms.
    num_tokens: tokens that each run emits at least.
    num_runs: the number of runs `R`.

  Returns:
    The `Runs`.
  """
  checks.check_integers('num_tokens', num_tokens, 1)
  checks.check_integers('num_runs', num_runs, 1)
  # A run's key depends on its index, not on how many there are.
  keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_runs))
  states = jax.vmap(lambda _: bandit.init())(keys)
  chunks, total = [], 0
  while np.min(total) < num_tokens:
    first = len(chunks) * _STRIDE
    states, arrays = _simulate(bandit, environment, keys, states, first)
    runs = Runs(*jax.device_get(arrays))
    chunks.append(runs)
    total += np.column_stack([runs.tokens.sum(1), runs.emitted.sum(1)])
  return Runs(*(np.concatenate(arrays, 1) for arrays in zip(*chunks)))


@jax.jit
def _simulate(
  bandit: base.Bandit,
  environment: Environment,
  keys: jax.Array,
  states: Any,
  first: int,
) -> tuple[Any, tuple[jax.Array, jax.Array]]:
  """Runs the next rounds of all runs; returns states, arms and tokens."""

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


def _rounds(tokens: np.ndarray, num_tokens: int) -> np.ndarray:
  """Returns the rounds until `num_tokens` of `[R, T, ...]` are emitted."""
  total = np.cumsum(tokens, 1, dtype=np.int32)
  return 1 + (total < num_tokens).sum(1)


def _check_table(name: str, table: np.ndarray) -> None:
  if table.ndim != 2 or not table.size:
    raise ValueError(
      f'{name} must have rows and arms, got shape {table.shape}.'
    )
