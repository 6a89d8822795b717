"""k-Seq: one candidate after the other is tested against a divided target.

SpecTr (Sun et al. 2023), Algorithm 2. Notation: SpecTr's p is `draft`, its q is
`target`.
"""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import components
from specjax import sampling
from specjax.couplings import residuals
from specjax.transport import division


@components.component
class KSeq(base.Coupling):
  """Accepts the first candidate that passes its test.

  A candidate passes with probability `min(1, target / (rho draft))`. The
  division factor `rho` is chosen for the number of active candidates; the
  acceptance is at least `1 - 1/e` of the optimum.
  """

  def __call__(
    self,
    key: jax.Array,
    candidates: jax.Array,
    active: jax.Array,
    draft: jax.Array,
    target: jax.Array,
  ) -> tuple[jax.Array, jax.Array]:
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
