"""Expected rejections of speculative decoding, exactly.

Yin et al. (2024), Theorems 1 to 3 and Proposition 1. Notation: the paper's p is
the draft, its q is the target. A run fills `horizon` positions and drafts reach
to its end, so there is no bonus token; each rejection costs one target call.
"""

from collections.abc import Callable
import itertools
import math

import numpy as np

from specjax.theory import transition_tables

# `probs(prefix) -> [V]`: of what follows a tuple of tokens.
NextProbs = Callable[[tuple[int, ...]], np.ndarray]

# The most texts that are enumerated.
MAX_TEXTS = 1_000_000


def expected_rejections(
  target: np.ndarray | NextProbs,
  draft: np.ndarray | NextProbs,
  horizon: int,
  initial: np.ndarray | None = None,
) -> float:
  """Returns the expected rejections with one draft a position (Theorem 1).

  They are the sum over positions of the expected total variation between draft
  and target, along texts of the target. No unbiased rule that accepts or
  replaces one draft a position has fewer (Theorem 2).

  Args:
    target: a Markov model's table `[V, V]`, or `[T, V, V]` where it changes
      from position to position (the last one goes on); or `probs(prefix) ->
      [V]` of any model, all of whose `V**horizon` texts are enumerated.
    draft: likewise.
    horizon: positions to fill.
    initial: `[V]` distribution of the token before the first position, for
      tables; uniform by default.

  Raises:
    ValueError: an argument is out of range, or there are too many texts.
  """
  return batch_expected_rejections(target, draft, horizon, 1, initial)


def batch_expected_rejections(
  target: np.ndarray | NextProbs,
  draft: np.ndarray | NextProbs,
  horizon: int,
  num_drafts: float,
  initial: np.ndarray | None = None,
) -> float:
  """Returns the expected rejections of batch speculative sampling (Theorem 3).

  For tables in `horizon * V**2 * num_drafts` steps.

  Args:
    target: as in `expected_rejections`.
    draft: likewise.
    horizon: positions to fill.
    num_drafts: `K >= 1`, or infinity for the limit of Proposition 1.
    initial: as in `expected_rejections`.

  Raises:
    ValueError: an argument is out of range, or there are too many texts.
  """
  if horizon < 0:
    raise ValueError(f'horizon must be >= 0, got {horizon}.')
  if not num_drafts >= 1 or num_drafts not in (math.inf, num_drafts // 1):
    raise ValueError(
      f'num_drafts must be an integer >= 1 or infinity, got {num_drafts}.'
    )
  if callable(target) != callable(draft):
    raise ValueError('target and draft must both be tables or both functions.')
  with_tables = not callable(target)
  if not callable(target):
    target, draft = transition_tables.normalize(target, draft)
    size = target.shape[-1]
    reached = (
      np.full(size, 1 / size) if initial is None else _probs(initial, size)
    )
  else:
    size = len(target(()))
    if size**horizon > MAX_TEXTS:
      raise ValueError(
        f'An enumeration of V**horizon = {size}**{horizon} texts exceeds '
        f'{MAX_TEXTS}.'
      )
    reached = np.ones(1)
  # Markov models forget how they came to a token; others keep every text.
  merge = (lambda flow: flow.sum(0)) if with_tables else np.ravel
  # Chance of a context, and that its last token followed a rejection. The start
  # counts as fresh: all drafts stand there.
  fresh, total = reached, 0.0
  for position in range(horizon):
    targets, drafts = (_rows(each, position, size) for each in (target, draft))
    alone = fresh[:, None] * lost(targets, drafts, num_drafts)
    alone += (reached - fresh)[:, None] * lost(targets, drafts, 1)
    reached, fresh = merge(reached[:, None] * targets), merge(alone)
    total += fresh.sum()
  return float(total)


def lost(
  target: np.ndarray, draft: np.ndarray, num_drafts: float
) -> np.ndarray:
  """Returns `[..., V]` the chance that all drafts are rejected for a token.

  `num_drafts` tests, each against the normalised residual of the last; summed
  over tokens, the chance of a rejection. In the limit only tokens that are
  never drafted are lost.
  """
  if num_drafts == math.inf:
    return np.where(draft > 0, 0.0, target)
  left, chance = target, np.ones_like(target[..., :1])
  for _ in range(int(num_drafts)):
    excess = np.maximum(left - draft, 0)
    mass = excess.sum(-1, keepdims=True)
    left = np.divide(excess, mass, out=np.zeros_like(left), where=mass > 0)
    chance = chance * mass
  return chance * left


def _rows(model, position, size):
  """`[contexts, V]` probabilities at a position."""
  if callable(model):
    prefixes = itertools.product(range(size), repeat=position)
    return np.array([_probs(model(prefix), size) for prefix in prefixes])
  return model[min(position, len(model) - 1)]


def _probs(values, size):
  values = np.asarray(values, np.float64)
  possible = (values >= 0).all() and 0 < values.sum() < np.inf
  if values.shape != (size,) or not possible:
    raise ValueError(
      f'Probabilities of {size} tokens were expected, got {values}.'
    )
  return values / values.sum()
