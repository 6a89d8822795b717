"""k-Seq's division factor: by how much each of `k` tests is made harder.

SpecTr (Sun et al. 2023), Algorithm 2 and Lemma 4. Notation: SpecTr's p is
`draft`, its q is `target`.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import bisection
from specjax.transport import chances
from specjax.transport import distinct

# Of tests of different tokens, the least chance that one is passed.
RAREST = 1e-13
# By which an acceptance may be off; where all drafts are accepted whatever the
# factor, it is the smallest that is chosen, not one that rounding chooses.
_ROUNDING = 4e-6


class Division(NamedTuple):
  """A division factor and what it makes of the drafts."""

  factor: jax.Array  # [] rho, at least 1
  overlap: jax.Array  # [] beta(rho) = sum min(draft, target / rho)
  acceptance: jax.Array  # [] that a test is passed: of k, 1 - (1 - beta)**k


def divide(
  draft: jax.Array,
  target: jax.Array,
  num_drafts: jax.typing.ArrayLike,
  num_steps: int = 10,
) -> Division:
  """Bisects for the root of `1 - (1 - beta(rho))**k - rho * beta(rho)`.

  Every factor from the root on gives the target's distribution, and the root
  accepts most; the upper end of the bracket is returned, so that few steps cost
  a little acceptance and no exactness.

  Args:
    draft: `[V]` float32.
    target: `[V]` float32.
    num_drafts: `k`, may be traced; 0 accepts nothing.
    num_steps: bisections, a pass over both distributions each.
  """
  k = jnp.asarray(num_drafts, jnp.float32)

  def at(factor):
    scaled = jnp.minimum(factor * draft, target).sum()  # rho * beta(rho)
    overlap = scaled / factor
    return Division(factor, overlap, chances.of_any(overlap, k)), scaled

  def is_below(factor):
    divided, scaled = at(factor)
    return ~(divided.acceptance <= scaled)

  _, factor = bisection.bisect(
    is_below, jnp.float32(1), jnp.maximum(k, 1.0), num_steps
  )
  return at(factor)[0]


def divide_distinct(
  draft: jax.Array,
  target: jax.Array,
  num_drafts: jax.Array,
  most: int,
  num_steps: int = 16,
) -> Division:
  """The same for tests that end with the `k`-th different token.

  In i.i.d. draws, some of which are of tokens that were drawn before: there are
  more tests than `k`, and the factor may be larger.

  Args:
    draft: `[V]` float32.
    target: `[V]` float32.
    num_drafts: `[]` int32, `k`.
    most: the largest `k`.
    num_steps: bisections of the factor's logarithm.

  Returns:
    The division; where drafts that the target wants are too rare for any, one
    by an infinite factor, which accepts nothing.
  """

  large = distinct.large_ones(draft)

  def at(log_factor):
    factor = jnp.exp2(log_factor)
    covered = jnp.minimum(draft, target / factor)
    overlap = covered.sum()
    weights = draft - covered
    accepted = distinct.any_good(weights, overlap, num_drafts, most, large)
    return Division(factor, overlap, accepted)

  def halve(_, bracket):
    low, high = bracket
    middle = (low + high) / 2
    divided = at(middle)
    scaled = divided.factor * divided.overlap
    high_enough = divided.acceptance <= scaled + _ROUNDING
    high_enough |= divided.overlap < RAREST
    return (
      jnp.where(high_enough, low, middle),
      jnp.where(high_enough, middle, high),
    )

  # Step by step on all devices: what a point takes is written to memory.
  start = jnp.float32(0), jnp.float32(-math.log2(RAREST))
  divided = at(jax.lax.fori_loop(0, num_steps, halve, start)[1])
  valid = divided.overlap >= RAREST
  nothing = Division(*map(jnp.float32, (jnp.inf, 0.0, 0.0)))
  return jax.tree.map(functools.partial(jnp.where, valid), divided, nothing)
