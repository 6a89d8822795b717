"""Bounds of the optimal acceptance rate (SpecTr)."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from numpy import typing as npt

from specjax.transport import inputs
from specjax.transport import numerics

# Largest number of terms in Lemma 3: `2**V` token sets times the number of
# multisets of drafts.
MAX_TERMS = 10_000_000


def acceptance_bounds(
  draft: npt.ArrayLike, target: npt.ArrayLike, num_drafts: int
) -> tuple[float, float]:
  """Returns the lower and the upper bound of Lemma 3.

  Let `u` be the minimum over token sets `O` of

    sum over y in O of min(target(y), 1 - (1 - draft(y))**k)
    + sum over draft tuples x of min(draft**k(x), target(tokens of x not in O)).

  The optimal acceptance rate lies in `[(1 - (1 - 1/k)**k) * u, u]`. The minimum
  is found by enumerating all token sets.

  Raises:
    ValueError: `draft` or `target` is not a distribution, `k < 1`, or there are
      more than `MAX_TERMS` terms.
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
  members, num_orders, tuple_probs = [], [], []
  multisets = itertools.combinations_with_replacement(range(size), num_drafts)
  for multiset in multisets:
    repeats = np.bincount(multiset, minlength=size)
    members.append(repeats > 0)
    num_orders.append(
      math.factorial(num_drafts) / math.prod(map(math.factorial, repeats))
    )
    tuple_probs.append(np.prod(draft**repeats))
  inside = np.array(list(itertools.product([False, True], repeat=size)))
  inside_sum = inside @ np.minimum(target, 1 - (1 - draft) ** num_drafts)
  outside = (~inside * target) @ np.array(members).T  # [2**V, multisets]
  outside_sum = np.minimum(np.array(tuple_probs), outside) @ np.array(
    num_orders
  )
  upper = float((inside_sum + outside_sum).min())
  return (1 - (1 - 1 / num_drafts) ** num_drafts) * upper, upper


def union_bound(
  draft: jax.typing.ArrayLike,
  target: jax.typing.ArrayLike,
  num_drafts: jax.typing.ArrayLike,
) -> jax.Array:
  """Returns the upper bound of Lemma 3 for the set `O` of all tokens.

  A token is accepted at most as often as at least one draft is that token. The
  vocabulary may be of any size, and `num_drafts` may be traced.
  """
  inputs.check(draft, target, num_drafts)
  draft, target = inputs.normalized(draft, target)
  drafted = numerics.any_success(draft, num_drafts)
  return numerics.pairwise_sum(jnp.minimum(target, drafted))
