"""k-Seq: one candidate after the other against a divided target.

SpecTr (Sun et al. 2023), Algorithm 2. Notation: SpecTr's p is `draft`, its q is
`target`.
"""

import jax
import jax.numpy as jnp

from specjax import sampling
from specjax.couplings import residuals
from specjax.transport import division


def kseq(
  key: jax.Array,
  candidates: jax.Array,
  active: jax.Array,
  draft: jax.Array,
  target: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Accepts the first that passes with chance `min(1, target/(rho draft))`.

  The division factor `rho` is chosen for the number of active candidates; the
  acceptance is at least `1 - 1/e` of the optimum.

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
  uniforms = jax.random.uniform(
    key, (num_draw + candidates.shape[0],), jnp.float32
  )
  divided = division.divide(draft, target, active.sum())
  bars = uniforms[num_draw:] * divided.factor * draft[candidates]
  passed = active & (bars < target[candidates])
  weights = residuals.divided_residual(draft, target, divided)
  token = jnp.where(
    passed.any(),
    candidates[jnp.argmax(passed)],
    sampling.draw(uniforms[:num_draw], weights),
  )
  return token, (active & (candidates == token)).any()
