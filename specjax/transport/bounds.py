"""Bounds of the optimal acceptance (SpecTr)."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from numpy import typing as npt

from specjax.transport import chances
from specjax.transport import inputs

# The most terms of Lemma 3, `2**V` token sets times multisets of drafts.
MAX_TERMS = 10_000_000


def acceptance_bounds(
  draft: npt.ArrayLike, target: npt.ArrayLike, num_drafts: int
) -> tuple[float, float]:
  """Returns the bounds of Lemma 3, by enumeration of all token sets.

  With `u` the minimum over token sets `O` of

    sum over y in O of min(target(y), 1 - (1 - draft(y))**k)
    + sum over drafts x of min(draft**k(x), target of x's tokens not in O),

  the optimal acceptance lies in `[(1 - (1 - 1/k)**k) * u, u]`.

  Raises:
    ValueError: no distributions, `k < 1`, or too many terms.
  """
  inputs.check(draft, target, num_drafts)
  draft, target = (np.asarray(probs, np.float64) for probs in (draft, target))
  size = draft.size
  num_multisets = math.comb(size + num_drafts - 1, num_drafts)
  if 2**size * num_multisets > MAX_TERMS:
    raise ValueError(
      f'Lemma 3 over 2**{size} token sets and {num_multisets} multisets of '
      f'drafts exceeds {MAX_TERMS} terms; use union_bound.'
    )
  members, orders, chances = [], [], []
  for each in itertools.combinations_with_replacement(range(size), num_drafts):
    repeats = np.bincount(each, minlength=size)
    members.append(repeats > 0)
    orders.append(
      math.factorial(num_drafts) / math.prod(map(math.factorial, repeats))
    )
    chances.append(np.prod(draft**repeats))
  inside = np.array(list(itertools.product([False, True], repeat=size)))
  covered = inside @ np.minimum(target, 1 - (1 - draft) ** num_drafts)
  outside = (~inside * target) @ np.array(members).T  # [2**V, multisets]
  rest = np.minimum(np.array(chances), outside) @ np.array(orders)
  upper = float((covered + rest).min())
  return (1 - (1 - 1 / num_drafts) ** num_drafts) * upper, upper


def union_bound(
  draft: jax.typing.ArrayLike,
  target: jax.typing.ArrayLike,
  num_drafts: jax.typing.ArrayLike,
) -> jax.Array:
  """Returns the upper bound of Lemma 3 at the set of all tokens.

  A token is accepted at most as often as it is drafted at all; for any
  vocabulary. `num_drafts` may be traced.
  """
  inputs.check(draft, target, num_drafts)
  draft, target = inputs.normalised(draft, target)
  drafted = chances.of_any(draft, num_drafts)
  return chances.total(jnp.minimum(target, drafted))
