"""What every metric of texts keeps."""

from typing import Any

import numpy as np

from specjax.testing import building

_TEXTS = ('He paid 3 for all of the chairs.', 'She sold 12 of them at noon.')


def check_metric(factory: building.Factory, /, **options: Any) -> None:
  """Checks a factory of metrics of texts.

  Scores are percents: 100 for texts that are equal, less where one is not.

  Args:
    factory: builds the metric; it need not be in a table.
    **options: what it is built with, beside its example.

  Raises:
    AssertionError: a sentence says what must hold.
  """
  with building.about(factory):
    building.check_documented(factory)
    metric = factory(**building.arguments(factory, {}, options))
    _check(metric, list(_TEXTS), 100, 100)
    _check(metric, [_TEXTS[0], 'no'], 0, 99)


def _check(metric: Any, predictions: list[str], low: int, high: int) -> None:
  scores = metric(predictions, list(_TEXTS))
  building.require(
    isinstance(scores.total, float),
    f'The total score is a float, got {scores.total!r}.',
  )
  building.require(
    (scores.examples.shape, scores.examples.dtype) == ((2,), np.float64),
    f'There is a float64 score of each text, got {scores.examples!r}.',
  )
  for score in (scores.total, scores.examples.mean()):
    building.require(
      low - 1e-6 <= score <= high + 1e-6,
      f'Scores are percents: of {predictions}, one from {low} to {high}, got '
      f'{score}.',
    )
