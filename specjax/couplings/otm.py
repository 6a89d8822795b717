"""Near-optimal transport at full vocabulary: the draft of highest priority.

The best plan of SpecTr's equation (4), without its linear program; how, and
why it is optimal, is shown in `transport.priorities`.
"""

import jax
import jax.numpy as jnp

from specjax import sampling
from specjax.couplings import proposals
from specjax.couplings import residuals


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
  size = 1 + num_draw + proposals.NUM_UNIFORMS * candidates.shape[0]
  accept_uniform, residual_uniforms, rank_uniforms = jnp.split(
    jax.random.uniform(key, (size,), jnp.float32), [1, 1 + num_draw]
  )
  proposal = proposals.propose(rank_uniforms, candidates, active, draft, target)
  return residuals.accept(
    accept_uniform[0],
    residual_uniforms,
    candidates,
    active,
    proposal.place,
    proposal.probs,
    target,
  )
