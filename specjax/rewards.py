"""Rewards: what a round was worth to the bandit, in [0, 1]."""

import jax
import jax.numpy as jnp


def emitted(info) -> jax.Array:
  """Returns `[B]` emitted tokens beyond the certain one, over the depth `D`.

  BanditSpec (Hou et al. 2025) counts `Y` in 1..L+1 emitted tokens; this is
  `(Y - 1) / L`.
  """
  depth = max(info.tokens.shape[1] - 1, 1)
  return jnp.maximum(info.num_emitted - 1, 0) / depth


REWARDS = {
  'emitted': emitted,
}
