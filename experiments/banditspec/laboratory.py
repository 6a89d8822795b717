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

from specjax import base
from specjax import checks
from specjax import registry


class Environment(NamedTuple):
  """What the arms' rounds would emit.

  Attributes:
    draw: `(key, round) -> [A]` int32 tokens a round, in [1, L + 1].
    num_arms: `A`.
    draft_length: `L`.
    means: `(round) -> [A]` float32 expected tokens a round.
  """

  draw: Callable[[jax.Array, jax.Array], jax.Array]
  num_arms: int
  draft_length: int
  means: Callable[[jax.Array], jax.Array]


class Runs(NamedTuple):
  """What runs have used, until each had emitted what was asked for."""

  rounds: jax.Array  # [R] int32
  pulls: jax.Array  # [R, A] int32
  tokens: jax.Array  # [R] int32; the last round counts whole, as in the paper
  missed: jax.Array  # [R] int32 tokens since their own, of arms changed to


@registry.component
def truncated_geometric(acceptances, draft_length: int) -> Environment:
  """Builds arms whose drafts are kept with constant chances, equation (10).

  Args:
    acceptances: `[A]` in (0, 1).
    draft_length: `L`.
  """
  return drifting(np.asarray(acceptances)[None], draft_length, 1)


@registry.component
def drifting(acceptances, draft_length: int, period: int) -> Environment:
  """Builds arms whose acceptance changes now and then.

  Args:
    acceptances: `[P, A]` in (0, 1), one row after the other; the last goes on.
    draft_length: `L`.
    period: rounds from one row to the next.
  """
  acceptances = np.asarray(acceptances, np.float64)
  _check_table('acceptances', acceptances)
  if not ((0 < acceptances) & (acceptances < 1)).all():
    raise ValueError(f'acceptances must lie in (0, 1), got {acceptances}.')
  _check_count('draft_length', draft_length)
  _check_count('period', period)
  kept = acceptances[..., None] ** np.arange(1, draft_length + 1)
  tails = jnp.asarray(kept, jnp.float32)  # [P, A, L] chances of more tokens.

  def now(round_):
    return tails[jnp.minimum(round_ // period, len(tails) - 1)]

  def draw(key, round_):
    uniforms = jax.random.uniform(key, (acceptances.shape[1], 1))
    return 1 + (uniforms < now(round_)).sum(1, dtype=jnp.int32)

  return Environment(
    draw,
    acceptances.shape[1],
    draft_length,
    lambda round_: 1 + now(round_).sum(1),
  )


@registry.component
def adversarial(lengths, draft_length: int) -> Environment:
  """Builds arms whose numbers of tokens are fixed in advance.

  Args:
    lengths: `[T, A]` integers in [1, L + 1], repeated for ever.
    draft_length: `L`.
  """
  lengths = np.asarray(lengths)
  _check_table('lengths', lengths)
  _check_count('draft_length', draft_length)
  checks.check_range('lengths', lengths, 1, draft_length + 1)
  if (lengths != np.floor(lengths)).any():
    raise ValueError(f'lengths must be integers, got {lengths}.')
  table = jnp.asarray(lengths, jnp.int32)
  return Environment(
    lambda key, round_: table[round_ % len(table)],
    lengths.shape[1],
    draft_length,
    lambda round_: table[round_ % len(table)].astype(jnp.float32),
  )


def play(
  key: jax.Array,
  bandit: base.Bandit,
  environment: Environment,
  num_tokens: int,
  num_runs: int,
) -> Runs:
  """Runs a bandit until every run has emitted `num_tokens`.

  What the arms would have emitted depends on key, run and round alone: bandits
  of one key meet the same arms.

  Args:
    key: consumed.
    bandit: learns from rewards `(Y - 1) / L`; those of all arms are passed too.
    environment: the arms.
    num_tokens: when a run stops.
    num_runs: `R`.
  """
  _check_count('num_tokens', num_tokens)
  _check_count('num_runs', num_runs)
  return _play(key, bandit, environment, num_tokens, num_runs)


def play_fixed(
  key: jax.Array, environment: Environment, num_tokens: int, num_runs: int
) -> jax.Array:
  """Returns `[R, A]` rounds that each arm needs if it is always played.

  With the key of `play`, on the same draws.
  """
  _check_count('num_tokens', num_tokens)
  _check_count('num_runs', num_runs)
  return _play_fixed(key, environment, num_tokens, num_runs)


def trace(
  key: jax.Array,
  bandit: base.Bandit,
  environment: Environment,
  num_rounds: int,
  num_runs: int,
) -> tuple[jax.Array, jax.Array]:
  """Returns arms and emitted tokens, `[R, T]` int32, of the first rounds.

  They are those of `play` with the same key.
  """
  _check_count('num_rounds', num_rounds)
  _check_count('num_runs', num_runs)
  return _trace(key, bandit, environment, num_rounds, num_runs)


def regret(rounds, fixed_rounds) -> tuple[float, float]:
  """Returns mean and standard error of the stopping-time regret (1)-(2).

  Args:
    rounds: `[R]` of a bandit.
    fixed_rounds: `[R, A]` of each arm, from the same key; the best is the one
      with the lowest mean.
  """
  fixed_rounds = np.asarray(fixed_rounds, np.float64)
  lost = np.asarray(rounds) - fixed_rounds[:, fixed_rounds.mean(0).argmin()]
  error = lost.std(ddof=1) / len(lost) ** 0.5 if len(lost) > 1 else np.nan
  return float(lost.mean()), float(error)


class _Last(NamedTuple):
  """What was played last, and how long the text was when each arm was."""

  arm: jax.Array  # [R]
  tokens: jax.Array  # [R, A]

  def missed(self, arms, tokens):
    """Tokens since the arm's last round, where another one was played."""
    own = jnp.take_along_axis(self.tokens, arms[:, None], 1)[:, 0]
    return jnp.where(arms == self.arm, 0, tokens - own)


@functools.partial(
  jax.jit, static_argnames=('bandit', 'environment', 'num_runs')
)
def _play(key, bandit, environment, num_tokens, num_runs):
  def unfinished(carry):
    return (carry[-1] < num_tokens).any()

  def step(carry):
    round_, states, last, pulls, missed, tokens = carry
    states, arms, emitted = _round(keys, bandit, environment, round_, states)
    live = tokens < num_tokens
    played = arms[:, None] == jnp.arange(environment.num_arms)[None]
    pulls += (played & live[:, None]).astype(jnp.int32)
    missed += jnp.where(live & (round_ > 0), last.missed(arms, tokens), 0)
    last = _Last(arms, jnp.where(played, tokens[:, None], last.tokens))
    tokens += jnp.where(live, emitted, 0)
    return round_ + 1, states, last, pulls, missed, tokens

  keys, states = _start(key, bandit, num_runs)
  zeros = jnp.zeros(num_runs, jnp.int32)
  pulls = jnp.zeros((num_runs, environment.num_arms), jnp.int32)
  carry = jnp.int32(0), states, _Last(zeros, pulls), pulls, zeros, zeros
  *_, pulls, missed, tokens = jax.lax.while_loop(unfinished, step, carry)
  return Runs(pulls.sum(1), pulls, tokens, missed)


@functools.partial(jax.jit, static_argnames=('environment', 'num_runs'))
def _play_fixed(key, environment, num_tokens, num_runs):
  def unfinished(carry):
    return (carry[-1] < num_tokens).any()

  def step(carry):
    round_, rounds, tokens = carry
    live = tokens < num_tokens
    tokens += jnp.where(live, _lengths(keys, environment, round_), 0)
    return round_ + 1, rounds + live.astype(jnp.int32), tokens

  keys = _run_keys(key, num_runs)
  zeros = jnp.zeros((num_runs, environment.num_arms), jnp.int32)
  return jax.lax.while_loop(unfinished, step, (jnp.int32(0), zeros, zeros))[1]


@functools.partial(
  jax.jit, static_argnames=('bandit', 'environment', 'num_rounds', 'num_runs')
)
def _trace(key, bandit, environment, num_rounds, num_runs):
  keys, states = _start(key, bandit, num_runs)

  def step(states, round_):
    states, *seen = _round(keys, bandit, environment, round_, states)
    return states, seen

  _, (arms, lengths) = jax.lax.scan(step, states, jnp.arange(num_rounds))
  return arms.T, lengths.T


def _start(key, bandit, num_runs):
  states = jax.vmap(lambda _: bandit.init())(jnp.arange(num_runs))
  return _run_keys(key, num_runs), states


def _run_keys(key, num_runs):
  """A run's key depends on its index, not on how many there are."""
  return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_runs))


def _lengths(keys, environment, round_):
  """Tokens of the round, `[R, A]`; even numbers are folded into their keys."""
  draw = lambda key: environment.draw(
    jax.random.fold_in(key, 2 * round_), round_
  )
  return jax.vmap(draw)(keys)


def _round(keys, bandit, environment, round_, states):
  """One round of all runs: states, arms `[R]` and tokens `[R]`."""
  lengths = _lengths(keys, environment, round_)

  def one(key, state, lengths):
    arm = bandit.select(jax.random.fold_in(key, 2 * round_ + 1), state)
    played = jnp.arange(environment.num_arms) == arm
    emitted = jnp.where(played, lengths, 0).sum()
    rewards = (lengths - 1) / environment.draft_length
    reward = (emitted - 1) / environment.draft_length
    return bandit.update(state, arm, reward, rewards=rewards), arm, emitted

  return jax.vmap(one)(keys, states, lengths)


# Of configs; all are given `draft_length`.
ENVIRONMENTS: dict[str, Callable[..., Environment]] = {
  'adversarial': adversarial,
  'drifting': drifting,
  'truncated_geometric': truncated_geometric,
}


def _check_count(name, value):
  checks.check_range(name, value, 1)
  if value != int(value):
    raise ValueError(f'{name} must be an integer, got {value}.')


def _check_table(name, table):
  if table.ndim != 2 or not table.size:
    raise ValueError(
      f'{name} must have rows and arms, got shape {table.shape}.'
    )
