"""Acceptance rates for `k` drafts at one position: optimal, and by coupling."""

import jax
import jax.numpy as jnp
import numpy as np

from specjax.transport import distinct as distinct_lib
from specjax.transport import division
from specjax.transport import inputs
from specjax.transport import marks as marks_lib
from specjax.transport import numerics
from specjax.transport import priorities
from specjax.transport import rejection


def optimal_acceptance(
  draft: jax.typing.ArrayLike,
  target: jax.typing.ArrayLike,
  num_drafts: jax.typing.ArrayLike,
  *,
  distinct: bool = False,
) -> jax.Array:
  """Returns the acceptance rate of the optimal plan, for any vocabulary size.

  By max-flow min-cut, the optimum of the linear program is the minimum over
  token sets `H` of `target(H) + (1 - draft(H)**k)`. The best `H` contains the
  tokens of smallest ratio `target / draft`, so one sort finds it. The result is
  accurate to 1e-6 in float32, even for 32,000 tokens and 64 drafts.

  Args:
    draft: `[V]` distribution of each draft.
    target: `[V]` distribution of the emitted token.
    num_drafts: `k >= 1`, may be traced.
    distinct: whether the drafts are drawn without replacement; `draft` is then
      the distribution of the first one. In place of `1 - draft(H)**k`, the
      formula has the probability that the drafts are not all in `H`, which is
      accurate to 1e-5. `num_drafts` must not be traced in this case.

  Returns:
    `[]` float32 in [0, 1].

  Raises:
    ValueError: `draft` or `target` is not a distribution, `k < 1`, or `k` is
      more than can be drawn without replacement (if the values are not traced).
  """
  inputs.check(draft, target, num_drafts, distinct)
  draft, target = inputs.normalized(draft, target)
  order = jnp.argsort(priorities.ratio(draft, target))
  draft, target = draft[order], target[order]
  if distinct:
    any_outside = distinct_lib.any_outside(draft, int(np.asarray(num_drafts)))
    target_mass = numerics.sum_before(jnp.append(target, 0.0))
    return jnp.minimum((target_mass + any_outside).min(), 1.0)
  # All terms of these sums are nonnegative, so nothing cancels.
  _, any_outside = numerics.all_succeed(
    jnp.cumsum(draft),
    numerics.sum_after(draft),
    jnp.asarray(num_drafts, draft.dtype),
  )
  return jnp.minimum((jnp.cumsum(target) + any_outside).min(), 1.0)


def otm_acceptance(
  draft: jax.typing.ArrayLike,
  target: jax.typing.ArrayLike,
  num_drafts: jax.typing.ArrayLike,
  *,
  distinct: bool = False,
) -> jax.Array:
  """Returns the acceptance rate of the coupling `otm`.

  For drafts without replacement, this is a lower bound for `otm_distinct`: if
  it rejects its proposal, the replacement may happen to be another draft.

  The arguments are those of `optimal_acceptance`.
  """
  inputs.check(draft, target, num_drafts, distinct)
  draft, target = inputs.normalized(draft, target)
  if distinct:
    num = int(np.asarray(num_drafts))
    marks = marks_lib.mark(draft, target, jnp.int32(num), num)
    proposal = marks.draw_priorities(target).distribution(marks.distribution())
    return numerics.pairwise_sum(jnp.minimum(proposal, target))
  proposal = priorities.compute(draft, target, num_drafts).distribution(draft)
  return numerics.pairwise_sum(jnp.minimum(proposal, target))


def kseq_acceptance(
  draft: jax.typing.ArrayLike,
  target: jax.typing.ArrayLike,
  num_drafts: jax.typing.ArrayLike,
  *,
  distinct: bool = False,
) -> jax.Array:
  """Returns the acceptance rate of k-Seq with its best division factor.

  SpecTr (Sun et al. 2023), Theorem 1. For drafts without replacement, this is
  the acceptance rate of `kseq_distinct`.

  The arguments are those of `optimal_acceptance`.
  """
  inputs.check(draft, target, num_drafts, distinct)
  draft, target = inputs.normalized(draft, target)
  if distinct:
    num = int(np.asarray(num_drafts))
    divided = division.divide_distinct(
      draft, target, jnp.int32(num), num, num_steps=30
    )
    return divided.acceptance
  factor = division.divide(draft, target, num_drafts, num_steps=30).factor
  scaled = numerics.pairwise_sum(jnp.minimum(factor * draft, target))
  # Both are equal at the root. If the factor misses the root, the smaller one
  # is the acceptance rate.
  return jnp.minimum(numerics.any_success(scaled / factor, num_drafts), scaled)


def multiround_acceptance(
  draft: jax.typing.ArrayLike,
  target: jax.typing.ArrayLike,
  num_drafts: jax.typing.ArrayLike,
) -> jax.Array:
  """Returns the acceptance rate of multi-round rejection.

  Each of the `k` drafts is tested against the residual of the test before it.
  Yin et al. (2024), Theorem 3: the probability that all drafts are rejected is
  the product of the total variations between the residuals and `draft`.

  The drafts are i.i.d.; for the arguments, see `optimal_acceptance`.
  """
  inputs.check(draft, target, num_drafts)
  draft, target = inputs.normalized(draft, target)

  def test(
    _: jax.Array, carry: tuple[jax.Array, jax.Array]
  ) -> tuple[jax.Array, jax.Array]:
    residual, log_rejected = carry
    overlap = numerics.pairwise_sum(jnp.minimum(draft, residual))
    residual = rejection.reject(draft, residual)
    # A product of distances near 1 would be rounded with every factor.
    log_rejected += jnp.log1p(-jnp.minimum(overlap, 1.0))
    return residual / numerics.pairwise_sum(residual), log_rejected

  return -jnp.expm1(jax.lax.fori_loop(0, num_drafts, test, (target, 0.0))[1])
