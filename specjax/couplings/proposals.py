"""Proposes the i.i.d. candidate of highest priority.

`transport.priorities` defines the priorities, and proves that no rule accepts
more often than the proposal that follows from them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax.transport import priorities

# Uniform numbers that the priority of one candidate takes.
NUM_UNIFORMS = 3


class Proposal(NamedTuple):
  """One of the candidates, and the distribution of its token."""

  candidate: (
    jax.Array
  )  # [] int32, index of an active candidate, if there is one
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
    active: `[W]` bool, which of the candidates exist at this position.
    draft: `[V]` float32.
    target: `[V]` float32, the distribution that is coupled with the proposal's.
  """
  ranking = priorities.compute(draft, target, jnp.maximum(active.sum(), 1))
  candidate = highest_priority(ranking, uniforms, candidates, active)
  return Proposal(candidate, ranking.distribution(draft))


def highest_priority(
  ranking: priorities.Priorities,
  uniforms: jax.Array,
  candidates: jax.Array,
  active: jax.Array,
) -> jax.Array:
  """Returns the index `[]` of the active candidate of highest priority.

  See `propose` for the other arguments.

  Args:
    ranking: the priorities of atoms.
    uniforms: `[W * NUM_UNIFORMS]` in [0, 1).
    candidates: `[W]` int32 tokens.
    active: `[W]` bool.
  """
  split, partner_uniform, swap = uniforms.reshape(NUM_UNIFORMS, -1)
  atom = ranking.atom[candidates]
  to_next = split < ranking.fraction[candidates]
  atom = jnp.where(to_next, ranking.next(atom), atom)
  # An atom that wins less often than its proposal ratio demands has a deficit,
  # the others a surplus. The partner is drawn among the atoms of the other
  # kind, in proportion to their deficit or surplus, and the two are swapped as
  # often as closes the gap.
  gap = ranking.proposal_ratio[atom] - ranking.win_density[atom]
  deficit, surplus = ranking.deficit_cdf, ranking.surplus_cdf
  partner = jnp.where(
    gap > 0,
    priorities.partner(deficit, surplus, atom, partner_uniform),
    priorities.partner(surplus, deficit, atom, partner_uniform),
  )
  distance = jnp.abs(ranking.win_density[partner] - ranking.win_density[atom])
  rank = jnp.where(swap * distance < jnp.abs(gap), partner, atom)
  # Tokens of equal rank are i.i.d. given the rank: the first of them is taken.
  return jnp.argmax(jnp.where(active, rank, -1)).astype(jnp.int32)
