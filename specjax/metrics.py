"""Metrics of results: block efficiency, acceptance by position, regret."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy import typing as npt

from specjax import base
from specjax import decoding
from specjax.evaluation import likelihood


class Estimate(NamedTuple):
  """A value that is estimated from independent items, such as prompts.

  Attributes:
    value: the value.
    deviations: `[n]` float64, the contribution of each item to its error.
  """

  value: float
  deviations: np.ndarray

  @property
  def error(self) -> float:
    """The standard error."""
    return float(np.sqrt((self.deviations**2).sum()))

  def over(self, other: 'Estimate') -> 'Estimate':
    """Returns the ratio to another estimate from the same items.

    Common variation of the items cancels. The ratio to zero is NaN.

    Args:
      other: an estimate from the same items, in the same order.

    Raises:
      ValueError: the numbers of items differ.
    """
    if len(self.deviations) != len(other.deviations):
      raise ValueError(
        f'other must have {len(self.deviations)} items, got '
        f'{len(other.deviations)}.'
      )
    if not other.value:
      return Estimate(float('nan'), np.full_like(self.deviations, np.nan))
    value = self.value / other.value
    deviations = self.deviations - value * other.deviations
    return Estimate(value, deviations / other.value)


def block_efficiency(results: Sequence[decoding.Result]) -> tuple[float, float]:
  """Returns emitted tokens per target call, and the standard error.

  It is pooled over all rounds of all results (Spec-Bench's mean accepted
  tokens). Tokens past a stop token are not emitted. The error is that of a
  ratio of sums over independent prompts.
  """
  return ratio(*_emitted_and_rounds(results))


def ratio(
  numerators: npt.ArrayLike, denominators: npt.ArrayLike
) -> tuple[float, float]:
  """Returns the ratio of two sums over independent items, and its error.

  Args:
    numerators: `[n]` terms of the first sum.
    denominators: `[n]` terms of the second sum, for the same items.
  """
  result = estimate(numerators, denominators)
  return result.value, result.error


def estimate(
  numerators: npt.ArrayLike, denominators: npt.ArrayLike
) -> Estimate:
  """Returns the ratio of two sums over independent items, as an `Estimate`.

  The error is NaN for one item, from which it cannot be estimated.

  Args:
    numerators: See `ratio`.
    denominators: See `ratio`.
  """
  numerators = np.asarray(numerators, float)
  denominators = np.asarray(denominators, float)
  total = denominators.sum()
  if not total:
    return Estimate(float('nan'), np.full(max(1, numerators.size), np.nan))
  value, num = float(numerators.sum() / total), numerators.size
  # As in a variance of few items.
  scale = np.sqrt(num / (num - 1)) if num > 1 else np.nan
  deviations = (numerators - value * denominators) / total
  return Estimate(value, scale * deviations)


def _emitted_and_rounds(
  results: Sequence[decoding.Result],
) -> tuple[list[int], list[int]]:
  """Returns the numbers of emitted tokens and of rounds of each result."""
  emitted = [len(result.tokens) for result in results]
  return emitted, [result.rounds for result in results]


def efficiency_ratio(
  results: Sequence[decoding.Result], others: Sequence[decoding.Result]
) -> tuple[float, float]:
  """Returns the ratio of two block efficiencies, and its standard error.

  Args:
    results: results of some prompts.
    others: results of the same prompts, in the same order, so that common
      variation of the prompts cancels.

  Raises:
    ValueError: the numbers of results differ.
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
  """Returns the ratio of two ratios for the same items, and its error.

  Args:
    pair: numerators and denominators `[n]` of the first ratio.
    other: numerators and denominators `[n]` of the second ratio. Common
      variation of the items cancels.
  """
  result = estimate(*pair).over(estimate(*other))
  return result.value, result.error


def acceptance_by_position(
  results: Sequence[decoding.Result],
) -> tuple[np.ndarray, np.ndarray]:
  """Returns acceptance rates by depth, and standard errors, `[D]` each.

  The rate of a depth is the share of accepted tokens among those whose
  predecessors in the round were all accepted, unless the row ended with them.
  Both are NaN if there are none.
  """
  return acceptance(
    [result.accepted for result in results],
    [result.tested for result in results],
  )


def acceptance(
  accepted: npt.ArrayLike, tested: npt.ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the result of `acceptance_by_position`, from counts.

  Args:
    accepted: `[n, D]` accepted tokens at each depth, for independent items.
    tested: `[n, D]` rounds whose tree reached each depth, and that accepted all
      tokens above it, in rows that had not ended with them.
  """
  accepted, tested = np.asarray(accepted, float), np.asarray(tested, float)
  rates = np.array(
    [ratio(*columns) for columns in zip(accepted.T, tested.T)]
  ).reshape(-1, 2)
  return rates[:, 0], rates[:, 1]


def regret(
  target: base.LanguageModel,
  params: base.Params,
  prompts: Sequence[Sequence[int]],
  results: Sequence[decoding.Result],
) -> list[np.ndarray]:
  """Returns how far each emitted token is from the target's best, in logits.

  At temperature 0 and in float32, a text equals that of plain decoding, and its
  regrets are 0. In bfloat16, calls of different widths round differently, so
  that two nearly equal logits may change places and the texts differ from there
  on. Then equal texts are too strict a test; regrets of a few units in the last
  place of a logit show that each token was still a best one, given the tokens
  before it.

  Args:
    target: the target model, which scores each text in one call.
    params: its parameters.
    prompts: token ids of each prompt.
    results: the result of each prompt.

  Returns:
    For each result, `[num_tokens]` float32: the largest logit at each position
    minus that of the emitted token.

  Raises:
    ValueError: the numbers of prompts and results differ; see also
      `evaluation.likelihood.likelihood`.
  """
  if len(prompts) != len(results):
    raise ValueError(
      f'results must have one item per prompt, {len(prompts)}, got '
      f'{len(results)}.'
    )
  texts = [
    ([*prompt, *result.tokens], len(prompt))
    for prompt, result in zip(prompts, results)
  ]
  return likelihood.likelihood(target, params, texts).regrets
