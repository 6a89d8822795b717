"""k-Seq for candidates that are all different, drawn without replacement.

The candidates are the first `k` different tokens of i.i.d. draws. k-Seq
(SpecTr, Sun et al. 2023, Algorithm 2) may test all of these draws, the repeated
ones included: it continues until the `k`-th different token has been tested.
Whether a test takes place does not depend on the token that it tests. So the
accepted token is distributed as in k-Seq, and only the probability that there
is one differs. Notation: SpecTr's p is `draft`, its q is `target`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import components
from specjax import sampling
from specjax.couplings import repeats
from specjax.couplings import residuals
from specjax.transport import division


@components.component
class KSeqDistinct(base.Coupling):
  """Accepts the first draw that passes with `min(1, target / (rho draft))`."""

  def accepts(self, siblings: base.Siblings) -> bool:
    """Accepts candidates that are all different."""
    return siblings in (
      base.Siblings.WITHOUT_REPLACEMENT,
      base.Siblings.CHOSEN,
    )

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
    uniforms = jax.random.uniform(key, (num_draw + 3 * size,), jnp.float32)
    draw_uniforms = uniforms[:num_draw]
    tests, redraws, picks = uniforms[num_draw:].reshape(3, size)
    ordered = repeats.in_order(candidates, active, draft)
    tokens, num, probs, draw_probs, remaining = ordered
    divided = division.divide_distinct(probs, target, num, size)
    # The probability that a draw is of each candidate and passes.
    passing = jnp.minimum(draw_probs, target[tokens] / divided.factor)
    passed = tests * draw_probs < passing
    # Before the next new token, draws of these may be repeated.
    total_passing = passing.cumsum()
    repeated = np.arange(1, size + 1) < num
    repeated &= redraws * (remaining + total_passing) < total_passing
    first = jnp.argmax(passed | repeated)
    weights = jnp.where(np.arange(size) <= first, passing, 0.0)
    repeat = jnp.argmax(weights.cumsum() > picks[first] * weights.sum())
    pick = tokens[jnp.where(passed[first], first, repeat)]
    weights = residuals.divided_residual(probs, target, divided)
    token = jnp.where(
      (passed | repeated).any(), pick, sampling.draw(draw_uniforms, weights)
    )
    return token, (active & (candidates == token)).any()
