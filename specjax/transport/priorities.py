"""An optimal plan in closed form: every draft gets a priority, the best wins.

Each draft draws a priority from a law that depends on its token alone, and the
one of highest priority is proposed; a maximal coupling of the proposal with the
target then makes the output exact. This is optimal:

Let `s` be the rank of a draft's priority among all drafts, uniform in [0, 1].
It wins with chance density `z(s) = k s**(k-1)`, so the proposal's law is
`r(y) = draft(y) * E[z(s) | y]`. By Strassen's theorem there are laws of ranks
with `E[z(s) | y] = rho(y)` if and only if `rho` is no more spread than `z`:
if `r(H) >= draft(H)**k` for every token set `H`. That is all that the linear
program asks for, too. Let `H` be the set of its minimum cut. Of all laws of the
best acceptance the least spread is the target, but for low ratios `target /
draft` in `H`, which are raised to a floor until `r(H) = draft(H)**k`, and for
high ones elsewhere, which are lowered to a ceiling: it can be had whenever any
can.

The ranks come from swaps. Sort atoms (tokens, or buckets of tokens) by ratio,
and give each the interval of ranks that is as long as its draft mass. Atoms
that win too seldom there, in order, swap some of it with those that win too
often, in order; how much follows from what either lacks (the inverse transform
martingale coupling of Jourdain and Margheriti, 2020).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

# Atoms that a large vocabulary is put into; smaller ones are not.
NUM_ATOMS = 256
# Ratios are told apart finely, relative to their size, above 1 / this.
_SHARPNESS = 16.0


class Priorities(NamedTuple):
  """A law of priorities, and of the proposal that they make.

  A token is its atom, or with chance `fraction` the next one.
  """

  atom: jax.Array  # [V] int32
  fraction: jax.Array  # [V] in [0, 1]
  wins: jax.Array  # [M] z, a draft's chance to win in its own ranks, times k
  wanted: jax.Array  # [M] rho, the same over all ranks that it may draw
  lacking: jax.Array  # [M] cumulative chance that atoms lack ...
  exceeding: jax.Array  # [M] ... and that they have to give away

  def law(self, draft: jax.Array) -> jax.Array:
    """Returns the law `[V]` of the proposal, which sums to 1."""
    low, high = self.wanted[self.atom], self.wanted[self.next(self.atom)]
    return draft * (low + self.fraction * (high - low))

  def next(self, atom: jax.Array) -> jax.Array:
    return jnp.minimum(atom + 1, self.wins.shape[0] - 1)


def ratio(draft: jax.Array, target: jax.Array) -> jax.Array:
  """Returns `target / draft`, infinite where nothing is drafted."""
  return jnp.where(draft > 0, target / draft, jnp.inf)


def plan(
  draft: jax.Array, target: jax.Array, num_drafts: jax.Array | int
) -> Priorities:
  """Builds the priorities; a few passes over the vocabulary.

  Up to `NUM_ATOMS` tokens are atoms of their own, and the proposal is optimal.
  Of more tokens, each is split between the two atoms next to its ratio, which
  loses the square of their distance.

  Args:
    draft: `[V]` law of each draft.
    target: `[V]` law of the token.
    num_drafts: `k >= 1`, may be traced.
  """
  k = jnp.asarray(num_drafts, draft.dtype)
  ratios = ratio(draft, target)
  if draft.size <= NUM_ATOMS:
    order = jnp.argsort(ratios)
    atom = jnp.zeros_like(order).at[order].set(jnp.arange(draft.size))
    fraction = jnp.zeros_like(draft)
    mass, ratios = draft[order], ratios[order]
  else:
    atom, fraction, ratios = _grid(ratios, k)
    # On GPU the order of the additions, and with it the last bit, may vary.
    mass = jnp.zeros(NUM_ATOMS, draft.dtype)
    mass = mass.at[atom].add(draft * (1 - fraction))
    mass = mass.at[atom + 1].add(draft * fraction)
  mass /= mass.sum()  # Thousands of tokens were added up.
  below = jnp.cumsum(mass) - mass
  wins = _wins(mass, below, k)
  wanted = _wanted(mass, ratios, k)
  shift = mass * (wanted - wins)
  return Priorities(
    atom=atom.astype(jnp.int32),
    fraction=fraction,
    wins=wins,
    wanted=wanted,
    lacking=jnp.cumsum(jnp.maximum(shift, 0.0)),
    exceeding=jnp.cumsum(jnp.maximum(-shift, 0.0)),
  )


def _grid(ratios, k):
  """Atom and fraction of each token, and the ratios of all atoms.

  Atoms reach from 0 to `k`: no draft wins `k` times as often as it is made.
  """
  last = NUM_ATOMS - 1
  scale = last / jnp.log1p(_SHARPNESS * k)
  place = jnp.log(1 + _SHARPNESS * jnp.minimum(ratios, k)) * scale
  atom = jnp.clip(place.astype(jnp.int32), 0, last - 1)
  fraction = jnp.clip(place - atom, 0.0, 1.0)
  return atom, fraction, jnp.expm1(jnp.arange(NUM_ATOMS) / scale) / _SHARPNESS


def _wins(mass, below, k):
  """Mean of `k s**(k-1)` over each atom's own ranks, without cancellation."""
  above = below + mass
  gain = -jnp.expm1(k * jnp.log1p(-mass / above))  # 1 - (below / above)**k
  tiny = mass <= 1e-30
  exact = above**k * gain / jnp.where(tiny, 1.0, mass)
  return jnp.where(tiny, k * above ** (k - 1), exact)


def _wanted(mass, ratios, k):
  """The ratios of the best proposal: a floor inside `H`, a ceiling outside."""
  targets = jnp.where(mass > 0, mass * ratios, 0.0)
  drafts = jnp.cumsum(mass)
  slack = jnp.cumsum(targets) - drafts**k
  cut = jnp.where(slack.min() < 0, jnp.argmin(slack) + 1, 0)
  inside = jnp.arange(mass.size) < cut  # `H` is the first so many atoms.
  won = jnp.where(cut > 0, drafts[cut - 1], 0.0) ** k

  def clip(floor, ceiling):
    return jnp.where(
      inside, jnp.maximum(ratios, floor), jnp.minimum(ratios, ceiling)
    )

  def halve(_, bracket):
    low, high = bracket
    middle = (low + high) / 2
    law = mass * clip(*middle)
    sums = jnp.stack(
      [jnp.where(inside, law, 0).sum(), jnp.where(inside, 0, law).sum()]
    )
    above = sums > jnp.stack([won, 1 - won])
    return jnp.where(above, low, middle), jnp.where(above, middle, high)

  bracket = jnp.zeros(2, mass.dtype), jnp.full(2, k, mass.dtype)
  low, high = jax.lax.fori_loop(0, 30, halve, bracket)
  return clip(low[0], high[1])
