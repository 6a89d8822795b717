"""Near-optimal transport at full vocabulary: the draft of highest priority.

The best plan of SpecTr's equation (4), without its linear program; how, and
why it is optimal, is shown in `transport.priorities`.
"""

import jax
import jax.numpy as jnp

from specjax import sampling
from specjax.couplings import residuals
from specjax.transport import priorities


def otm(
  key: jax.Array,
  candidates: jax.Array,
  active: jax.Array,
  draft: jax.Array,
  target: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Proposes the candidate of highest priority, and accepts it as `maximal`.

  Args:
    key: consumed.
    candidates: `[W]` int32 tokens, i.i.d. from `draft`.
    active: `[W]` bool, which of them stand here; without any, the token is a
      sample of the target.
    draft: `[V]` float32.
    target: `[V]` float32.

  Returns:
    `(token, accepted)`: `[]` int32, and whether it is an active candidate.
  """
  num_draw = sampling.num_uniforms(target.shape[0])
  size = 1 + num_draw + 3 * candidates.shape[0]
  accept_uniform, residual_uniforms, rank_uniforms = jnp.split(
    jax.random.uniform(key, (size,)), [1, 1 + num_draw]
  )
  plan = priorities.plan(draft, target, jnp.maximum(active.sum(), 1))
  proposal = plan.distribution(draft)
  winner = _winner(plan, rank_uniforms.reshape(3, -1), candidates, active)
  return residuals.accept(
    accept_uniform[0],
    residual_uniforms,
    candidates,
    active,
    winner,
    proposal,
    target,
  )


def _winner(plan, uniforms, candidates, active):
  """Index of the active candidate of highest priority."""
  split, place, swap = uniforms
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
  return jnp.argmax(jnp.where(active, rank, -1))
