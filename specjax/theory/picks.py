"""What couplings pick, given their candidates: exact, for small vocabularies.

Each function gives for all `V**n` tuples of candidates, in the order of
`np.ndindex`, the distribution `[V**n, V]` of the token; rows that a coupling of
`specjax.couplings` draws from.
"""

from collections.abc import Callable
import itertools

import jax
import numpy as np

from specjax.transport import division
from specjax.transport import priorities

# `(draft[V], target[V], n) -> [V**n, V]`, of `n >= 1` i.i.d. candidates.
Picks = Callable[[np.ndarray, np.ndarray, int], np.ndarray]

_divide = jax.jit(division.divide)
_plan = jax.jit(priorities.plan)


def tuples(vocab_size: int, num: int) -> np.ndarray:
  """Returns `[V**n, n]` all tuples of candidates."""
  return np.array(list(itertools.product(range(vocab_size), repeat=num)))


def maximal(draft: np.ndarray, target: np.ndarray, num: int) -> np.ndarray:
  """Of the coupling `maximal`, which tests the first candidate alone."""
  tests = [_ratios(draft, target)] + [np.zeros_like(target)] * (num - 1)
  return _in_turns(tests, np.maximum(target - draft, 0))


def kseq(draft: np.ndarray, target: np.ndarray, num: int) -> np.ndarray:
  """Of the coupling `kseq`, with the division factor that it finds."""
  factor = float(_divide(draft, target, num).factor)
  covered = np.minimum(draft, target / factor)
  overlap = covered.sum()
  share = (1 - (1 - overlap) ** num) / overlap if overlap else 0.0
  tests = [_ratios(factor * draft, target)] * num
  return _in_turns(tests, np.maximum(target - share * covered, 0))


def multiround(draft: np.ndarray, target: np.ndarray, num: int) -> np.ndarray:
  """Of the coupling `multiround`: each test is against what is left."""
  tests, left = [], target
  for _ in range(num):
    tests.append(_ratios(draft, left))
    excess = np.maximum(left - draft, 0)
    left = excess / excess.sum() if excess.sum() > 0 else left
  return _in_turns(tests, left)


def otm(draft: np.ndarray, target: np.ndarray, num: int) -> np.ndarray:
  """Of the coupling `otm`: one candidate is proposed, and tested."""
  winners, probs = proposals(draft, target, num)
  kept = winners * _ratios(probs, target)
  return _completed(kept, np.maximum(target - probs, 0))


def proposals(
  draft: np.ndarray, target: np.ndarray, num: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns `[V**n, V]` what is proposed of candidates, and `[V]` of them all.

  As `couplings.proposals` does, for vocabularies of which each token is an atom
  of its own.
  """
  plan = jax.device_get(_plan(draft, target, num))
  ranks = np.stack([_ranks(plan, token) for token in range(len(draft))])
  below = np.cumsum(ranks, axis=1) - ranks
  candidates = tuples(len(draft), num)
  winners = np.zeros((len(candidates), len(draft)))
  for i, tokens in enumerate(candidates.T):
    chance = ranks[tokens]  # [V**n, M], of equal ranks the first one wins.
    for j, others in enumerate(candidates.T):
      if j != i:
        chance = chance * (below + ranks if j > i else below)[others]
    np.add.at(winners, (np.arange(len(winners)), tokens), chance.sum(axis=1))
  return winners, np.asarray(plan.distribution(draft), np.float64)


def _ranks(plan, token):
  """`[M]` how likely a token has the rank of each atom."""
  atom = int(plan.atom[token])
  wins, wanted, lacking, exceeding = (
    np.asarray(each, np.float64) for each in plan[2:]
  )
  ranks, short = np.zeros(len(wins)), wanted[atom] - wins[atom]
  own, other = (lacking, exceeding) if short > 0 else (exceeding, lacking)
  start = own[atom - 1] if atom else 0.0
  if own[atom] > start:
    # The share of its own interval that lies in the interval of each partner.
    places = np.clip(other, start, own[atom])
    partners = np.diff(places, prepend=start) / (own[atom] - start)
    distances = np.abs(wins - wins[atom])
    swaps = np.minimum(
      abs(short) / np.where(distances > 0, distances, np.inf), 1
    )
    ranks = partners * swaps
  ranks[atom] += 1 - ranks.sum()
  return ranks


def _ratios(draft, target):
  """`[V]` chances to pass, `min(target / draft, 1)`."""
  return np.minimum(target / np.where(draft > 0, draft, np.inf), 1)


def _in_turns(tests, weights):
  """Candidates are tested in turns; if none passes, the weights are drawn."""
  size, num = len(weights), len(tests)
  candidates = tuples(size, num)
  kept, reached = np.zeros((len(candidates), size)), np.ones(len(candidates))
  for tokens, chances in zip(candidates.T, tests):
    passed = chances[tokens]
    np.add.at(kept, (np.arange(len(kept)), tokens), reached * passed)
    reached = reached * (1 - passed)
  return _completed(kept, weights)


def _completed(kept, weights):
  """Rows of sum 1: what is missing is drawn from the weights."""
  total = weights.sum()
  rest = weights / total if total > 0 else np.full_like(weights, 0)
  rows = kept + (1 - kept.sum(axis=1, keepdims=True)) * rest
  return rows / rows.sum(axis=1, keepdims=True)


PICKS: dict[str, Picks] = {
  'kseq': kseq,
  'maximal': maximal,
  'multiround': multiround,
  'otm': otm,
}
