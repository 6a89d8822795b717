"""An optimal plan in closed form: the draft with the highest priority wins.

Each draft draws a priority from a distribution that depends on its token only,
and the draft with the highest priority is proposed. A maximal coupling of the
proposal with the target model's distribution then makes the output exact. The
acceptance rate is optimal for the following reason.

Let `s` be the rank of a draft's priority among all possible drafts, uniform in
[0, 1]. A draft with rank `s` wins with density `z(s) = k * s**(k-1)`, relative
to the draft distribution. So the distribution of the proposal is `r(y) =
draft(y) * E[z(s) | y]`. By Strassen's theorem, ranks with `E[z(s) | y] =
rho(y)` exist for a given function `rho` if and only if `rho` is no more spread
out than `z`, that is, `r(H) >= draft(H)**k` for every token set `H`. These are
exactly the constraints of the linear program.

It remains to choose `r`. Let `H` be the set of the program's minimum cut.
Among the proposals with the optimal acceptance rate, the least spread-out one
equals the target except for low ratios `target / draft` in `H`, which are
raised to a floor so that `r(H) = draft(H)**k`, and for high ratios outside `H`,
which are lowered to a ceiling. If any proposal can be realized, this one can.

The ranks are realized by swaps. Sort the atoms (tokens, or buckets of tokens)
by ratio, and give each atom an interval of ranks whose length is its draft
mass. Atoms that win too rarely in their own interval have a deficit, and atoms
that win too often have a surplus. Both are accumulated in the order of the
ratios. An atom with a deficit swaps ranks with the atoms whose surplus is at
the same position of the cumulative sums (the inverse transform martingale
coupling of Jourdain and Margheriti, 2020).

The number of drafts may be random as well, if it is independent of their
tokens. Then `z` is the mean over the number of drafts, which also ascends.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax.transport import bins
from specjax.transport import numerics

# Number of atoms for a large vocabulary. In a smaller one, each token is an
# atom.
NUM_ATOMS = bins.NUM_BINS
# The grid of ratios is about logarithmic above 1 / this, and linear below.
_SHARPNESS = 16.0


class Priorities(NamedTuple):
  """Distribution of the priorities, and the resulting proposal.

  A token belongs to its atom with probability `1 - fraction`, and to the next
  atom with probability `fraction`.
  """

  atom: jax.Array  # [V] int32
  fraction: jax.Array  # [V] in [0, 1]
  win_density: jax.Array  # [M] mean of z over the atom's own interval of ranks
  proposal_ratio: jax.Array  # [M] rho: mean of z over the ranks that it draws
  deficit_cdf: jax.Array  # [M] cumulative win probability that atoms lack
  surplus_cdf: jax.Array  # [M] cumulative win probability that atoms give away

  def distribution(self, draft: jax.Array) -> jax.Array:
    """Returns the probabilities `[V]` of the proposal.

    They sum to 1, or to the probability that there is at least one draft.
    """
    low = bins.gather(self.proposal_ratio, self.atom)
    high = bins.gather(self.proposal_ratio, self.next(self.atom))
    return draft * (low + self.fraction * (high - low))

  def next(self, atom: jax.Array) -> jax.Array:
    """Returns the index of the next atom; for the last one, its own index."""
    return jnp.minimum(atom + 1, self.win_density.shape[0] - 1)


def ratio(draft: jax.Array, target: jax.Array) -> jax.Array:
  """Returns `target / draft`, which is infinite where `draft` is 0."""
  return jnp.where(draft > 0, target / draft, jnp.inf)


def compute(
  draft: jax.Array,
  target: jax.Array,
  num_drafts: jax.typing.ArrayLike,
  num_probs: jax.typing.ArrayLike = 1.0,
) -> Priorities:
  """Computes the priorities, in a few passes over the vocabulary.

  Up to `NUM_ATOMS` tokens, each token is an atom, and the proposal is optimal.
  In a larger vocabulary, each token is split between the two atoms whose ratios
  enclose its own. The loss of acceptance is quadratic in the distance of atoms.

  Args:
    draft: `[V]` distribution of each draft.
    target: `[V]` distribution of the emitted token.
    num_drafts: `k >= 1`, may be traced; or `[J]` possible numbers of drafts, if
      the number is random and independent of the tokens.
    num_probs: probabilities of these numbers. If they sum to less than 1, there
      is no draft, and no proposal, with the remaining probability.
  """
  num = jnp.atleast_1d(jnp.asarray(num_drafts, draft.dtype))
  num_probs = jnp.atleast_1d(jnp.asarray(num_probs, draft.dtype))
  max_num = num.max()
  # A token is proposed at most `k` times as often as one draft is that token.
  ratios = jnp.minimum(ratio(draft, target), max_num)
  if draft.size <= NUM_ATOMS:
    order = jnp.argsort(ratios)
    atom = jnp.zeros_like(order).at[order].set(jnp.arange(draft.size))
    fraction = jnp.zeros_like(draft)
    mass, ratios = draft[order], ratios[order]
  else:
    atom, fraction, ratios = _grid(ratios, max_num)
    mass = _atom_masses(draft, atom, fraction)
  cdf, total = jnp.cumsum(mass), numerics.pairwise_sum(mass)
  # Multiply by the reciprocal: XLA may turn one of two divisions into a
  # multiplication, and the mass of an atom could then exceed the cumulative sum
  # that includes it.
  scale = 1 / jnp.where(total > 0, total, 1.0)
  mass, cdf = mass * scale, cdf * scale
  complement = numerics.sum_after(mass)

  def win_probs(k: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns `all_inside`, `any_outside` and `win_density` for `k` drafts."""
    all_inside, any_outside = numerics.all_succeed(cdf, complement, k)
    return all_inside, any_outside, _win_density(mass, cdf, all_inside, k)

  all_inside, any_outside, win_density = (
    (num_probs[:, None] * values).sum(axis=0)
    for values in jax.vmap(win_probs)(num)
  )
  proposal_ratio = _proposal_ratio(
    mass, all_inside, any_outside, num_probs.sum(), ratios, max_num
  )
  deficit = mass * (proposal_ratio - win_density)
  return Priorities(
    atom=atom.astype(jnp.int32),
    fraction=fraction,
    win_density=win_density,
    proposal_ratio=proposal_ratio,
    deficit_cdf=jnp.cumsum(jnp.maximum(deficit, 0.0)),
    surplus_cdf=jnp.cumsum(jnp.maximum(-deficit, 0.0)),
  )


def partner(
  cdf: jax.Array, other_cdf: jax.Array, atom: jax.Array, uniform: jax.Array
) -> jax.Array:
  """Returns a random atom of the other kind, with which `atom` swaps ranks.

  The two kinds are atoms with a deficit and atoms with a surplus. A position is
  drawn uniformly from the atom's step of its cumulative sum, and the partner is
  the atom whose step of the other cumulative sum contains this position.

  Args:
    cdf: `[M]` `deficit_cdf` if `atom` has a deficit, else `surplus_cdf`.
    other_cdf: `[M]` the other one.
    atom: `[...]` int32.
    uniform: `[...]` in [0, 1), the position relative to the step.
  """
  start = jnp.where(atom > 0, cdf[atom - 1], 0.0)
  position = start + uniform * (cdf[atom] - start)
  # Compare with all entries: each step of a binary search would be several
  # kernels on a GPU.
  index = jnp.searchsorted(
    other_cdf, position, side='right', method='compare_all'
  )
  return jnp.minimum(index, other_cdf.shape[0] - 1)


def _grid(
  ratios: jax.Array, max_ratio: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns the tokens' atoms and fractions, and the ratios of all atoms.

  The ratios of the atoms are a grid from 0 to `max_ratio`, evenly spaced in
  `log(1 + _SHARPNESS * ratio)`.
  """
  last = NUM_ATOMS - 1
  span = jnp.log1p(_SHARPNESS * max_ratio)
  position = jnp.log(1 + _SHARPNESS * ratios) * (last / span)
  atom = jnp.clip(position.astype(jnp.int32), 0, last - 1)
  fraction = jnp.clip(position - atom.astype(position.dtype), 0.0, 1.0)
  grid = jnp.arange(NUM_ATOMS, dtype=position.dtype) * (span / last)
  return atom, fraction, jnp.expm1(grid) / _SHARPNESS


def _atom_masses(
  draft: jax.Array, atom: jax.Array, fraction: jax.Array
) -> jax.Array:
  """Returns `[M]`, the draft mass of each atom."""
  upper = draft * fraction  # The mass that goes to the next atom.
  lower, upper = bins.bin_sums(
    jnp.stack([draft - upper, upper], axis=1), atom
  ).T
  return lower + jnp.append(jnp.zeros_like(upper[:1]), upper[:-1])


def _win_density(
  mass: jax.Array, cdf: jax.Array, all_inside: jax.Array, k: jax.Array
) -> jax.Array:
  """Returns `[M]`, the mean of `k * s**(k-1)` over each atom's own ranks.

  The mean is `(cdf**k - (cdf - mass)**k) / mass`, written as a product, since
  the difference would cancel. `all_inside` is `cdf**k`.
  """
  tiny = mass <= 1e-30
  mass = jnp.where(tiny, 1.0, mass)
  # Rounding may make the share exceed 1, and log1p of less than -1 is NaN.
  share = jnp.minimum(mass / jnp.where(tiny, 1.0, cdf), 1.0)
  gain = numerics.any_success(share, k)  # 1 - ((cdf - mass) / cdf)**k
  return jnp.where(tiny, k * cdf ** (k - 1), all_inside * gain / mass)


def _proposal_ratio(
  mass: jax.Array,
  all_inside: jax.Array,
  any_outside: jax.Array,
  total: jax.Array,
  ratios: jax.Array,
  max_ratio: jax.Array,
) -> jax.Array:
  """Returns `[M]` `proposal / draft`: a floor inside `H`, a ceiling outside.

  Args:
    mass: `[M]` draft mass of the atoms.
    all_inside: `[M]`, how likely all drafts are among the atoms up to this one.
    any_outside: `[M]`, how likely some draft is not among them.
    total: probability that there is a draft; the sum of the two above.
    ratios: `[M]` `target / draft`, ascending.
    max_ratio: largest possible ratio.
  """
  target = jnp.where(mass > 0, mass * ratios, 0.0)
  cuts = jnp.cumsum(target) + any_outside
  # `H` consists of the first `size` atoms.
  size = jnp.where(cuts.min() < total, jnp.argmin(cuts) + 1, 0)
  inside = jnp.arange(mass.size) < size
  all_inside, any_outside = (
    jnp.where(size > 0, probs[size - 1], empty)
    for probs, empty in ((all_inside, 0.0), (any_outside, total))
  )
  deficit = all_inside - jnp.where(inside, target, 0.0).sum()
  surplus = jnp.where(inside, 0.0, target).sum() - any_outside
  floor = _floor(mass, target, ratios, inside, deficit, max_ratio)
  # In reversed order and with opposite signs, lowering the last ratios to a
  # ceiling is the same as raising the first ones to a floor.
  mass, falling, lower, outside = (
    values[::-1] for values in (mass, -target, -ratios, ~inside)
  )
  ceiling = -_floor(mass, falling, lower, outside, surplus, 0.0)
  return jnp.where(
    inside, jnp.maximum(ratios, floor), jnp.minimum(ratios, ceiling)
  )


def _floor(
  mass: jax.Array,
  target: jax.Array,
  ratios: jax.Array,
  inside: jax.Array,
  deficit: jax.Array,
  max_floor: jax.Array | float,
) -> jax.Array:
  """Returns the floor that gives the atoms `inside` the mass they lack.

  Raising all lower ratios of these atoms to the floor adds `deficit` to their
  mass. The atoms inside come first, and ratios ascend.

  The floor is computed relative to the last atom whose ratio is below it. If
  rounding selects a neighbor of that atom, the result changes little. Separate
  sums over all atoms below the floor would not be as robust: XLA may evaluate
  the comparison once per sum, with different rounding, and the sums would be
  over different atoms.
  """
  # The mass that raising all earlier atoms to an atom's own ratio adds.
  added = ratios * numerics.sum_before(mass) - numerics.sum_before(target)
  num_raised = (inside & (added < deficit)).sum()
  last = jnp.maximum(num_raised - 1, 0)
  raised_mass = jnp.cumsum(mass)[last]
  step = (deficit - added[last]) / jnp.where(raised_mass > 0, raised_mass, 1.0)
  # If the raised mass is small, the floor is ill-conditioned. It is clipped to
  # the interval between two ratios, and affects only that small mass.
  next_ratio = jnp.where(num_raised < inside.sum(), ratios[last + 1], max_floor)
  floor = jnp.clip(ratios[last] + step, ratios[last], next_ratio)
  return jnp.where(num_raised > 0, floor, ratios[0])
