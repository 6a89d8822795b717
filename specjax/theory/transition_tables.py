"""Checks and normalizes the transition tables of Markov models."""

from typing import Any

import numpy as np

from specjax import checks

# Allowed error in the sum of a row.
_TOLERANCE = 1e-4


def normalize(target: Any, draft: Any) -> tuple[np.ndarray, np.ndarray]:
  """Returns both as `[T, V, V]` float64, with rows that sum to 1.

  Args:
    target: transition probabilities `[V, V]` of the target model, or `[T, V,
      V]` if they change with the position.
    draft: transition probabilities of the draft model. Its `T` may differ from
      that of `target`.

  Raises:
    ValueError: an argument is not a table of transition probabilities, or the
      vocabularies have different sizes.
  """
  pair = _table('target', target), _table('draft', draft)
  if pair[0].shape[1:] != pair[1].shape[1:]:
    raise ValueError(
      'draft and target must be of one size, got tables '
      f'{pair[1].shape} and {pair[0].shape}.'
    )
  return pair


def normalize_stationary(
  target: Any,
  draft: Any,
  num_chains: int,
  length: int,
  start: int,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns both as `[V, V]`, for models that are the same at all positions.

  Args:
    target: `[V, V]` transition probabilities of the target model.
    draft: `[V, V]` transition probabilities of the draft model.
    num_chains: number of drafted chains, at least 1.
    length: tokens in each chain, at least 1.
    start: last token of the context.

  Raises:
    ValueError: an argument is out of range, or is not a table of transition
      probabilities.
  """
  for name, table in (('target', target), ('draft', draft)):
    if np.ndim(table) != 2:
      raise ValueError(
        f'{name} must be a table [V, V], got shape {np.shape(table)}.'
      )
  (target,), (draft,) = normalize(target, draft)
  checks.check_integers('num_chains', num_chains, 1)
  checks.check_integers('length', length, 1)
  checks.check_integers('start', start, 0, len(target) - 1)
  return target, draft


def _table(name: str, values: Any) -> np.ndarray:
  """Returns one table with rows that sum to 1."""
  table = np.asarray(values, np.float64)
  table = table[None] if table.ndim == 2 else table
  if table.ndim != 3 or table.shape[1] != table.shape[2]:
    raise ValueError(
      f'{name} must be a table [V, V] or [T, V, V], got shape {table.shape}.'
    )
  if not (np.isfinite(table) & (table >= 0)).all():
    raise ValueError(f'{name} must be finite and not negative.')
  sums = table.sum(-1, keepdims=True)
  if np.abs(sums - 1).max() > _TOLERANCE:
    raise ValueError(f'Rows of {name} must sum to 1, got {sums.min():.6g}.')
  return table / sums
