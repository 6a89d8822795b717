"""Checks of metrics of texts."""

from typing import Any

import numpy as np

from specjax.testing import building

_TEXTS = ('He paid 3 for all of the chairs.', 'She sold 12 of them at noon.')


def check_metric(constructor: building.Constructor, /, **options: Any) -> None:
  """Checks a function that builds metrics of texts.

  Scores are percentages: 100 for equal texts, and less if one differs.

  Args:
    constructor: builds the metric; it need not be in a table.
    **options: its arguments.

  Raises:
    AssertionError: a property does not hold; the error is a sentence.
  """
  with building.error_context(constructor):
    building.check_documented(constructor)
    metric = constructor(**building.arguments(constructor, {}, options))
    _check(metric, list(_TEXTS), 100, 100)
    _check(metric, [_TEXTS[0], 'no'], 0, 99)


def _check(metric: Any, predictions: list[str], low: int, high: int) -> None:
  """Checks that all scores of predictions lie in `[low, high]`."""
  scores = metric(predictions, list(_TEXTS))
  building.require(
    isinstance(scores.total, float),
    f'The total score must be a float, got {scores.total!r}.',
  )
  building.require(
    (scores.examples.shape, scores.examples.dtype) == ((2,), np.float64),
    f'Scores must have a float64 per text, got {scores.examples!r}.',
  )
  for score in (scores.total, scores.examples.mean()):
    building.require(
      low - 1e-6 <= score <= high + 1e-6,
      f'Scores must be percentages, for {predictions} in [{low}, {high}], got '
      f'{score}.',
    )
