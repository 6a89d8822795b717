"""Multi-round rejection: one candidate after the other against what is left.

SpecInfer (Miao et al. 2024); the root test of Algorithm 4 of the theory paper
(Yin et al. 2024). No step needs the candidates to have the same distribution.
"""

import jax
import jax.numpy as jnp

from specjax import sampling
from specjax.transport import rejection


def multiround(
  key: jax.Array,
  candidates: jax.Array,
  active: jax.Array,
  draft: jax.Array,
  target: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Accepts the first that passes the ordinary test against the residual.

  Each rejection replaces the target by the normalised residual, which is what
  the token is drawn from when all candidates are rejected.

  Args:
    key: consumed.
    candidates: `[W]` int32 tokens, independent samples of `draft`.
    active: `[W]` bool, which of them stand here; without any, the token is a
      sample of the target.
    draft: `[V]` float32, or `[W, V]`, a distribution for each candidate.
    target: `[V]` float32.

  Returns:
    `(token, accepted)`: `[]` int32, and whether it is an active candidate.
  """
  size = candidates.shape[0]
  num_draw = sampling.num_uniforms(target.shape[0])
  uniforms = jax.random.uniform(key, (num_draw + size,), jnp.float32)
  draw_uniforms, test_uniforms = uniforms[:num_draw], uniforms[num_draw:]
  # Active candidates first, in order, so that others cost no round.
  order = jnp.argsort(~active)
  num_active = active.sum()

  def at(tried):
    index = order[jnp.minimum(tried, size - 1)]
    return candidates[index], draft if draft.ndim == 1 else draft[index]

  def passes(walk):
    tried, left = walk
    candidate, probs = at(tried)
    return test_uniforms[tried] * probs[candidate] < left[candidate]

  def reject(walk):
    tried, left = walk
    return tried + 1, rejection.reject(at(tried)[1], left)

  tried, left = jax.lax.while_loop(
    lambda walk: (walk[0] < num_active) & ~passes(walk),
    reject,
    (jnp.int32(0), target),
  )
  token = jnp.where(
    tried < num_active,
    at(tried)[0],
    sampling.draw(draw_uniforms, left),
  )
  return token, (active & (candidates == token)).any()
