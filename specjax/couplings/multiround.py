"""Multi-round rejection: candidates are tested against successive residuals.

SpecInfer (Miao et al. 2024); the root test of Algorithm 4 of the theory paper
(Yin et al. 2024). No step needs the candidates to have the same distribution.
"""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import components
from specjax import sampling
from specjax.transport import rejection


@components.component
class Multiround(base.Coupling):
  """Accepts the first candidate that passes its test against the residual.

  Each rejection replaces the target by the normalized residual, from which the
  token is sampled when all candidates are rejected. The candidates must be
  independent.
  """

  def accepts(self, siblings: base.Siblings) -> bool:
    """Accepts all candidates, as each is tested with its distribution."""
    del siblings
    return True

  def __call__(
    self,
    key: jax.Array,
    candidates: jax.Array,
    active: jax.Array,
    draft: jax.Array,
    target: jax.Array,
  ) -> tuple[jax.Array, jax.Array]:
    size = candidates.shape[0]
    num_draw = sampling.num_uniforms(target.shape[0])
    uniforms = jax.random.uniform(key, (num_draw + size,), jnp.float32)
    draw_uniforms, test_uniforms = uniforms[:num_draw], uniforms[num_draw:]
    # Active candidates first, in order, so that others cost no round.
    order = jnp.argsort(~active)
    num_active = active.sum()

    def candidate_at(num_tested: jax.Array) -> tuple[jax.Array, jax.Array]:
      index = order[jnp.minimum(num_tested, size - 1)]
      return candidates[index], draft if draft.ndim == 1 else draft[index]

    def passes(walk: tuple[jax.Array, jax.Array]) -> jax.Array:
      num_tested, residual = walk
      candidate, probs = candidate_at(num_tested)
      bar = test_uniforms[num_tested] * probs[candidate]
      return bar < residual[candidate]

    def reject(
      walk: tuple[jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array]:
      num_tested, residual = walk
      _, probs = candidate_at(num_tested)
      return num_tested + 1, rejection.reject(probs, residual)

    num_tested, residual = jax.lax.while_loop(
      lambda walk: (walk[0] < num_active) & ~passes(walk),
      reject,
      (jnp.int32(0), target),
    )
    token = jnp.where(
      num_tested < num_active,
      candidate_at(num_tested)[0],
      sampling.draw(draw_uniforms, residual),
    )
    return token, (active & (candidates == token)).any()
