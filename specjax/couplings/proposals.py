"""Which of several i.i.d. candidates is proposed: the one of highest priority.

How priorities are drawn, and why nothing is accepted more often than the
proposal that they make, is shown in `transport.priorities`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax.transport import priorities

# Uniforms that the priority of a candidate takes.
NUM_UNIFORMS = 3


class Proposal(NamedTuple):
  """One of the candidates, and the distribution that this makes it have."""

  place: jax.Array  # [] int32, of an active candidate, if there is one
  probs: jax.Array  # [V] float32


def propose(
  uniforms: jax.Array,
  candidates: jax.Array,
  active: jax.Array,
  draft: jax.Array,
  target: jax.Array,
) -> Proposal:
  """Proposes the active candidate of highest priority.

  Args:
    uniforms: `[W * NUM_UNIFORMS]` in [0, 1).
    candidates: `[W]` int32 tokens, i.i.d. from `draft`.
    active: `[W]` bool, which of them stand here.
    draft: `[V]` float32.
    target: `[V]` float32, what the proposal will be coupled with.
  """
  plan = priorities.plan(draft, target, jnp.maximum(active.sum(), 1))
  place = by_priority(plan, uniforms, candidates, active)
  return Proposal(place, plan.distribution(draft))


def by_priority(
  plan: priorities.Priorities,
  uniforms: jax.Array,
  candidates: jax.Array,
  active: jax.Array,
) -> jax.Array:
  """Returns `[]` the place of the active candidate of highest priority."""
  split, place, swap = uniforms.reshape(NUM_UNIFORMS, -1)
  atom = plan.atom[candidates]
  atom = jnp.where(split < plan.fraction[candidates], plan.next(atom), atom)
  # A partner among the atoms of the other kind, in proportion to what either
  # lacks or has to give away, then a swap as often as makes up for it.
  short = plan.wanted[atom] - plan.wins[atom]
  lacking = priorities.partner(plan.lacking, plan.exceeding, atom, place)
  exceeding = priorities.partner(plan.exceeding, plan.lacking, atom, place)
  partner = jnp.where(short > 0, lacking, exceeding)
  distance = jnp.abs(plan.wins[partner] - plan.wins[atom])
  rank = jnp.where(swap * distance < jnp.abs(short), partner, atom)
  # Of equal ranks the first: their tokens are i.i.d. given the rank.
  return jnp.argmax(jnp.where(active, rank, -1)).astype(jnp.int32)
