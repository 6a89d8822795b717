"""The rule that always plays the same arm."""

import jax.numpy as jnp

from specjax import base


def fixed(num_arms: int, *, arm: int = 0) -> base.Bandit:
  """Builds the bandit that has no choice.

  Args:
    num_arms: `A`, at least 1.
    arm: the arm that is always played.
  """
  if num_arms < 1:
    raise ValueError(f'num_arms must be >= 1, got {num_arms}.')
  if not 0 <= arm < num_arms:
    raise ValueError(f'arm must lie in [0, {num_arms - 1}], got {arm}.')

  def update(state, arm, reward, **extra):
    del arm, reward, extra
    return state

  return base.Bandit(
    init=lambda: (),
    select=lambda key, state: jnp.int32(arm),
    update=update,
  )
