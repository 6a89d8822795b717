"""Drafters that remember nothing: they read the rows' text and parameters."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import trees


@base.component
def stateless(
  topology: trees.Topology,
  propose: Callable[..., tuple[jax.Array, jax.Array]],
) -> base.Drafter:
  """Builds a drafter of deterministic trees, which costs no model call.

  Args:
    topology: shape of the trees.
    propose: `(params, context) -> (tokens[B, N], valid[B, N])`; siblings are
      distinct where they are valid.
  """

  def draft(keys, params, state, context):
    del keys, state
    tokens, valid = propose(params, context)
    return base.DraftTree(tokens, topology, valid, probs=None), ()

  def catch_up(params, state, context, wanted, committed=None):
    num_tokens = jnp.zeros_like(wanted, jnp.int32)
    if committed is None:
      return base.CatchUp(state, num_tokens)
    if not topology.num_nodes:
      zeros = jax.tree.map(lambda law: jnp.zeros(law.shape[:2]), committed.laws)
      return base.CatchUp(state, num_tokens, zeros)

    def at(step, laws):
      """The target's mass of what would be proposed at one position."""
      lengths = jnp.minimum(committed.start + step, context.lengths)
      tokens, valid = propose(params, context._replace(lengths=lengths))
      first = topology.levels[0]

      def mass(law):
        each = jnp.take_along_axis(law, tokens[:, first], axis=1)
        return jnp.where(valid[:, first], each, 0.0).sum(1)

      return jax.tree.map(mass, laws)

    steps = np.arange(committed.laws.sampled.shape[1])
    overlap = jax.vmap(at, in_axes=(0, 1), out_axes=1)(steps, committed.laws)
    return base.CatchUp(state, num_tokens, overlap)

  return base.Drafter(
    topology=topology,
    init=lambda params, tokens, lengths, max_length: (),
    draft=draft,
    commit=lambda state, proposal, context, outcome, keep: state,
    catch_up=catch_up,
    num_calls=0,
    partial=True,
  )
