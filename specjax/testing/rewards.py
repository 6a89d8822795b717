"""Checks of rewards."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.testing import building
from specjax.testing import values

# Depths of an arm and of the deepest arm.
_DEPTHS = ((0, 0), (0, 4), (2, 4), (4, 4))


def check_reward(reward_class: building.Constructor, /, **options: Any) -> None:
  """Checks a class of rewards.

  A reward lies in the unit interval, also among arms of other depths. Its
  numbers are data, so that a sweep over them compiles once. Equal arguments
  make equal rewards.

  Args:
    reward_class: the class; it need not be in a table. It receives `costs`,
      `catch_up_costs` and `depths`, if it has these parameters.
    **options: arguments of the reward, in addition to these.

  Raises:
    AssertionError: a property does not hold; the error is a sentence.
  """
  with building.error_context(reward_class):
    building.check_documented(reward_class)
    values.check_component(reward_class, _arguments(reward_class, 4, options))
    # The number of tokens is an integer, or a float if it is estimated.
    cases = list(itertools.product(_DEPTHS, (int, float)))
    rewards = [
      reward_class(**_arguments(reward_class, depth, options))
      for (depth, _), _ in cases
    ]
    infos = [info(*depths, number) for depths, number in cases]
    evaluate = jax.jit(
      lambda rewards, infos: [
        reward(round_info) for reward, round_info in zip(rewards, infos)
      ]
    )
    outputs = jax.eval_shape(evaluate, rewards, infos)
    for round_info, output in zip(infos, outputs):
      _check_type(round_info, output)
    outputs = jax.device_get(evaluate(rewards, infos))
    for round_info, output in zip(infos, outputs):
      _check_range(round_info, output)


def _arguments(
  reward_class: building.Constructor, depth: int, options: dict[str, Any]
) -> dict[str, Any]:
  """Returns the arguments of a reward for one arm."""
  defaults = {'costs': [0.25], 'catch_up_costs': [0.1], 'depths': [depth]}
  return building.arguments(reward_class, defaults, options)


def _check_type(round_info: base.RoundInfo, rewards: Any) -> None:
  """Checks shape and type of rewards."""
  building.require(
    rewards.shape == round_info.live.shape,
    f'There must be one reward per row, {round_info.live.shape}, got '
    f'{rewards.shape}.',
  )
  building.require(
    jnp.issubdtype(rewards.dtype, jnp.floating),
    f'Rewards must be floats, got {rewards.dtype}.',
  )


def _check_range(round_info: base.RoundInfo, rewards: np.ndarray) -> None:
  """Checks that rewards lie in [0, 1]."""
  building.require(
    ((0 <= rewards) & (rewards <= 1)).all(),
    f'All rewards must lie in [0, 1], got {rewards.tolist()} for '
    f'{round_info.num_emitted.tolist()} emitted tokens and trees of depth '
    f'{int(round_info.tree_depth[0])}.',
  )


def info(depth: int, deepest: int, number: type = float) -> base.RoundInfo:
  """Returns a round whose rows emitted 0 (finished), 1, ... `depth + 1` tokens.

  Args:
    depth: depth of the arm's tree.
    deepest: depth of the deepest arm.
    number: type of the number of emitted tokens, a float if it is estimated.
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
