"""Near-optimal transport at full vocabulary: the draft of highest priority.

This is the best plan of SpecTr's equation (4), without its linear program; how,
and why it is optimal, is shown in `transport.priorities`.
"""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import components
from specjax import sampling
from specjax.couplings import proposals
from specjax.couplings import residuals


@components.component
class OTM(base.Coupling):
  """Proposes the candidate of highest priority, and accepts it as `Maximal`."""

  def __call__(
    self,
    key: jax.Array,
    candidates: jax.Array,
    active: jax.Array,
    draft: jax.Array,
    target: jax.Array,
  ) -> tuple[jax.Array, jax.Array]:
    num_draw = sampling.num_uniforms(target.shape[0])
    size = 1 + num_draw + proposals.NUM_UNIFORMS * candidates.shape[0]
    accept_uniform, residual_uniforms, rank_uniforms = jnp.split(
      jax.random.uniform(key, (size,), jnp.float32), [1, 1 + num_draw]
    )
    proposal = proposals.propose(
      rank_uniforms, candidates, active, draft, target
    )
    return residuals.accept(
      accept_uniform[0],
      residual_uniforms,
      candidates,
      active,
      proposal.candidate,
      proposal.probs,
      target,
    )
