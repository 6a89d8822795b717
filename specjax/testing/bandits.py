"""What every bandit keeps."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.testing import building
from specjax.testing import values

_NUM_ROUNDS = 20


def check_bandit(factory: building.Factory, /, **options: Any) -> None:
  """Checks a factory of bandits: `factory(num_arms, **options)`.

  A loop can carry the state, with rewards of one arm or of all; arms are in
  range; unknown extras are ignored; equal arguments give one object.

  Args:
    factory: builds the bandit; it need not be in a table.
    **options: what it is built with, beside `num_arms` and its example.

  Raises:
    AssertionError: a sentence says what must hold.
  """
  with building.about(factory):
    building.check_documented(factory)
    for num_arms in (1, 3):
      chosen = building.arguments(factory, {'num_arms': num_arms}, options)
      _check(factory(**chosen), chosen.get('num_arms', num_arms))
    values.check_value(factory, chosen)


def _check(bandit: base.Bandit, num_arms: int) -> None:
  building.require(
    bandit.num_arms == num_arms,
    f'A bandit has as many arms as asked for: {num_arms}, got '
    f'{bandit.num_arms}.',
  )
  state = bandit.init()
  arm = jax.eval_shape(bandit.select, jax.random.key(0), state)
  building.require(
    building.is_like(arm, (), jnp.int32),
    f'select must return an arm, a scalar int32, got {arm}.',
  )
  _check_updates(bandit, state, arm)
  _check_arms(bandit, state)


def _check_updates(bandit: base.Bandit, state: Any, arm: Any) -> None:
  """All updates keep the state, with extras or without."""
  rewards = np.linspace(0, 1, bandit.num_arms, dtype=np.float32)
  more: dict[str, Any]
  for more in ({}, {'not_a_known_extra': np.ones_like(rewards)}):
    update = functools.partial(bandit.update, rewards=rewards, **more)
    after = jax.eval_shape(update, state, arm, np.float32(0.5))
    building.check_keeps(state, after, 'update')
  after = jax.eval_shape(bandit.update_all, state, rewards)
  building.check_keeps(state, after, 'update_all')


def _check_arms(bandit: base.Bandit, state: Any) -> None:
  """A loop of some rounds plays arms that there are."""

  def step(state, key):
    arm = bandit.select(key, state)
    rewards = jax.random.uniform(key, (bandit.num_arms,))
    return bandit.update(state, arm, rewards[arm], rewards=rewards), arm

  @jax.jit
  def play(key, state):
    keys = jax.random.split(key, _NUM_ROUNDS)
    return jax.lax.scan(step, state, keys)[1]

  arms = np.asarray(play(jax.random.key(15), state))
  building.require(
    ((0 <= arms) & (arms < bandit.num_arms)).all(),
    f'Arms must be those of the bandit, 0 to {bandit.num_arms - 1}, got '
    f'{arms.tolist()}.',
  )
