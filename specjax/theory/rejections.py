"""The exact expected number of rejections of speculative decoding.

Yin et al. (2024), Theorems 1 to 3 and Proposition 1. Notation: the paper's p is
the draft, its q is the target. A run fills `horizon` positions, and every draft
reaches the horizon, so there is no bonus token. Each rejection costs one target
call.
"""

from collections.abc import Callable
import itertools
import math

import numpy as np
from numpy import typing as npt

from specjax.theory import transition_tables

# `probs(prefix) -> [V]`: distribution of the token after a tuple of tokens.
NextProbs = Callable[[tuple[int, ...]], np.ndarray]

# Largest number of texts that are enumerated.
MAX_TEXTS = 1_000_000


def expected_rejections(
  target: np.ndarray | NextProbs,
  draft: np.ndarray | NextProbs,
  horizon: int,
  initial: np.ndarray | None = None,
) -> float:
  """Returns the expected rejections with one draft per position (Theorem 1).

  The result is the sum over positions of the expected total variation between
  the draft and the target, where the prefix is sampled from the target model.
  No unbiased algorithm that accepts or replaces one draft per position has
  fewer rejections (Theorem 2).

  Args:
    target: the target model. It is either the table `[V, V]` of a Markov model,
      or `[T, V, V]` if the table changes with the position (the last one is
      used for all later positions), or a function `probs(prefix) -> [V]`, for
      which all `V**horizon` texts are enumerated.
    draft: the draft model, in the same form as `target`.
    horizon: number of positions to fill.
    initial: `[V]` distribution of the token before the first position, used
      for tables only; uniform by default.

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

  For tables, the cost is `horizon * V**2 * num_drafts` operations. The other
  arguments are those of `expected_rejections`.

  Args:
    target: the target model.
    draft: the draft model.
    horizon: number of positions to fill.
    num_drafts: `K >= 1`, or infinity for the limit of Proposition 1.
    initial: `[V]` distribution of the token before the first position.

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
  # Contexts of a Markov model are its last tokens, so that all ways to reach a
  # token are merged. Contexts of other models are whole texts.
  merge = (lambda flow: flow.sum(0)) if with_tables else np.ravel
  # `reached` is the probability of each context, and `fresh` is the part of it
  # where a rejection produced the last token, so that all drafts start there.
  # The start of the text counts as fresh.
  fresh, total = reached, 0.0
  for position in range(horizon):
    targets = _rows(target, position, size)
    drafts = _rows(draft, position, size)
    rejected = fresh[:, None] * _all_rejected(targets, drafts, num_drafts)
    rejected += (reached - fresh)[:, None] * _all_rejected(targets, drafts, 1)
    reached, fresh = merge(reached[:, None] * targets), merge(rejected)
    total += fresh.sum()
  return float(total)


def _all_rejected(
  target: np.ndarray, draft: np.ndarray, num_drafts: float
) -> np.ndarray:
  """Returns `[..., V]`, how likely all drafts are rejected, by replacement.

  Each of the `num_drafts` tests is against the normalized residual of the test
  before it. The sum over tokens is the probability of a rejection. With
  infinitely many drafts, only tokens that are never drafted remain.
  """
  if num_drafts == math.inf:
    return np.where(draft > 0, 0.0, target)
  residual, prob = target, np.ones_like(target[..., :1])
  for _ in range(int(num_drafts)):
    excess = np.maximum(residual - draft, 0)
    mass = excess.sum(-1, keepdims=True)
    residual = np.divide(
      excess, mass, out=np.zeros_like(residual), where=mass > 0
    )
    prob = prob * mass
  return prob * residual


def _rows(
  model: np.ndarray | NextProbs, position: int, size: int
) -> np.ndarray:
  """Returns `[contexts, V]`, the distributions after all contexts."""
  if callable(model):
    prefixes = itertools.product(range(size), repeat=position)
    return np.array([_probs(model(prefix), size) for prefix in prefixes])
  return model[min(position, len(model) - 1)]


def _probs(values: npt.ArrayLike, size: int) -> np.ndarray:
  """Returns normalized probabilities, or raises a `ValueError`."""
  probs = np.asarray(values, np.float64)
  valid = (probs >= 0).all() and 0 < probs.sum() < np.inf
  if probs.shape != (size,) or not valid:
    raise ValueError(
      f'Probabilities of {size} tokens were expected, got {probs}.'
    )
  return probs / probs.sum()
