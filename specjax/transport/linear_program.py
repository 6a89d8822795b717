"""The optimal transport with membership cost, as a linear program.

SpecTr (Sun et al. 2023), equation (4). The reference for small vocabularies:
its size grows with `V**k`, and `optimal_acceptance` needs none of it.
"""

import itertools
from typing import NamedTuple

import numpy as np
from numpy import typing as npt
from scipy import optimize
from scipy import sparse

from specjax.transport import inputs

# The most rows of a plan, `V**k`.
MAX_TUPLES = 100_000
# The solver drops what is below its tolerance, however small all values are.
_SCALE = 1e3


class Plan(NamedTuple):
  """A joint distribution of the drafts and of the token that is put out."""

  acceptance: float  # chance that the token is one of the drafts
  plan: np.ndarray  # [V**k, V] float64; rows in the order of `np.ndindex`


def solve_linear_program(
  draft: npt.ArrayLike,
  target: npt.ArrayLike,
  num_drafts: int,
  *,
  distinct: bool = False,
) -> Plan:
  """Finds the plan that accepts most often.

  Their order does not matter, so the program runs over sets of drafts, and each
  one's row is shared among its orders.

  Args:
    draft: `[V]` distribution of each of the i.i.d. drafts.
    target: `[V]` distribution of the token.
    num_drafts: `k`.
    distinct: drafts are drawn without replacement instead, `draft` is that of
      the first one; of at most so many tokens as have some of it.

  Returns:
    The optimal acceptance and a plan: its rows sum to the drafts'
    distribution, its columns to `target`.

  Raises:
    ValueError: no distributions, `k < 1`, or `V**k` exceeds `MAX_TUPLES`.
  """
  inputs.check(draft, target, num_drafts)
  draft, target = _normalised(draft), _normalised(target)
  size = draft.size
  check_size(size, num_drafts)
  tuples = list(itertools.product(range(size), repeat=num_drafts))
  chances = _chances(draft, np.array(tuples), distinct)
  sets = sorted({tuple(sorted(each)) for each in tuples})
  index = {each: row for row, each in enumerate(sets)}
  order = np.array([index[tuple(sorted(each))] for each in tuples])
  mass = np.bincount(order, chances)
  member = np.zeros((len(sets), size))
  np.put_along_axis(member, np.array(sets), 1.0, axis=1)
  rows = sparse.kron(sparse.eye(len(sets)), np.ones((1, size)))
  columns = sparse.kron(np.ones((1, len(sets))), sparse.eye(size))
  # One equality follows from the others: the largest, which takes the rounding.
  kept = np.arange(len(sets) + size) != np.argmax(mass)
  solution = optimize.linprog(
    1 - member.ravel(),
    A_eq=sparse.vstack([rows, columns]).tocsr()[kept],
    b_eq=_SCALE * np.concatenate([mass, target])[kept],
    method='highs',
    options={'primal_feasibility_tolerance': 1e-10},
  )
  if not solution.success:
    raise ValueError(f'The linear program was not solved: {solution.message}')
  plan = solution.x.reshape(member.shape) / _SCALE
  shares = chances / np.where(mass > 0, mass, 1.0)[order]
  return Plan(
    acceptance=float((plan * member).sum()),
    plan=plan[order] * shares[:, None],
  )


def _chances(draft, tuples, distinct):
  """`[V**k]` how likely drafts are drawn in each order."""
  drawn = draft[tuples]
  if not distinct:
    return drawn.prod(axis=1)
  ordered = np.sort(tuples, axis=1)
  new = (np.diff(ordered, axis=1) > 0).all(axis=1)
  left = 1 - np.cumsum(drawn, axis=1) + drawn
  return np.where(
    new, (drawn / np.where(left > 1e-12, left, np.inf)).prod(axis=1), 0.0
  )


def _normalised(probs: npt.ArrayLike) -> np.ndarray:
  values = np.asarray(probs, np.float64)
  return values / values.sum()


def check_size(vocab_size: int, num_drafts: int) -> None:
  """Raises a `ValueError` where the program would be too large."""
  if vocab_size**num_drafts > MAX_TUPLES:
    raise ValueError(
      f'A linear program over V**k = {vocab_size}**{num_drafts} draft tuples '
      f'exceeds {MAX_TUPLES}; use optimal_acceptance, or the coupling otm, '
      'which have no such limit.'
    )
