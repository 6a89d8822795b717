"""The exact distributions from which couplings pick, for small vocabularies.

Each function returns `[V**n, V]`: for every tuple of `n` candidates, in the
order of `np.ndindex`, the distribution of the token that the coupling in
`specjax.couplings` emits.
"""

from collections.abc import Callable
from collections.abc import Sequence
import itertools

import jax
import numpy as np

from specjax.transport import division
from specjax.transport import priorities

# `(draft [V], target [V], n) -> [V**n, V]`, for `n >= 1` i.i.d. candidates.
Picks = Callable[[np.ndarray, np.ndarray, int], np.ndarray]

_divide = jax.jit(division.divide)
_priorities = jax.jit(priorities.compute)


def tuples(vocab_size: int, num: int) -> np.ndarray:
  """Returns `[V**n, n]`, all tuples of `n` candidates."""
  return np.array(list(itertools.product(range(vocab_size), repeat=num)))


def maximal(draft: np.ndarray, target: np.ndarray, num: int) -> np.ndarray:
  """Returns the picks of `maximal`, which tests only the first candidate."""
  tests = [_pass_probs(draft, target)] + [np.zeros_like(target)] * (num - 1)
  return _test_in_order(tests, np.maximum(target - draft, 0))


def kseq(draft: np.ndarray, target: np.ndarray, num: int) -> np.ndarray:
  """Returns the picks of `kseq`, with the same division factor."""
  factor = float(_divide(draft, target, num).factor)
  passed = np.minimum(draft, target / factor)
  overlap = passed.sum()
  # Expected number of tests, up to and including the first that passes.
  num_tests = (1 - (1 - overlap) ** num) / overlap if overlap else 0.0
  tests = [_pass_probs(factor * draft, target)] * num
  return _test_in_order(tests, np.maximum(target - num_tests * passed, 0))


def multiround(draft: np.ndarray, target: np.ndarray, num: int) -> np.ndarray:
  """Returns the picks of `multiround`, which tests against residuals."""
  tests, residual = [], target
  for _ in range(num):
    tests.append(_pass_probs(draft, residual))
    excess = np.maximum(residual - draft, 0)
    residual = excess / excess.sum() if excess.sum() > 0 else residual
  return _test_in_order(tests, residual)


def otm(draft: np.ndarray, target: np.ndarray, num: int) -> np.ndarray:
  """Returns the picks of `otm`, which proposes one candidate and tests it."""
  winners, probs = proposals(draft, target, num)
  accepted = winners * _pass_probs(probs, target)
  return _complete_rows(accepted, np.maximum(target - probs, 0))


def proposals(
  draft: np.ndarray, target: np.ndarray, num: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the proposal given the candidates, and its marginal.

  They are those of `couplings.proposals`, for vocabularies in which each token
  is an atom.

  Returns:
    `[V**n, V]` distribution of the proposed token for every tuple of
    candidates, and `[V]`, the mean over all tuples.

  Raises:
    ValueError: the vocabulary is larger.
  """
  if len(draft) > priorities.NUM_ATOMS:
    raise ValueError(
      f'The vocabulary must have at most {priorities.NUM_ATOMS} tokens for the '
      f"rules of 'otm', got {len(draft)}."
    )
  ranking = jax.device_get(_priorities(draft, target, num))
  ranks = np.stack([_rank_probs(ranking, token) for token in range(len(draft))])
  lower = np.cumsum(ranks, axis=1) - ranks
  candidates = tuples(len(draft), num)
  winners = np.zeros((len(candidates), len(draft)))
  for i, tokens in enumerate(candidates.T):
    # [V**n, M] how likely candidate `i` has each rank and wins. Among equal
    # ranks, the first candidate wins.
    probs = ranks[tokens]
    for j, others in enumerate(candidates.T):
      if j != i:
        probs = probs * (lower + ranks if j > i else lower)[others]
    np.add.at(winners, (np.arange(len(winners)), tokens), probs.sum(axis=1))
  return winners, np.asarray(ranking.distribution(draft), np.float64)


def _rank_probs(ranking: priorities.Priorities, token: int) -> np.ndarray:
  """Returns `[M]`, how likely a token draws a rank in each atom's interval."""
  atom = int(ranking.atom[token])
  win_density, proposal_ratio, deficit_cdf, surplus_cdf = (
    np.asarray(values, np.float64)
    for values in (
      ranking.win_density,
      ranking.proposal_ratio,
      ranking.deficit_cdf,
      ranking.surplus_cdf,
    )
  )
  probs = np.zeros(len(win_density))
  deficit = proposal_ratio[atom] - win_density[atom]
  cdf, other_cdf = deficit_cdf, surplus_cdf
  if deficit <= 0:
    cdf, other_cdf = surplus_cdf, deficit_cdf
  start = cdf[atom - 1] if atom else 0.0
  if cdf[atom] > start:
    # The overlap of the atom's step in its own cumulative sum with each
    # partner's step in the other one; see `priorities.partner`.
    edges = np.clip(other_cdf, start, cdf[atom])
    partners = np.diff(edges, prepend=start) / (cdf[atom] - start)
    distances = np.abs(win_density - win_density[atom])
    swaps = np.minimum(
      abs(deficit) / np.where(distances > 0, distances, np.inf), 1
    )
    probs = partners * swaps
  probs[atom] += 1 - probs.sum()
  return probs


def _pass_probs(draft: np.ndarray, target: np.ndarray) -> np.ndarray:
  """Returns `[V]`, how likely each draft token passes a test."""
  return np.minimum(target / np.where(draft > 0, draft, np.inf), 1)


def _test_in_order(
  tests: Sequence[np.ndarray], weights: np.ndarray
) -> np.ndarray:
  """Returns the picks of a coupling that tests one candidate after another.

  Args:
    tests: for each candidate, `[V]` probabilities that its token passes.
    weights: `[V]`, in proportion to which a token is drawn if no test passes.
  """
  size, num = len(weights), len(tests)
  candidates = tuples(size, num)
  accepted = np.zeros((len(candidates), size))
  reached = np.ones(len(candidates))
  for tokens, pass_probs in zip(candidates.T, tests):
    passed = pass_probs[tokens]
    np.add.at(accepted, (np.arange(len(accepted)), tokens), reached * passed)
    reached = reached * (1 - passed)
  return _complete_rows(accepted, weights)


def _complete_rows(accepted: np.ndarray, weights: np.ndarray) -> np.ndarray:
  """Returns rows that sum to 1, filled up in proportion to the weights."""
  total = weights.sum()
  correction = weights / total if total > 0 else np.full_like(weights, 0)
  rejected = 1 - accepted.sum(axis=1, keepdims=True)
  rows = accepted + rejected * correction
  return rows / rows.sum(axis=1, keepdims=True)


PICKS: dict[str, Picks] = {
  'kseq': kseq,
  'maximal': maximal,
  'multiround': multiround,
  'otm': otm,
}
