"""An optimal plan in closed form: every draft gets a priority, the best wins.

Each draft draws a priority from a distribution that depends on its token alone,
and the one of highest priority is proposed; a maximal coupling of the proposal
with the target then makes the output exact. This is optimal:

Let `s` be the rank of a draft's priority among all drafts, uniform in [0, 1].
It wins with chance density `z(s) = k s**(k-1)`, so the proposal is distributed
as `r(y) = draft(y) * E[z(s) | y]`. By Strassen's theorem ranks can be drawn
with `E[z(s) | y] = rho(y)` if and only if `rho` is no more spread than `z`: if
`r(H) >= draft(H)**k` for every token set `H`. That is all that the linear
program asks for, too. Let `H` be the set of its minimum cut. Of all proposals
of the best acceptance the least spread is the target, but for low ratios
`target / draft` in `H`, which are raised to a floor until
`r(H) = draft(H)**k`, and for high ones elsewhere, which are lowered to a
ceiling: it can be had whenever any can.

The ranks come from swaps. Sort atoms (tokens, or buckets of tokens) by ratio,
and give each the interval of ranks that is as long as its draft mass. Atoms
that win too seldom there, in order, swap some of it with those that win too
often, in order; how much follows from what either lacks (the inverse transform
martingale coupling of Jourdain and Margheriti, 2020).

The number of drafts may itself be drawn, if it says nothing of their tokens:
`z` is then its mean, which ascends, too.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax.transport import bins
from specjax.transport import chances

# Atoms that a large vocabulary is put into; smaller ones are not.
NUM_ATOMS = bins.NUM_BINS
# Ratios are resolved finely, relative to their size, above 1 / this.
_SHARPNESS = 16.0


class Priorities(NamedTuple):
  """How priorities are drawn, and the proposal that they make.

  A token is its atom, or with chance `fraction` the next one.
  """

  atom: jax.Array  # [V] int32
  fraction: jax.Array  # [V] in [0, 1]
  wins: jax.Array  # [M] z, a draft's chance to win in its own ranks, times k
  wanted: jax.Array  # [M] rho, the same over all ranks that it may draw
  lacking: jax.Array  # [M] cumulative chance that atoms lack ...
  exceeding: jax.Array  # [M] ... and that they have to give away

  def distribution(self, draft: jax.Array) -> jax.Array:
    """Returns the probabilities `[V]` of the proposal.

    Their sum is 1, or the chance that there is a draft.
    """
    atoms = self.atom, self.next(self.atom)
    low, high = (bins.look_up(self.wanted, each) for each in atoms)
    return draft * (low + self.fraction * (high - low))

  def next(self, atom: jax.Array) -> jax.Array:
    return jnp.minimum(atom + 1, self.wins.shape[0] - 1)


def ratio(draft: jax.Array, target: jax.Array) -> jax.Array:
  """Returns `target / draft`, infinite where nothing is drafted."""
  return jnp.where(draft > 0, target / draft, jnp.inf)


def plan(
  draft: jax.Array,
  target: jax.Array,
  num_drafts: jax.typing.ArrayLike,
  weights: jax.typing.ArrayLike = 1.0,
) -> Priorities:
  """Builds the priorities; a few passes over the vocabulary.

  Up to `NUM_ATOMS` tokens are atoms of their own, and the proposal is optimal.
  Of more tokens, each is split between the two atoms next to its ratio, which
  loses the square of their distance.

  Args:
    draft: `[V]` distribution of each draft.
    target: `[V]` distribution of the token.
    num_drafts: `k >= 1`, may be traced; or `[J]` numbers, one of which is drawn
      without regard to the tokens.
    weights: how likely each number is; what they lack of 1 is that there is no
      draft, and no proposal.
  """
  num = jnp.atleast_1d(jnp.asarray(num_drafts, draft.dtype))
  weights = jnp.atleast_1d(jnp.asarray(weights, draft.dtype))
  most = num.max()
  # No draft wins more than `k` times as often as it is made.
  ratios = jnp.minimum(ratio(draft, target), most)
  if draft.size <= NUM_ATOMS:
    order = jnp.argsort(ratios)
    atom = jnp.zeros_like(order).at[order].set(jnp.arange(draft.size))
    fraction = jnp.zeros_like(draft)
    mass, ratios = draft[order], ratios[order]
  else:
    atom, fraction, ratios = _grid(ratios, most)
    mass = _masses(draft, atom, fraction)
  above, total = jnp.cumsum(mass), chances.total(mass)
  # A factor, as XLA may turn one of two divisions into a multiplication: an
  # atom would then have more mass than all that are above it.
  scale = 1 / jnp.where(total > 0, total, 1.0)
  mass, above = mass * scale, above * scale
  behind = chances.behind(mass)

  def of(k):
    won, lost = chances.of_all(above, behind, k)
    return won, lost, _wins(mass, above, won, k)

  won, lost, wins = (
    (weights[:, None] * each).sum(axis=0) for each in jax.vmap(of)(num)
  )
  wanted = _wanted(mass, won, lost, weights.sum(), ratios, most)
  shift = mass * (wanted - wins)
  return Priorities(
    atom=atom.astype(jnp.int32),
    fraction=fraction,
    wins=wins,
    wanted=wanted,
    lacking=jnp.cumsum(jnp.maximum(shift, 0.0)),
    exceeding=jnp.cumsum(jnp.maximum(-shift, 0.0)),
  )


def partner(
  own: jax.Array, other: jax.Array, atom: jax.Array, uniform: jax.Array
) -> jax.Array:
  """Returns the atom that `other` has at a random place of an atom's share.

  Args:
    own: `[M]` cumulative, what the atoms of one kind lack or have to give.
    other: `[M]` likewise, of the other kind.
    atom: `[...]` int32, of the first kind.
    uniform: `[...]` in [0, 1), where in its share.
  """
  before = jnp.where(atom > 0, own[atom - 1], 0.0)
  place = before + uniform * (own[atom] - before)
  # Not step by step, each of which is several kernels on a GPU.
  found = jnp.searchsorted(other, place, side='right', method='compare_all')
  return jnp.minimum(found, other.shape[0] - 1)


def _grid(ratios, k):
  """Atom and fraction of each token, and the ratios of all atoms, 0 to `k`."""
  last = NUM_ATOMS - 1
  span = jnp.log1p(_SHARPNESS * k)
  place = jnp.log(1 + _SHARPNESS * ratios) * (last / span)
  atom = jnp.clip(place.astype(jnp.int32), 0, last - 1)
  fraction = jnp.clip(place - atom.astype(place.dtype), 0.0, 1.0)
  places = jnp.arange(NUM_ATOMS, dtype=place.dtype) * (span / last)
  return atom, fraction, jnp.expm1(places) / _SHARPNESS


def _masses(draft, atom, fraction):
  """Mass of each atom."""
  upper = draft * fraction  # What goes to the next atom.
  own, upper = bins.sums(jnp.stack([draft - upper, upper], axis=1), atom).T
  return own + jnp.append(jnp.zeros_like(upper[:1]), upper[:-1])


def _wins(mass, above, all_above, k):
  """Mean of `k s**(k-1)` over each atom's own ranks, without cancellation."""
  tiny = mass <= 1e-30
  mass = jnp.where(tiny, 1.0, mass)
  # At most 1, but for rounding: log1p of less than -1 would be NaN.
  share = jnp.minimum(mass / jnp.where(tiny, 1.0, above), 1.0)
  gain = chances.of_any(share, k)  # 1 - (below / above)**k
  return jnp.where(tiny, k * above ** (k - 1), all_above * gain / mass)


def _wanted(mass, won, lost, proposed, ratios, most):
  """The ratios of the best proposal: a floor inside `H`, a ceiling outside.

  `won` and `lost` are the chances that only atoms so far are drafted, and that
  others are, too; their sum is `proposed`, that any is.
  """
  target = jnp.where(mass > 0, mass * ratios, 0.0)
  values = jnp.cumsum(target) + lost
  cut = jnp.where(values.min() < proposed, jnp.argmin(values) + 1, 0)
  inside = jnp.arange(mass.size) < cut  # `H` is the first so many atoms.
  won, lost = (
    jnp.where(cut > 0, each[cut - 1], empty)
    for each, empty in ((won, 0.0), (lost, proposed))
  )
  short = won - jnp.where(inside, target, 0.0).sum()
  over = jnp.where(inside, 0.0, target).sum() - lost
  floor = _floor(mass, target, ratios, inside, short, most)
  # Lowering the last atoms is to raise the first ones of the mirrored order.
  mass, falling, lower, outside = (
    each[::-1] for each in (mass, -target, -ratios, ~inside)
  )
  ceiling = -_floor(mass, falling, lower, outside, over, 0.0)
  return jnp.where(
    inside, jnp.maximum(ratios, floor), jnp.minimum(ratios, ceiling)
  )


def _floor(mass, target, ratios, inside, short, highest):
  """What to raise ratios to, so that the atoms `inside` get `short` more.

  The first atoms are inside, and ratios ascend. The floor is counted from the
  last atom whose own ratio is below it. Where rounding picks a neighbour of
  that atom, little changes. Sums over all atoms below the floor would not bear
  it: XLA may compute a comparison once for each sum, with other roundings, and
  the sums would be of different atoms.
  """
  # What it takes to raise all before an atom to its own ratio.
  raised = ratios * chances.before(mass) - chances.before(target)
  num = (inside & (raised < short)).sum()
  last = jnp.maximum(num - 1, 0)
  flat = jnp.cumsum(mass)[last]
  step = (short - raised[last]) / jnp.where(flat > 0, flat, 1.0)
  # Where few drafts are flat their level is ill-conditioned, but only theirs:
  # it is kept between two ratios.
  following = jnp.where(num < inside.sum(), ratios[last + 1], highest)
  floor = jnp.clip(ratios[last] + step, ratios[last], following)
  return jnp.where(num > 0, floor, ratios[0])
