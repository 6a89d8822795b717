"""How often one of `k` i.i.d. drafts is accepted, at best and by each rule."""

import jax
import jax.numpy as jnp
import numpy as np

from specjax.transport import chances
from specjax.transport import distinct as distinct_lib
from specjax.transport import division
from specjax.transport import inputs
from specjax.transport import marks as marks_lib
from specjax.transport import priorities
from specjax.transport import rejection


def optimal_acceptance(
  draft: jax.typing.ArrayLike,
  target: jax.typing.ArrayLike,
  num_drafts: jax.typing.ArrayLike,
  *,
  distinct: bool = False,
) -> jax.Array:
  """Returns the acceptance of the best plan, for any vocabulary.

  Max-flow min-cut turns the linear program into the minimum over token sets
  `H` of `target(H) + (1 - draft(H)**k)`, and the best `H` is a prefix of the
  tokens in the order of `target / draft`: one sort. The value is right to
  1e-6 in float32, for 32,000 tokens and 64 drafts, too.

  Args:
    draft: `[V]` distribution of each draft.
    target: `[V]` distribution of the token.
    num_drafts: `k >= 1`, may be traced.
    distinct: drafts are drawn without replacement, `draft` is that of the first
      one: instead of `1 - draft(H)**k` the chance that not all of them are in
      `H`, which is right to 1e-5. `k` may not be traced then.

  Returns:
    `[]` float32 in [0, 1].

  Raises:
    ValueError: no distributions or `k < 1`, where the values are known.
  """
  inputs.check(draft, target, num_drafts)
  draft, target = inputs.normalised(draft, target)
  order = jnp.argsort(priorities.ratio(draft, target))
  draft, target = draft[order], target[order]
  if distinct:
    lost = distinct_lib.any_outside(draft, int(np.asarray(num_drafts)))
    covered = chances.before(jnp.append(target, 0.0))
    return jnp.minimum((covered + lost).min(), 1.0)
  # Sums of what is not negative: nothing cancels.
  _, left = chances.of_all(
    jnp.cumsum(draft),
    chances.behind(draft),
    jnp.asarray(num_drafts, draft.dtype),
  )
  return jnp.minimum((jnp.cumsum(target) + left).min(), 1.0)


def otm_acceptance(
  draft: jax.typing.ArrayLike,
  target: jax.typing.ArrayLike,
  num_drafts: jax.typing.ArrayLike,
  *,
  distinct: bool = False,
) -> jax.Array:
  """Returns the acceptance of the coupling `otm`; arguments as above.

  Of drafts without replacement, that of `otm_distinct` at least: where it
  rejects a proposal, another draft may replace it.
  """
  inputs.check(draft, target, num_drafts)
  draft, target = inputs.normalised(draft, target)
  if distinct:
    num = int(np.asarray(num_drafts))
    marks = marks_lib.mark(draft, target, jnp.int32(num), num)
    proposal = marks.plan(target).distribution(marks.distribution())
    return chances.total(jnp.minimum(proposal, target))
  proposal = priorities.plan(draft, target, num_drafts).distribution(draft)
  return chances.total(jnp.minimum(proposal, target))


def kseq_acceptance(
  draft: jax.typing.ArrayLike,
  target: jax.typing.ArrayLike,
  num_drafts: jax.typing.ArrayLike,
  *,
  distinct: bool = False,
) -> jax.Array:
  """Returns the acceptance of k-Seq at its best division factor.

  SpecTr, Theorem 1; of drafts without replacement, that of `kseq_distinct`.
  Arguments as of `optimal_acceptance`.
  """
  inputs.check(draft, target, num_drafts)
  draft, target = inputs.normalised(draft, target)
  if distinct:
    num = int(np.asarray(num_drafts))
    divided = division.divide_distinct(
      draft, target, jnp.int32(num), num, num_steps=30
    )
    return divided.acceptance
  factor = division.divide(draft, target, num_drafts, num_steps=30).factor
  covered = chances.total(jnp.minimum(factor * draft, target))
  # At the root they are equal; a factor that misses it has the lower of both.
  return jnp.minimum(chances.of_any(covered / factor, num_drafts), covered)


def multiround_acceptance(
  draft: jax.typing.ArrayLike,
  target: jax.typing.ArrayLike,
  num_drafts: jax.typing.ArrayLike,
) -> jax.Array:
  """Returns the acceptance of `k` tests, each against what the last one left.

  Theory (Yin et al. 2024), Theorem 3: all `k` drafts are rejected with the
  product of the total variations between residuals and `draft`. Arguments as
  above.
  """
  inputs.check(draft, target, num_drafts)
  draft, target = inputs.normalised(draft, target)

  def test(_, carry):
    left, log_rejected = carry
    overlap = chances.total(jnp.minimum(draft, left))
    left = rejection.reject(draft, left)
    # A product of distances near 1 would be rounded with each of them.
    log_rejected += jnp.log1p(-jnp.minimum(overlap, 1.0))
    return left / chances.total(left), log_rejected

  return -jnp.expm1(jax.lax.fori_loop(0, num_drafts, test, (target, 0.0))[1])
