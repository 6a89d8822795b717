"""The drafter that proposes nothing: plain autoregressive decoding."""

import jax.numpy as jnp

from specjax import base
from specjax import registry
from specjax import trees
from specjax.drafters import stateless


@registry.component
def none() -> base.Drafter:
  """Builds the drafter of empty trees."""

  def propose(params, context):
    del params
    empty = jnp.zeros((context.lengths.shape[0], 0), jnp.int32)
    return empty, empty.astype(bool)

  return stateless.stateless(trees.chain(0), propose)
