"""Optimal transport of marked draws, for candidates without replacement.

Of the draws behind the candidates, some are marked, which are i.i.d.
(`transport.marks`, which also says how far this is from the optimum for
candidates without replacement); of these, the one of highest priority is
proposed, as in `otm`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling
from specjax.couplings import proposals
from specjax.couplings import repeats
from specjax.couplings import residuals
from specjax.transport import marks as marks_lib


def otm_distinct(
  key: jax.Array,
  candidates: jax.Array,
  active: jax.Array,
  draft: jax.Array,
  target: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Proposes the marked draw of highest priority, and accepts as `maximal`.

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
  num_rank = proposals.NUM_UNIFORMS * size
  uniforms = jax.random.uniform(
    key, (1 + num_draw + num_rank + size,), jnp.float32
  )
  accept_uniform, draw_uniforms, rank_uniforms, mark_uniforms = jnp.split(
    uniforms, np.cumsum([1, num_draw, num_rank])
  )
  ordered = repeats.in_order(candidates, active, draft)
  marks = marks_lib.mark(ordered.draft, target, ordered.num, size)
  tokens, marked = _draws(mark_uniforms, ordered, marks)
  plan = marks.plan(target)
  place = proposals.by_priority(plan, rank_uniforms, tokens, marked)
  probs, proposed = plan.distribution(marks.distribution()), tokens[place]
  accepted = marked.any()
  accepted &= accept_uniform[0] * probs[proposed] < target[proposed]
  # Also where no draw is marked: the proposal lacks that chance.
  weights = residuals.residual(probs, target)
  token = jnp.where(accepted, proposed, sampling.draw(draw_uniforms, weights))
  return token, (active & (candidates == token)).any()


def _draws(uniforms, ordered, marks):
  """`[W]` tokens of the draws that count, and which of these are marked.

  Those of a new token count, those that are marked, and the first of each token
  that is not marked.
  """
  index = np.arange(ordered.tokens.shape[0])
  # Of draws that are of each token, and those of them that are marked.
  whole = ordered.drawn
  covered = jnp.minimum(marks.covered[ordered.tokens], whole)
  share = covered / jnp.where(whole > 0, whole, 1.0)

  def step(carry, uniform):
    num_seen, unmarked = carry
    new = jnp.where(num_seen > 0, ordered.left[num_seen - 1], 1.0)
    new = jnp.where(index == num_seen, new, 0.0)
    old = index < num_seen
    rest = jnp.where(unmarked, 0.0, whole - covered)
    chances = jnp.concatenate(
      [
        jnp.where(old, covered, new * share),
        jnp.where(old, rest, new * (1 - share)),
      ]
    ).cumsum()
    pick = jnp.argmax(chances > uniform * chances[-1]).astype(jnp.int32)
    place, marked = pick % index.size, pick < index.size
    unmarked |= (index == place) & ~marked
    num_seen = jnp.maximum(num_seen, place + 1)
    return (num_seen, unmarked), (place, marked)

  start = jnp.int32(0), jnp.zeros(index.size, bool)
  _, (places, marked) = jax.lax.scan(step, start, uniforms)
  return ordered.tokens[places], marked & (index < ordered.num)
