"""The best verification of several chains, as a linear program.

One of the prefixes that `K` chains have is kept. Let `A(x)` be the chance that
what is kept begins with `x`. Nothing that is kept may be more likely than the
target makes it, given what was kept before: `A(x t) <= A(x) target(t | x)`, and
that is enough, since the next token may be drawn from what the right side has
more. Of one chain, block verification (Sun et al. 2024) is the solution; of
chains of one token, SpecTr's equation (4).
"""

import itertools
import math

import numpy as np
from numpy import typing as npt
from scipy import optimize
from scipy import sparse

from specjax.theory import transition_tables

# The most sets of chains that are enumerated.
MAX_SETS = 20_000


def best_accepted(
  target: npt.ArrayLike,
  draft: npt.ArrayLike,
  num_chains: int,
  length: int,
  start: int = 0,
) -> float:
  """Returns the most tokens that any lossless rule accepts, in expectation.

  Args:
    target: `[V, V]` transition probabilities of the target.
    draft: `[V, V]` of the drafter.
    num_chains: `K`, drafted i.i.d.
    length: `L`, tokens of each chain.
    start: the token before them.

  Raises:
    ValueError: an argument is out of range, or there are more than `MAX_SETS`
      sets of chains.
  """
  target, draft = transition_tables.normalize_stationary(
    target, draft, num_chains, length, start
  )
  chains = list(itertools.product(range(len(target)), repeat=length))
  num_sets = math.comb(len(chains) + num_chains - 1, num_chains)
  if num_sets > MAX_SETS:
    raise ValueError(
      f'{num_chains} chains of {length} tokens, of {len(target)} each, are '
      f'{num_sets} sets, of which at most {MAX_SETS} are enumerated.'
    )
  sets = list(itertools.combinations_with_replacement(chains, num_chains))
  chances = {each: _chance(draft, start, each) for each in chains}
  number = {
    prefix: i
    for i, prefix in enumerate(
      prefix
      for num in range(1, length + 1)
      for prefix in itertools.product(range(len(target)), repeat=num)
    )
  }
  kept, owners, begins = _choices(sets, number)
  allowed, most = _allowed(target, start, number)
  solution = optimize.linprog(
    [-len(each) for each in kept],
    A_ub=allowed @ begins,
    b_ub=most,
    A_eq=owners,
    b_eq=[_chance_of_set(each, chances) for each in sets],
    method='highs',
  )
  if not solution.success:
    raise ValueError(f'The linear program was not solved: {solution.message}')
  return -float(solution.fun)


def _choices(sets, number):
  """What may be kept of each set, whose it is, and how it begins.

  Returns:
    A list of `C` prefixes, a sparse `[sets, C]` and a sparse `[prefixes, C]`.
  """
  kept: list[tuple[int, ...]] = []
  owner: list[int] = []
  rows: list[int] = []
  columns: list[int] = []
  for index, chains in enumerate(sets):
    length = len(chains[0])
    for prefix in {chain[:n] for chain in chains for n in range(length + 1)}:
      begins = [number[prefix[:n]] for n in range(1, len(prefix) + 1)]
      rows.extend(begins)
      columns.extend([len(kept)] * len(begins))
      kept.append(prefix)
      owner.append(index)
  owners = _ones(owner, np.arange(len(kept)), (len(sets), len(kept)))
  return kept, owners, _ones(rows, columns, (len(number), len(kept)))


def _ones(rows, columns, shape):
  """A sparse matrix that is 1 at these places."""
  return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)


def _allowed(target, start, number):
  """Of each prefix `x t`: `A(x t) - A(x) target(t | x)`, and what it may be.

  At the root, `A(x)` is 1: the right side is a number.
  """
  matrix, most = np.eye(len(number)), np.zeros(len(number))
  for prefix, i in number.items():
    chance = target[(start, *prefix)[-2:]]
    if len(prefix) == 1:
      most[i] = chance
    else:
      matrix[i, number[prefix[:-1]]] = -chance
  return sparse.csr_array(matrix), most


def _chance(draft, start, chain):
  """How likely a chain is drafted."""
  return math.prod(draft[pair] for pair in itertools.pairwise((start, *chain)))


def _chance_of_set(chains, chances):
  """How likely the chains of a set are drafted, in any order."""
  repeats = [chains.count(each) for each in dict.fromkeys(chains)]
  orders = math.factorial(len(chains)) / math.prod(map(math.factorial, repeats))
  return orders * math.prod(chances[each] for each in chains)
