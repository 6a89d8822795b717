"""Draws without replacement that stand for i.i.d. ones: those that are marked.

Draw tokens again and again; the first draws of `k` different ones are `k` draws
without replacement. Mark each draw with a chance that its token has. Marked
draws are i.i.d., and they still are when the draws end as soon as the marked
ones, repeated ones among them, and the other different tokens are `k`: how many
draws were marked says nothing of their tokens then. All of these are among the
`k` different tokens, so what is best for i.i.d. drafts, `transport.priorities`,
is there for them.

A token is marked with the chance `min(1, target / (rho draft))`. With `rho`
near 0 all draws are marked, and repeated ones count, too: this accepts as `otm`
does of `k` i.i.d. drafts. A larger `rho` leaves draws out that the target does
not want; such a token counts once, however often it is drawn. At the division
factor of k-Seq each marked draw is one that k-Seq accepts, so this factor
accepts no less than k-Seq does. Any factor keeps the target's distribution.

The factor that accepts most is searched for, as if acceptance had one maximum,
so that it may be missed. `tests/distinct_test.py` bounds the loss on 400 random
pairs of 5 and of 10 tokens with 3 drafts: acceptance is above 0.95 of the
optimum on average and above 0.75 in the worst pair, and less than 0.001 (5
tokens, Dirichlet 0.5) or 0.005 (10 tokens, Dirichlet 0.1) below k-Seq.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax.transport import bins
from specjax.transport import chances
from specjax.transport import distinct
from specjax.transport import division
from specjax.transport import priorities

# log2 of the least and the largest factor.
_LOW, _HIGH = -6.0, -math.log2(division.RAREST)
_GOLDEN = (math.sqrt(5) - 1) / 2


class Marks(NamedTuple):
  """Which draws are marked, and how many."""

  covered: jax.Array  # [V] chances that a draw is of each token, and marked
  counts: jax.Array  # [most] chances that 1, 2, ... draws are marked

  def distribution(self) -> jax.Array:
    """Returns `[V]` that of the token of each marked draw."""
    total = self.covered.sum()
    return self.covered / jnp.where(total > 0, total, 1.0)

  def plan(self, target: jax.Array) -> priorities.Priorities:
    """Returns the best priorities of marked draws."""
    numbers = np.arange(1, self.counts.size + 1)
    return priorities.plan(self.distribution(), target, numbers, self.counts)


def mark(
  draft: jax.Array,
  target: jax.Array,
  num_drafts: jax.Array,
  most: int,
  num_steps: int = 16,
) -> Marks:
  """Chooses the factor `rho` by a golden-section search over its logarithm.

  Args:
    draft: `[V]` float32, distribution of the first draw.
    target: `[V]` float32.
    num_drafts: `[]` int32, `k`; of none, nothing is marked.
    most: the largest `k`.
    num_steps: of the search, a pass over both distributions each.

  Returns:
    The marks; none where drafts that the target wants are too rare.
  """
  large = distinct.large_ones(draft)
  atoms = _atoms(draft, target)

  def at(log_factor):
    covered = jnp.minimum(draft, target / jnp.exp2(log_factor))
    good = covered.sum()
    counts = distinct.count_good(draft - covered, good, num_drafts, most, large)
    valid = good >= division.RAREST
    return Marks(*(jnp.where(valid, each, 0.0) for each in (covered, counts)))

  def accepted(log_factor):
    counts = at(log_factor).counts
    own, wanted = atoms
    mass = jnp.minimum(own, wanted / jnp.exp2(log_factor))
    total = mass.sum()
    above = jnp.cumsum(mass / jnp.where(total > 0, total, 1.0))
    lost = sum(
      count * (1 - jnp.minimum(above, 1.0) ** (i + 1))
      for i, count in enumerate(counts)
    )
    # The minimum cut, see `priorities`.
    cut = (jnp.cumsum(wanted) + lost).min()
    return chances.rounded(jnp.minimum(cut, counts.sum()))

  return at(_maximise(accepted, _LOW, _HIGH, num_steps))


def _atoms(draft, target):
  """What tokens have of both, by ascending ratio; of many, those of buckets."""
  ratio = priorities.ratio(draft, target)
  both = jnp.stack([draft, target], axis=1)
  if draft.size <= bins.NUM_BINS:
    return both[jnp.argsort(ratio)].T
  place = (jnp.log2(ratio) - _LOW) * (bins.NUM_BINS / (_HIGH - _LOW))
  index = jnp.clip(place, 0, bins.NUM_BINS - 1).astype(jnp.int32)
  return bins.sums(both, index).T


def _maximise(function, low, high, num_steps):
  """Where a function is largest that first ascends and then descends."""
  inner = lambda low, high: low + _GOLDEN * (high - low)

  def step(_, carry):
    low, high, points, values = carry
    ascends = values[0] <= values[1]
    low = jnp.where(ascends, points[0], low)
    high = jnp.where(ascends, high, points[1])
    kept, at_kept = (
      jnp.where(ascends, each[1], each[0]) for each in (points, values)
    )
    new = jnp.where(ascends, inner(low, high), inner(high, low))
    at_new = function(new)
    order = functools.partial(jnp.where, ascends)
    return (
      low,
      high,
      (order(kept, new), order(new, kept)),
      (order(at_kept, at_new), order(at_new, at_kept)),
    )

  low, high = jnp.float32(low), jnp.float32(high)
  points = inner(high, low), inner(low, high)
  values = tuple(map(function, points))
  start = low, high, points, values
  _, _, points, values = jax.lax.fori_loop(0, num_steps, step, start)
  return jnp.where(values[0] <= values[1], points[1], points[0])
