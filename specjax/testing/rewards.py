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


def check_reward(reward_class: building.Factory, /, **options: Any) -> None:
  """Checks a class of rewards.

  A reward lies in the unit interval, for arms of any depth among others. Its
  numbers are data, so that a sweep over them compiles once. Equal arguments
  make equal rewards.

  Args:
    reward_class: the class; it need not be in a table. It is given `costs`,
      `catch_up_costs` and `depths`, if it has such parameters.
    **options: arguments of the reward, in addition to these.

  Raises:
    AssertionError: a sentence says what must hold.
  """
  with building.about(reward_class):
    building.check_documented(reward_class)
    values.check_component(reward_class, _arguments(reward_class, 4, options))
    # Tokens are counted, or their number is an estimate.
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
  reward_class: building.Factory, depth: int, options: dict[str, Any]
) -> dict[str, Any]:
  given = {'costs': [0.25], 'catch_up_costs': [0.1], 'depths': [depth]}
  return building.arguments(reward_class, given, options)


def _check_type(round_info: base.RoundInfo, rewards: Any) -> None:
  building.require(
    rewards.shape == round_info.live.shape,
    f'There is a reward of each row: {round_info.live.shape}, got '
    f'{rewards.shape}.',
  )
  building.require(
    jnp.issubdtype(rewards.dtype, jnp.floating),
    f'Rewards are floats, got {rewards.dtype}.',
  )


def _check_range(round_info: base.RoundInfo, rewards: np.ndarray) -> None:
  building.require(
    ((0 <= rewards) & (rewards <= 1)).all(),
    f'All rewards must lie in [0, 1], got {rewards.tolist()} for '
    f'{round_info.num_emitted.tolist()} emitted tokens of trees of depth '
    f'{int(round_info.tree_depth[0])}.',
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
