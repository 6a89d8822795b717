"""The division factor `rho` of k-Seq.

k-Seq accepts each of `k` drafts with probability `min(1, target / (rho *
draft))`. SpecTr (Sun et al. 2023), Algorithm 2 and Lemma 4. Notation: SpecTr's
p is `draft`, its q is `target`.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import bisection
from specjax.transport import distinct
from specjax.transport import numerics

# Smallest overlap for which `divide_distinct` and `marks` accept any draft.
RAREST = 1e-13
# Rounding error of an acceptance rate. If all drafts are accepted with any
# factor, this tolerance makes the search choose the smallest factor.
_ROUNDING = 4e-6


class Division(NamedTuple):
  """A division factor and the resulting probabilities of acceptance."""

  factor: jax.Array  # [] rho, at least 1
  overlap: jax.Array  # [] beta(rho) = sum min(draft, target / rho), per test
  acceptance: jax.Array  # [] that any test passes: 1 - (1 - beta)**k


def divide(
  draft: jax.Array,
  target: jax.Array,
  num_drafts: jax.typing.ArrayLike,
  num_steps: int = 10,
) -> Division:
  """Bisects for the root of `1 - (1 - beta(rho))**k - rho * beta(rho)`.

  With any factor at or above the root, the emitted token has the target
  model's distribution, and the root accepts most often. The upper end of the
  last bracket is returned, so a small `num_steps` costs a little acceptance but
  the result stays exact.

  Args:
    draft: `[V]` float32.
    target: `[V]` float32.
    num_drafts: `k`, may be traced; 0 accepts nothing.
    num_steps: bisection steps, each a pass over both distributions.
  """
  k = jnp.asarray(num_drafts, jnp.float32)

  def evaluate(factor: jax.Array) -> tuple[Division, jax.Array]:
    scaled = jnp.minimum(factor * draft, target).sum()  # rho * beta(rho)
    overlap = scaled / factor
    return Division(factor, overlap, numerics.any_success(overlap, k)), scaled

  def is_below(factor: jax.Array) -> jax.Array:
    divided, scaled = evaluate(factor)
    return ~(divided.acceptance <= scaled)

  _, factor = bisection.bisect(
    is_below, jnp.float32(1), jnp.maximum(k, 1.0), num_steps
  )
  return evaluate(factor)[0]


def divide_distinct(
  draft: jax.Array,
  target: jax.Array,
  num_drafts: jax.Array,
  max_drafts: int,
  num_steps: int = 16,
) -> Division:
  """Finds the division factor for `k` drafts drawn without replacement.

  Tokens are drawn i.i.d. and each draw is tested, until `k` different tokens
  have been drawn (see `transport.distinct`). Since tokens may repeat, there are
  more tests than `k`, and the factor may exceed `k`.

  Args:
    draft: `[V]` float32.
    target: `[V]` float32.
    num_drafts: `[]` int32, `k`.
    max_drafts: static upper bound of `num_drafts`.
    num_steps: bisection steps on the factor's logarithm.

  Returns:
    The division. If tokens with target mass are drafted so rarely that the
    overlap is below `RAREST`, the factor is infinite, and nothing is accepted.
  """
  large = distinct.large_indices(draft)

  def evaluate(log_factor: jax.Array) -> Division:
    factor = jnp.exp2(log_factor)
    passed = jnp.minimum(draft, target / factor)
    overlap = passed.sum()
    accepted = distinct.any_good(
      draft - passed, overlap, num_drafts, max_drafts, large
    )
    return Division(factor, overlap, accepted)

  def halve(
    _: jax.Array, bracket: tuple[jax.Array, jax.Array]
  ) -> tuple[jax.Array, jax.Array]:
    low, high = bracket
    middle = (low + high) / 2
    divided = evaluate(middle)
    scaled = divided.factor * divided.overlap
    high_enough = divided.acceptance <= scaled + _ROUNDING
    high_enough |= divided.overlap < RAREST
    return (
      jnp.where(high_enough, low, middle),
      jnp.where(high_enough, middle, high),
    )

  # One point per step on all devices, unlike `bisection.bisect`: every point
  # writes its arrays to memory, so testing several together saves no time.
  start = jnp.float32(0), jnp.float32(-math.log2(RAREST))
  divided = evaluate(jax.lax.fori_loop(0, num_steps, halve, start)[1])
  valid = divided.overlap >= RAREST
  nothing = Division(*map(jnp.float32, (jnp.inf, 0.0, 0.0)))
  return jax.tree.map(functools.partial(jnp.where, valid), divided, nothing)
