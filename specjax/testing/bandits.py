"""Checks of bandits."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.testing import building
from specjax.testing import values

_NUM_ROUNDS = 20


def check_bandit(bandit_class: building.Constructor, /, **options: Any) -> None:
  """Checks a class of bandits.

  A loop can carry the state, with rewards of one arm or of all; arms are in
  range; unknown extras are ignored. Its numbers are data, so that a sweep over
  them compiles once. Equal arguments make equal bandits.

  Args:
    bandit_class: the class; it need not be in a table.
    **options: arguments of the bandit, in addition to `default_arguments`.

  Raises:
    AssertionError: a property does not hold; the error is a sentence.
  """
  with building.error_context(bandit_class):
    building.check_documented(bandit_class)
    for num_arms in (1, 3):
      defaults = default_arguments(num_arms)
      arguments = building.arguments(bandit_class, defaults, options)
      values.check_component(bandit_class, arguments)
      _check(bandit_class(**arguments), arguments.get('num_arms', num_arms))


def default_arguments(num_arms: int) -> dict[str, Any]:
  """Returns arguments of bandits, which are used if a class has the fields.

  Args:
    num_arms: `A`, at least 1.
  """
  return {
    'num_arms': num_arms,
    'costs': [1.0 + 0.25 * arm for arm in range(num_arms)],
    'depths': [2 * arm for arm in range(num_arms)],
  }


def _check(bandit: base.Bandit, num_arms: int) -> None:
  """Checks a bandit."""
  building.require(
    bandit.num_arms == num_arms,
    f'num_arms must be {num_arms}, as requested, got {bandit.num_arms}.',
  )
  state = bandit.init()
  arm = jax.eval_shape(bandit.select, jax.random.key(0), state)
  building.require(
    building.is_like(arm, (), jnp.int32),
    f'select must return an arm, a scalar int32, got {arm}.',
  )
  _check_updates(bandit, state, arm)
  _check_arms(bandit)


def _check_updates(bandit: base.Bandit, state: Any, arm: Any) -> None:
  """Checks that updates keep the state's shapes, with extras or without."""
  rewards = np.linspace(0, 1, bandit.num_arms, dtype=np.float32)
  extras: dict[str, Any]
  for extras in ({}, {'not_a_known_extra': np.ones_like(rewards)}):
    update = functools.partial(bandit.update, rewards=rewards, **extras)
    after = jax.eval_shape(update, state, arm, np.float32(0.5))
    building.check_keeps(state, after, 'update')
  after = jax.eval_shape(bandit.update_all, state, rewards)
  building.check_keeps(state, after, 'update_all')


def _check_arms(bandit: base.Bandit) -> None:
  """Checks that a compiled loop selects valid arms, with traced numbers."""

  @jax.jit
  def select(bandit: base.Bandit, key: jax.Array) -> jax.Array:
    def step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
      arm = bandit.select(key, state)
      rewards = jax.random.uniform(key, (bandit.num_arms,))
      return bandit.update(state, arm, rewards[arm], rewards=rewards), arm

    keys = jax.random.split(key, _NUM_ROUNDS)
    return jax.lax.scan(step, bandit.init(), keys)[1]

  arms = np.asarray(select(bandit, jax.random.key(15)))
  building.require(
    ((0 <= arms) & (arms < bandit.num_arms)).all(),
    f'Arms must lie in [0, {bandit.num_arms - 1}], got {arms.tolist()}.',
  )
