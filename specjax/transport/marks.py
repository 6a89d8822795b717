"""Marked draws: i.i.d. draws among drafts without replacement.

Draw tokens i.i.d., again and again; the first draws of `k` different tokens are
`k` draws without replacement. Mark each draw with a probability that depends on
its token only. Stop as soon as the marked draws, including repeated tokens, and
the different tokens of all other draws are `k` in total. Then the tokens of the
marked draws are i.i.d. given the number of marked draws, since the rule for
stopping does not depend on these tokens. All of them are among the first `k`
different tokens, that is, among the drafts. So the optimal plan for i.i.d.
drafts, `transport.priorities`, applies to the marked draws.

A draw is marked with probability `min(1, target / (rho * draft))`. With `rho`
near 0, all draws are marked and repeated tokens count, so the acceptance rate
is that of `otm` with `k` i.i.d. drafts. A larger `rho` leaves draws unmarked
whose token has little target mass, and an unmarked token counts only once,
however often it is drawn. With the division factor of k-Seq as `rho`, the
marked draws are those that k-Seq accepts, so the acceptance rate is no less
than that of k-Seq. The output distribution is exact for every `rho`.

The search for the best `rho` assumes that the acceptance rate has a single
maximum, so it may miss the best one. `tests/distinct_test.py` bounds the loss
on 400 random pairs of distributions over 5 and over 10 tokens, with 3 drafts:
the acceptance rate is above 0.95 of the optimum on average and above 0.75 of it
for the worst pair. It is less than 0.001 (5 tokens, Dirichlet 0.5) or 0.005 (10
tokens, Dirichlet 0.1) below that of k-Seq.
"""

from collections.abc import Callable
import functools
import math
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax.transport import bins
from specjax.transport import distinct
from specjax.transport import division
from specjax.transport import numerics
from specjax.transport import priorities

# log2 of the smallest and the largest `rho`.
_LOW, _HIGH = -6.0, -math.log2(division.RAREST)
_GOLDEN = (math.sqrt(5) - 1) / 2


class Marks(NamedTuple):
  """Probabilities that draws are marked, and of the number of marked draws."""

  covered: jax.Array  # [V] how likely a draw is this token and marked
  counts: jax.Array  # [max_drafts] how likely 1, 2, ... draws are marked

  def distribution(self) -> jax.Array:
    """Returns `[V]`, the distribution of the token of a marked draw."""
    total = self.covered.sum()
    return self.covered / jnp.where(total > 0, total, 1.0)

  def draw_priorities(self, target: jax.Array) -> priorities.Priorities:
    """Returns the optimal priorities for marked draws."""
    numbers = np.arange(1, self.counts.size + 1)
    return priorities.compute(self.distribution(), target, numbers, self.counts)


def mark(
  draft: jax.Array,
  target: jax.Array,
  num_drafts: jax.Array,
  max_drafts: int,
  num_steps: int = 16,
) -> Marks:
  """Chooses `rho` to maximize the acceptance rate, and returns its marks.

  The steps are:

  1. Sort the tokens by `target / draft`, or group them into buckets by this
     ratio if there are many (`_sorted_masses`). This does not depend on `rho`.
  2. For a given `rho`, compute the distribution of the number of marked draws
     (`distinct.count_good`, with marked draws as the good ones).
  3. The acceptance rate for this `rho` is a minimum cut, as in
     `transport.priorities`, over the prefixes of the order of step 1.
  4. A golden-section search over `log2(rho)` repeats steps 2 and 3.

  Args:
    draft: `[V]` float32, distribution of the first draft.
    target: `[V]` float32.
    num_drafts: `[]` int32, `k`; with `k = 0`, no draw is marked.
    max_drafts: static upper bound of `num_drafts`.
    num_steps: steps of the search, each a pass over both distributions.

  Returns:
    The marks. If tokens with target mass are drafted too rarely, so that the
    probability of a mark is below `division.RAREST`, no draw is marked.
  """
  large = distinct.large_indices(draft)
  draft_masses, target_masses = _sorted_masses(draft, target)

  def marks_at(log_rho: jax.Array) -> Marks:
    covered = jnp.minimum(draft, target / jnp.exp2(log_rho))
    marked = covered.sum()
    counts = distinct.count_good(
      draft - covered, marked, num_drafts, max_drafts, large
    )
    valid = marked >= division.RAREST
    return Marks(jnp.where(valid, covered, 0.0), jnp.where(valid, counts, 0.0))

  def acceptance_at(log_rho: jax.Array) -> jax.Array:
    counts = marks_at(log_rho).counts
    mass = jnp.minimum(draft_masses, target_masses / jnp.exp2(log_rho))
    total = mass.sum()
    # For each prefix `H` of the order: how likely a marked draw is in `H`, and
    # how likely the marked draws are not all in `H`.
    inside = jnp.cumsum(mass / jnp.where(total > 0, total, 1.0))
    any_outside = sum(
      count * (1 - jnp.minimum(inside, 1.0) ** (i + 1))
      for i, count in enumerate(counts)
    )
    cut = (jnp.cumsum(target_masses) + any_outside).min()
    return numerics.rounded(jnp.minimum(cut, counts.sum()))

  return marks_at(_maximize(acceptance_at, _LOW, _HIGH, num_steps))


def _sorted_masses(draft: jax.Array, target: jax.Array) -> jax.Array:
  """Returns `[2, M]`, draft and target mass by ascending `target / draft`.

  The entries are tokens, or buckets of tokens if the vocabulary is large.
  """
  ratio = priorities.ratio(draft, target)
  both = jnp.stack([draft, target], axis=1)
  if draft.size <= bins.NUM_BINS:
    return both[jnp.argsort(ratio)].T
  position = (jnp.log2(ratio) - _LOW) * (bins.NUM_BINS / (_HIGH - _LOW))
  index = jnp.clip(position, 0, bins.NUM_BINS - 1).astype(jnp.int32)
  return bins.bin_sums(both, index).T


def _maximize(
  function: Callable[[jax.Array], jax.Array],
  low: float | jax.Array,
  high: float | jax.Array,
  num_steps: int,
) -> jax.Array:
  """Returns the maximizer of a unimodal function, by golden-section search."""
  inner = lambda low, high: low + _GOLDEN * (high - low)

  # The carry is the bracket and the two points inside it, with their values.
  # If the function ascends between the two points, the bracket loses its lower
  # part: the upper point becomes the lower one, and a new upper point is
  # evaluated. Otherwise the bracket loses its upper part.
  def step(_: jax.Array, carry: Any) -> Any:
    low, high, points, values = carry
    ascends = values[0] <= values[1]
    low = jnp.where(ascends, points[0], low)
    high = jnp.where(ascends, high, points[1])
    kept_point = jnp.where(ascends, points[1], points[0])
    kept_value = jnp.where(ascends, values[1], values[0])
    new_point = jnp.where(ascends, inner(low, high), inner(high, low))
    new_value = function(new_point)
    choose = functools.partial(jnp.where, ascends)
    return (
      low,
      high,
      (choose(kept_point, new_point), choose(new_point, kept_point)),
      (choose(kept_value, new_value), choose(new_value, kept_value)),
    )

  low, high = jnp.float32(low), jnp.float32(high)
  points = inner(high, low), inner(low, high)
  values = tuple(map(function, points))
  start = low, high, points, values
  _, _, points, values = jax.lax.fori_loop(0, num_steps, step, start)
  return jnp.where(values[0] <= values[1], points[1], points[0])
