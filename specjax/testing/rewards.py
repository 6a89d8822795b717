"""What every reward keeps."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
    cases = list(itertools.product(_DEPTHS, (int, float)))
    built = [
      factory(**_arguments(factory, depth, options)) for (depth, _), _ in cases
    ]
    seen = [info(*depths, number) for depths, number in cases]
    evaluate = jax.jit(
      lambda seen: [reward(each) for reward, each in zip(built, seen)]
    )
    for each, rewards in zip(seen, jax.eval_shape(evaluate, seen)):
      _check_type(each, rewards)
    for each, rewards in zip(seen, jax.device_get(evaluate(seen))):
      _check_range(each, rewards)
    values.check_value(factory, _arguments(factory, 4, options))


def _arguments(
  factory: building.Factory, depth: int, options: dict[str, Any]
) -> dict[str, Any]:
  given = {'costs': [0.25], 'catch_up_costs': [0.1], 'depths': [depth]}
  return building.arguments(factory, given, options)


def _check_type(seen: base.RoundInfo, rewards: Any) -> None:
  building.require(
    rewards.shape == seen.live.shape,
    f'There is a reward of each row: {seen.live.shape}, got {rewards.shape}.',
  )
  building.require(
    jnp.issubdtype(rewards.dtype, jnp.floating),
    f'Rewards are floats, got {rewards.dtype}.',
  )


def _check_range(seen: base.RoundInfo, rewards: np.ndarray) -> None:
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
  emitted = np.arange(depth + 2, dtype=np.int32)
  shares = np.linspace(0, 1, depth + 2, dtype=np.float32)
  return base.RoundInfo(
    arm=jnp.asarray(np.zeros_like(emitted)),
    live=jnp.asarray(emitted > 0),
    tokens=jnp.asarray(np.zeros((depth + 2, deepest + 1), np.int32)),
    num_emitted=jnp.asarray(emitted.astype(jnp.result_type(number))),
    num_accepted=jnp.asarray(np.maximum(emitted - 1, 0)),
    depth=jnp.asarray(np.full_like(emitted, depth)),
    tree_depth=jnp.asarray(np.full_like(emitted, depth)),
    acceptance=jnp.asarray(shares),
    raw_acceptance=jnp.asarray(shares[::-1]),
    fidelity=jnp.asarray(shares[::-1]),
    num_catch_up_tokens=jnp.asarray(emitted),
  )
