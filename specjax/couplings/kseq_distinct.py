"""k-Seq for candidates that are all different, drawn without replacement.

k-Seq (SpecTr, Sun et al. 2023, Algorithm 2) may test all draws behind them, the
repeated ones, too: it goes on until the `k`-th different token has been tested.
That a test takes place does not hang on the token that it is of. So the
accepted token is distributed as in k-Seq, and only how often there is one is
another number. Notation: SpecTr's p is `draft`, its q is `target`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling
from specjax.couplings import repeats
from specjax.couplings import residuals
from specjax.transport import division


def kseq_distinct(
  key: jax.Array,
  candidates: jax.Array,
  active: jax.Array,
  draft: jax.Array,
  target: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Accepts the first draw that passes with `min(1, target/(rho draft))`.

  Args:
    key: consumed.
    candidates: `[W]` int32 tokens, drawn without replacement, in this order.
    active: `[W]` bool, which of them stand here, none between two of them left
      out; without any, the token is a sample of the target.
    draft: `[W, V]` float32, a distribution for each candidate: of the first one
      all of it, of each other one what the earlier ones have left; `[V]` does
      for a single candidate, or if none is active.
    target: `[V]` float32.

  Returns:
    `(token, accepted)`: `[]` int32, and whether it is an active candidate.
  """
  size = candidates.shape[0]
  num_draw = sampling.num_uniforms(target.shape[0])
  uniforms = jax.random.uniform(key, (num_draw + 3 * size,), jnp.float32)
  draw_uniforms = uniforms[:num_draw]
  tests, redraws, picks = uniforms[num_draw:].reshape(3, size)
  tokens, num, probs, drawn, new = repeats.in_order(candidates, active, draft)
  divided = division.divide_distinct(probs, target, num, size)
  # Of each candidate: how often a draw is of it, and passes then.
  passing = jnp.minimum(drawn, target[tokens] / divided.factor)
  passed = tests * drawn < passing
  # Before the next one that is new, draws of these may be repeated.
  more = passing.cumsum()
  again = np.arange(1, size + 1) < num
  again &= redraws * (new + more) < more
  first = jnp.argmax(passed | again)
  weights = jnp.where(np.arange(size) <= first, passing, 0.0)
  repeated = jnp.argmax(weights.cumsum() > picks[first] * weights.sum())
  pick = tokens[jnp.where(passed[first], first, repeated)]
  weights = residuals.divided_residual(probs, target, divided)
  token = jnp.where(
    (passed | again).any(), pick, sampling.draw(draw_uniforms, weights)
  )
  return token, (active & (candidates == token)).any()
