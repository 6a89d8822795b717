"""The optimal verification of several chains, as a linear program.

A verifier accepts one prefix of the `K` drafted chains. Let `A(x)` be the
probability that the accepted prefix begins with `x`. A lossless verifier cannot
accept a token more often than the target model emits it: `A(x t) <= A(x) *
target(t | x)`. This condition is also sufficient, because the correction can be
drawn from the difference of the two sides. For one chain, block verification
(Sun et al. 2024) solves the program; for chains of one token, the program is
SpecTr's equation (4).

If later rounds may make up for it, a token may be accepted more often: greedy
block verification (Sun et al. 2024) samples the rest of a block from what the
accepted prefixes leave of the target's distribution. Then the condition is that
no prefix is accepted more often than the target model emits it as a whole, and
the program is the optimal transport between sets of chains and blocks.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
import math

import numpy as np
from numpy import typing as npt
from scipy import optimize
from scipy import sparse

from specjax.theory import transition_tables

# Largest number of multisets of chains that are enumerated.
MAX_SETS = 20_000

_Prefix = tuple[int, ...]  # Tokens of a chain, or its first ones.
_ChainSet = tuple[_Prefix, ...]  # `K` chains, sorted; some may be equal.
# From the target, the first token and an index of prefixes: a matrix, and upper
# bounds of its product with `A`.
_Constraints = Callable[
  [np.ndarray, int, Mapping[_Prefix, int]], tuple[sparse.csr_array, np.ndarray]
]


def best_accepted(
  target: npt.ArrayLike,
  draft: npt.ArrayLike,
  num_chains: int,
  length: int,
  start: int = 0,
) -> float:
  """Returns the largest expected number of accepted tokens in one round.

  The maximum is over all lossless verifiers after which later rounds sample
  from the target itself.

  Args:
    target: `[V, V]` transition probabilities of the target model.
    draft: `[V, V]` transition probabilities of the draft model.
    num_chains: `K`, number of chains, which are drafted i.i.d.
    length: `L`, tokens in each chain.
    start: last token of the context.

  Raises:
    ValueError: an argument is out of range, or there are more than `MAX_SETS`
      multisets of chains.
  """
  return _maximize(
    target, draft, num_chains, length, start, _lossless_constraints
  )


def best_transport(
  target: npt.ArrayLike,
  draft: npt.ArrayLike,
  num_chains: int,
  length: int,
  start: int = 0,
) -> float:
  """Returns the largest expected number of tokens shared with a target block.

  The maximum is over all couplings of the chains with a block of `L` tokens
  that the target emits; what counts is the longest prefix of the block that
  begins a chain. No lossless verifier accepts more in a round that follows no
  other. A verifier that accepts more than `best_accepted` must sample the rest
  of the block, in later rounds, from another distribution than the target's.

  Args:
    target: `[V, V]` transition probabilities of the target model.
    draft: `[V, V]` transition probabilities of the draft model.
    num_chains: `K`, number of chains, which are drafted i.i.d.
    length: `L`, tokens in each chain and in the block.
    start: last token of the context.

  Raises:
    ValueError: See `best_accepted`.
  """
  return _maximize(
    target, draft, num_chains, length, start, _transport_constraints
  )


def _maximize(
  target: npt.ArrayLike,
  draft: npt.ArrayLike,
  num_chains: int,
  length: int,
  start: int,
  constraints: _Constraints,
) -> float:
  """Returns the largest expected length of accepted prefixes."""
  target, draft = transition_tables.normalize_stationary(
    target, draft, num_chains, length, start
  )
  num_sets = math.comb(len(target) ** length + num_chains - 1, num_chains)
  if num_sets > MAX_SETS:
    raise ValueError(
      f'{num_chains} chains of {length} tokens from a vocabulary of '
      f'{len(target)} form {num_sets} multisets, which exceeds {MAX_SETS}.'
    )
  chains = list(itertools.product(range(len(target)), repeat=length))
  sets = list(itertools.combinations_with_replacement(chains, num_chains))
  chain_probs = {chain: _chain_prob(draft, start, chain) for chain in chains}
  prefix_index = {
    prefix: i
    for i, prefix in enumerate(
      prefix
      for num in range(1, length + 1)
      for prefix in itertools.product(range(len(target)), repeat=num)
    )
  }
  # One variable per set and prefix: the probability that the set is drafted and
  # the prefix is accepted.
  accepted, set_matrix, begin_matrix = _variables(sets, prefix_index)
  matrix, bounds = constraints(target, start, prefix_index)
  solution = optimize.linprog(
    [-len(prefix) for prefix in accepted],
    A_ub=matrix @ begin_matrix,
    b_ub=bounds,
    A_eq=set_matrix,
    b_eq=[_set_prob(chain_set, chain_probs) for chain_set in sets],
    method='highs',
  )
  if not solution.success:
    raise ValueError(f'The linear program was not solved: {solution.message}')
  return -float(solution.fun)


def _variables(
  sets: Sequence[_ChainSet], prefix_index: Mapping[_Prefix, int]
) -> tuple[list[_Prefix], sparse.csr_array, sparse.csr_array]:
  """Returns the variables of the program: a set and a prefix of its chains.

  Returns:
    The prefixes of the `C` variables, and two sparse 0/1 matrices: `[sets, C]`
    marks the set of each variable, and `[prefixes, C]` marks all prefixes with
    which the variable's prefix begins.
  """
  accepted: list[_Prefix] = []
  set_numbers: list[int] = []
  rows: list[int] = []
  columns: list[int] = []
  for set_number, chains in enumerate(sets):
    length = len(chains[0])
    for prefix in {chain[:n] for chain in chains for n in range(length + 1)}:
      begins = [prefix_index[prefix[:n]] for n in range(1, len(prefix) + 1)]
      rows.extend(begins)
      columns.extend([len(accepted)] * len(begins))
      accepted.append(prefix)
      set_numbers.append(set_number)
  num = len(accepted)
  set_matrix = _sparse_ones(set_numbers, np.arange(num), (len(sets), num))
  begin_matrix = _sparse_ones(rows, columns, (len(prefix_index), num))
  return accepted, set_matrix, begin_matrix


def _sparse_ones(
  rows: Sequence[int] | np.ndarray,
  columns: Sequence[int] | np.ndarray,
  shape: tuple[int, int],
) -> sparse.csr_array:
  """Returns a sparse matrix with ones at the given rows and columns."""
  return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)


def _lossless_constraints(
  target: np.ndarray, start: int, prefix_index: Mapping[_Prefix, int]
) -> tuple[sparse.csr_array, np.ndarray]:
  """Returns a matrix and upper bounds of its product with `A`.

  The row of prefix `x t` is `A(x t) - A(x) * target(t | x) <= 0`. If `x` is
  empty, `A(x)` is 1, and the row is `A(t) <= target(t)`.
  """
  matrix, bounds = np.eye(len(prefix_index)), np.zeros(len(prefix_index))
  for prefix, i in prefix_index.items():
    prob = target[(start, *prefix)[-2:]]
    if len(prefix) == 1:
      bounds[i] = prob
    else:
      matrix[i, prefix_index[prefix[:-1]]] = -prob
  return sparse.csr_array(matrix), bounds


def _transport_constraints(
  target: np.ndarray, start: int, prefix_index: Mapping[_Prefix, int]
) -> tuple[sparse.csr_array, np.ndarray]:
  """Returns a matrix and upper bounds of its product with `A`.

  The row of prefix `x` is `A(x) <= target(x)`, of all tokens of the prefix.
  """
  bounds = [_chain_prob(target, start, prefix) for prefix in prefix_index]
  return sparse.csr_array(np.eye(len(bounds))), np.array(bounds)


def _chain_prob(model: np.ndarray, start: int, chain: _Prefix) -> float:
  """Returns the probability that a model emits a chain."""
  return math.prod(model[pair] for pair in itertools.pairwise((start, *chain)))


def _set_prob(chains: _ChainSet, chain_probs: Mapping[_Prefix, float]) -> float:
  """Returns the probability that these chains are drafted, in any order."""
  repeats = [chains.count(chain) for chain in dict.fromkeys(chains)]
  orders = math.factorial(len(chains)) / math.prod(map(math.factorial, repeats))
  return orders * math.prod(chain_probs[chain] for chain in chains)
