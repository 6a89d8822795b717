"""What every reward keeps."""

import itertools
from typing import Any

import jax.numpy as jnp

from specjax import base
from specjax.testing import building
from specjax.testing import values

# An arm's depth, and that of the deepest among its neighbours.
_DEPTHS = ((0, 0), (0, 4), (2, 4), (4, 4))


def check_reward(factory: building.Factory, /, **options: Any) -> None:
  """Checks a factory of rewards.

  A reward lies in the unit interval, for arms of any depth among others; equal
  arguments give one object.

  Args:
    factory: builds the reward; it need not be in a table. It is given `costs`,
      `catch_up_costs` and `depths`, if it has such parameters.
    **options: what it is built with, beside these and its example.

  Raises:
    AssertionError: a sentence says what must hold.
  """
  with building.about(factory):
    building.check_documented(factory)
    # Tokens are counted, or their number is an estimate.
    for (depth, deepest), number in itertools.product(_DEPTHS, (int, float)):
      chosen = _arguments(factory, depth, options)
      _check(factory(**chosen), info(depth, deepest, number))
    values.check_value(factory, _arguments(factory, 4, options))


def _arguments(
  factory: building.Factory, depth: int, options: dict[str, Any]
) -> dict[str, Any]:
  given = {'costs': [0.25], 'catch_up_costs': [0.1], 'depths': [depth]}
  return building.arguments(factory, given, options)


def _check(reward: base.Reward, seen: base.RoundInfo) -> None:
  rewards = reward(seen)
  building.require(
    rewards.shape == seen.live.shape,
    f'There is a reward of each row: {seen.live.shape}, got {rewards.shape}.',
  )
  building.require(
    jnp.issubdtype(rewards.dtype, jnp.floating),
    f'Rewards are floats, got {rewards.dtype}.',
  )
  building.require(
    ((0 <= rewards) & (rewards <= 1)).all(),
    f'All rewards must lie in [0, 1], got {rewards.tolist()} for '
    f'{seen.num_emitted.tolist()} emitted tokens of trees of depth '
    f'{int(seen.tree_depth[0])}.',
  )


def info(depth: int, deepest: int, number: type = float) -> base.RoundInfo:
  """Returns a round of rows that emitted 0 (done), 1, ... `depth + 1` tokens.

  Args:
    depth: of the arm's tree.
    deepest: depth of the deepest arm.
    number: type of the count, which is a float where it is an estimate.
  """
  emitted = jnp.arange(depth + 2, dtype=jnp.int32)
  return base.RoundInfo(
    arm=jnp.zeros_like(emitted),
    live=emitted > 0,
    tokens=jnp.zeros((depth + 2, deepest + 1), jnp.int32),
    num_emitted=emitted.astype(number),
    num_accepted=jnp.maximum(emitted - 1, 0),
    depth=jnp.full_like(emitted, depth),
    tree_depth=jnp.full_like(emitted, depth),
    acceptance=jnp.linspace(0, 1, depth + 2),
    raw_acceptance=jnp.linspace(1, 0, depth + 2),
    fidelity=jnp.linspace(1, 0, depth + 2),
    num_catch_up_tokens=emitted,
  )
