"""Drafters without a state: they read the rows' text and their parameters."""

from collections.abc import Callable
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import registry
from specjax import trees

# `(params, context) -> (tokens[B, N], valid[B, N])`.
Propose = Callable[[base.Params, base.Context], tuple[jax.Array, jax.Array]]


@registry.component
def stateless(topology: trees.Topology, propose: Propose) -> base.Drafter:
  """Builds a drafter of deterministic trees, which costs no model call.

  Args:
    topology: shape of the trees.
    propose: `(params, context) -> (tokens[B, N], valid[B, N])`; siblings are
      distinct where they are valid.
  """
  return base.Drafter(
    topology=topology,
    init=lambda params, context, max_length: (),
    draft=functools.partial(_draft, topology, propose),
    commit=lambda state, proposal, context, outcome, rows: state,
    estimate=functools.partial(_estimate, topology, propose),
    partial=True,
    distinct=True,
    greedy=True,
  )


def _draft(topology, propose, keys, params, state, context):
  del keys, state
  tokens, valid = propose(params, context)
  return base.DraftTree(tokens, topology, valid, probs=None), ()


def _estimate(topology, propose, params, state, context, rows, target):
  """The target's mass of what would be proposed at each position."""
  num_read = jnp.zeros_like(rows, jnp.int32)
  num_committed = target.probs.processed.shape[1]
  if not topology.num_nodes:
    nothing = jnp.zeros((len(rows), num_committed), jnp.float32)
    return state, num_read, base.Probs(nothing, nothing)
  at = functools.partial(_mass, topology, propose, params, context, target)
  acceptance = jax.vmap(at, in_axes=(0, 1), out_axes=1)(
    np.arange(num_committed), target.probs
  )
  return state, num_read, acceptance


def _mass(topology, propose, params, context, target, step, probs):
  """The mass at one position, which is `step` behind the first."""
  lengths = jnp.minimum(target.start + step, context.lengths)
  tokens, valid = propose(params, context._replace(lengths=lengths))
  first = topology.levels[0]

  def mass(each):
    each = jnp.take_along_axis(each, tokens[:, first], axis=1)
    return jnp.where(valid[:, first], each, 0.0).sum(1)

  return jax.tree.map(mass, probs)
