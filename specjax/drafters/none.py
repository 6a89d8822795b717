"""The drafter that proposes nothing: plain autoregressive decoding."""

import jax.numpy as jnp

from specjax import base
from specjax import trees


def none() -> base.Drafter:
  """Builds the drafter of empty trees."""
  topology = trees.chain(0)

  def draft(keys, params, state, context):
    del keys, params, state
    empty = jnp.zeros((context.lengths.shape[0], 0), jnp.int32)
    return base.DraftTree(empty, topology, empty.astype(bool), None), ()

  return base.Drafter(
    topology=topology,
    init=lambda params, tokens, lengths, max_length: (),
    draft=draft,
    commit=lambda state, proposal, context, outcome, keep: state,
    catch_up=lambda params, state, context, wanted: state,
    num_calls=0,
  )
