"""Optimal transport of marked draws, for candidates without replacement.

The candidates are the first different tokens of i.i.d. draws. Some of these
draws are marked, and the marked ones are i.i.d. (`transport.marks`, which also
shows how far this is from the optimum for candidates without replacement). The
marked draw of highest priority is proposed, as in `OTM`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import components
from specjax import sampling
from specjax.couplings import proposals
from specjax.couplings import repeats
from specjax.couplings import residuals
from specjax.transport import marks as marks_lib


@components.component
class OTMDistinct(base.Coupling):
  """Proposes the marked draw of highest priority, and accepts as `Maximal`."""

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
    ranking = marks.draw_priorities(target)
    index = proposals.highest_priority(ranking, rank_uniforms, tokens, marked)
    probs, proposed = ranking.distribution(marks.distribution()), tokens[index]
    accepted = marked.any()
    accepted &= accept_uniform[0] * probs[proposed] < target[proposed]
    # Also where no draw is marked: the proposal lacks that probability.
    weights = residuals.residual(probs, target)
    token = jnp.where(accepted, proposed, sampling.draw(draw_uniforms, weights))
    return token, (active & (candidates == token)).any()


def _draws(
  uniforms: jax.Array, ordered: repeats.Candidates, marks: marks_lib.Marks
) -> tuple[jax.Array, jax.Array]:
  """Returns `[W]` tokens of the draws that count, and which are marked.

  A draw counts if its token is new, if it is marked, or if it is the first draw
  of its token that is not marked.
  """
  index = np.arange(ordered.tokens.shape[0])
  # Probabilities of a draw of each token, and of a marked one.
  probs = ordered.draw_probs
  covered = jnp.minimum(marks.covered[ordered.tokens], probs)
  share = covered / jnp.where(probs > 0, probs, 1.0)

  def step(
    carry: tuple[jax.Array, jax.Array], uniform: jax.Array
  ) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    num_seen, unmarked = carry
    new = jnp.where(num_seen > 0, ordered.remaining[num_seen - 1], 1.0)
    new = jnp.where(index == num_seen, new, 0.0)
    is_seen = index < num_seen
    uncovered = jnp.where(unmarked, 0.0, probs - covered)
    sums = jnp.concatenate(
      [
        jnp.where(is_seen, covered, new * share),
        jnp.where(is_seen, uncovered, new * (1 - share)),
      ]
    ).cumsum()
    pick = jnp.argmax(sums > uniform * sums[-1]).astype(jnp.int32)
    candidate, marked = pick % index.size, pick < index.size
    unmarked |= (index == candidate) & ~marked
    num_seen = jnp.maximum(num_seen, candidate + 1)
    return (num_seen, unmarked), (candidate, marked)

  start = jnp.int32(0), jnp.zeros(index.size, bool)
  _, (drawn, marked) = jax.lax.scan(step, start, uniforms)
  return ordered.tokens[drawn], marked & (index < ordered.num)
