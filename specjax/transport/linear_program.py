"""The optimal transport with membership cost, as a linear program.

SpecTr (Sun et al. 2023), equation (4). This is the reference for small
vocabularies, since its size grows with `V**k`. `optimal_acceptance` computes
the optimum without it.
"""

import itertools
from typing import NamedTuple

import numpy as np
from numpy import typing as npt
from scipy import optimize
from scipy import sparse

from specjax.transport import inputs

# Largest number of rows of a plan, `V**k`.
MAX_TUPLES = 100_000
# The solver drops values below an absolute tolerance, so they are scaled up.
_SCALE = 1e3


class Plan(NamedTuple):
  """A joint distribution of the drafts and the emitted token."""

  acceptance: float  # probability that the token is one of the drafts
  plan: np.ndarray  # [V**k, V] float64; rows in the order of `np.ndindex`


def solve_linear_program(
  draft: npt.ArrayLike,
  target: npt.ArrayLike,
  num_drafts: int,
  *,
  distinct: bool = False,
) -> Plan:
  """Finds a plan with the highest acceptance rate.

  The order of the drafts does not matter, so the program has one row for each
  multiset of drafts. The row is then divided among the orders of its multiset.

  Args:
    draft: `[V]` distribution of each of the i.i.d. drafts.
    target: `[V]` distribution of the emitted token.
    num_drafts: `k`.
    distinct: whether the drafts are drawn without replacement; `draft` is then
      the distribution of the first one.

  Returns:
    The optimal acceptance rate and a plan. Its rows sum to the distribution of
    the drafts, its columns to `target`.

  Raises:
    ValueError: `draft` or `target` is not a distribution, `k < 1`, `k` is more
      than can be drawn without replacement, or `V**k` exceeds `MAX_TUPLES`.
  """
  inputs.check(draft, target, num_drafts, distinct)
  draft, target = _normalized(draft), _normalized(target)
  size = draft.size
  check_size(size, num_drafts)
  tuples = list(itertools.product(range(size), repeat=num_drafts))
  tuple_probs = _tuple_probs(draft, np.array(tuples), distinct)
  multisets = sorted({tuple(sorted(drafts)) for drafts in tuples})
  index = {multiset: row for row, multiset in enumerate(multisets)}
  row_index = np.array([index[tuple(sorted(drafts))] for drafts in tuples])
  mass = np.bincount(row_index, tuple_probs)
  member = np.zeros((len(multisets), size))
  np.put_along_axis(member, np.array(multisets), 1.0, axis=1)
  rows = sparse.kron(sparse.eye(len(multisets)), np.ones((1, size)))
  columns = sparse.kron(np.ones((1, len(multisets))), sparse.eye(size))
  # One equality follows from the others. Dropping the largest one puts the
  # rounding errors there.
  kept = np.arange(len(multisets) + size) != np.argmax(mass)
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
  shares = tuple_probs / np.where(mass > 0, mass, 1.0)[row_index]
  return Plan(
    acceptance=float((plan * member).sum()),
    plan=plan[row_index] * shares[:, None],
  )


def _tuple_probs(
  draft: np.ndarray, tuples: np.ndarray, distinct: bool
) -> np.ndarray:
  """Returns `[V**k]`, the probability of each tuple of drafts, in its order."""
  drawn = draft[tuples]
  if not distinct:
    return drawn.prod(axis=1)
  ordered = np.sort(tuples, axis=1)
  all_different = (np.diff(ordered, axis=1) > 0).all(axis=1)
  remaining = 1 - np.cumsum(drawn, axis=1) + drawn
  conditional = drawn / np.where(remaining > 1e-12, remaining, np.inf)
  return np.where(all_different, conditional.prod(axis=1), 0.0)


def _normalized(probs: npt.ArrayLike) -> np.ndarray:
  """Returns float64 probabilities, scaled to a sum of 1."""
  values = np.asarray(probs, np.float64)
  return values / values.sum()


def check_size(vocab_size: int, num_drafts: int) -> None:
  """Raises a `ValueError` if `V**k` exceeds `MAX_TUPLES`."""
  if vocab_size**num_drafts > MAX_TUPLES:
    raise ValueError(
      f'A linear program over V**k = {vocab_size}**{num_drafts} draft tuples '
      f'exceeds {MAX_TUPLES}; use optimal_acceptance, or the coupling otm, '
      'which have no such limit.'
    )
