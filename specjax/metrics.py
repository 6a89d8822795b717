"""Metrics of a set of results: block efficiency and acceptance by position."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy import typing as npt

from specjax import decoding


class Estimate(NamedTuple):
  """A number, and by how much each of the independent items moves it."""

  value: float
  deviations: np.ndarray  # [n] float64

  @property
  def error(self) -> float:
    """The standard error."""
    return float(np.sqrt((self.deviations**2).sum()))

  def over(self, other: 'Estimate') -> 'Estimate':
    """Returns the ratio to another one of the same items, in the same order.

    What items have in common cancels.

    Raises:
      ValueError: they are not of as many items.
    """
    if len(self.deviations) != len(other.deviations):
      raise ValueError(
        f'other must be of {len(self.deviations)} items, got '
        f'{len(other.deviations)}.'
      )
    value = self.value / other.value
    above = self.deviations / self.value
    below = other.deviations / other.value
    return Estimate(value, value * (above - below))


def block_efficiency(results: Sequence[decoding.Result]) -> tuple[float, float]:
  """Returns emitted tokens per target call, and its standard error.

  Pooled over all rounds of all results (Spec-Bench's mean accepted tokens).
  Tokens past a stop token were never emitted and count nowhere. The error is
  that of a ratio of sums over independent prompts.
  """
  return ratio(*_emitted_and_rounds(results))


def ratio(
  numerators: npt.ArrayLike, denominators: npt.ArrayLike
) -> tuple[float, float]:
  """Returns the ratio of two sums over independent items, and its error.

  Args:
    numerators: `[n]`.
    denominators: `[n]`, of the same items.
  """
  quotient = estimate(numerators, denominators)
  return quotient.value, quotient.error


def estimate(
  numerators: npt.ArrayLike, denominators: npt.ArrayLike
) -> Estimate:
  """Returns what `ratio` does, with what each item adds to the error."""
  above = np.asarray(numerators, float)
  below = np.asarray(denominators, float)
  if not below.sum():
    return Estimate(float('nan'), np.full(1, np.nan))
  value = float(above.sum() / below.sum())
  return Estimate(value, (above - value * below) / below.sum())


def _emitted_and_rounds(results):
  emitted = [len(result.tokens) for result in results]
  return emitted, [result.rounds for result in results]


def efficiency_ratio(
  results: Sequence[decoding.Result], others: Sequence[decoding.Result]
) -> tuple[float, float]:
  """Returns the ratio of two block efficiencies, and its standard error.

  Args:
    results: of some prompts.
    others: of the same prompts, in the same order, so that what prompts have in
      common cancels.
  """
  if len(results) != len(others):
    raise ValueError(
      f'results and others must pair up, got {len(results)} and {len(others)}.'
    )
  return ratio_of_ratios(
    _emitted_and_rounds(results), _emitted_and_rounds(others)
  )


def ratio_of_ratios(
  pair: tuple[npt.ArrayLike, npt.ArrayLike],
  other: tuple[npt.ArrayLike, npt.ArrayLike],
) -> tuple[float, float]:
  """Returns one `ratio` over another one of the same items, and its error.

  Args:
    pair: numerators and denominators `[n]` of the one above.
    other: those of the one below; what items have in common cancels.
  """
  quotient = estimate(*pair).over(estimate(*other))
  return quotient.value, quotient.error


def acceptance_by_position(
  results: Sequence[decoding.Result],
) -> tuple[np.ndarray, np.ndarray]:
  """Returns how often drafts of a depth are kept, and standard errors, `[D]`.

  A draft token is reached if all before it in its round were accepted; the
  share is of those. Where none was reached, both are NaN.
  """
  return acceptance(
    [result.accepted for result in results],
    [result.drafted for result in results],
  )


def acceptance(
  accepted: npt.ArrayLike, drafted: npt.ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
  """Returns what `acceptance_by_position` does, of counts.

  Args:
    accepted: `[n, D]` accepted tokens of each depth, of independent items.
    drafted: `[n, D]` rounds whose tree reached each depth.
  """
  kept, tried = np.asarray(accepted, float), np.asarray(drafted, float)
  before = np.concatenate([tried[:, :1], kept[:, :-1]], axis=1)
  columns = zip(kept.T, np.minimum(tried, before).T)
  table = np.array([ratio(*column) for column in columns]).reshape(-1, 2)
  return table[:, 0], table[:, 1]
