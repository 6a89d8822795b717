"""The drafter that proposes nothing: plain autoregressive decoding."""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import components
from specjax import trees
from specjax.drafters import stateless


@components.component
class NoDrafter(stateless.StatelessDrafter):
  """Proposes empty trees, so that each round is plain decoding."""

  topology = trees.chain(0)

  def propose(
    self, params: base.Params, context: base.Context
  ) -> tuple[jax.Array, jax.Array]:
    """Returns no nodes."""
    del params
    empty = jnp.zeros((context.lengths.shape[0], 0), jnp.int32)
    return empty, empty.astype(bool)
