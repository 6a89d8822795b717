"""Metrics of texts: scores, totals and their standard errors."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from specjax import checks


class Scores(NamedTuple):
  """Scores of `N` predictions, from 0 to 100.

  Attributes:
    total: score of all predictions, which may differ from the mean.
    examples: `[N]` float64, scores of the single predictions.
  """

  total: float
  examples: np.ndarray


class Metric(NamedTuple):
  """A score of predictions against references, from 0 to 100.

  The score of a set of examples is a function of statistics that are summed
  over the examples, so that resamples are scored without reading texts again.

  Attributes:
    statistics: `(prediction, reference) -> [K]` additive statistics.
    total: `(sums[K]) -> float`, the score of a set of examples, from the sums
      of their statistics.
    example: `(statistics[K]) -> float`, the score of one example.
  """

  statistics: Callable[[str, str], Sequence[float]]
  total: Callable[[np.ndarray], float]
  example: Callable[[np.ndarray], float]

  def __call__(
    self, predictions: Sequence[str], references: Sequence[str]
  ) -> Scores:
    """Scores predictions against their references.

    Args:
      predictions: `N` texts.
      references: `N` texts, one for each prediction.

    Raises:
      ValueError: there are no predictions, the numbers of predictions and
        references differ, one of them is not a string, or a reference is blank
        or invalid for the metric.
    """
    rows = _statistics(self, predictions, references)
    scores = np.array([self.example(row) for row in rows], np.float64)
    return Scores(float(self.total(rows.sum(axis=0))), scores)


def mean(score: Callable[[str, str], float]) -> Metric:
  """Builds the metric whose total is the mean of `score`, in percent.

  Args:
    score: `(prediction, reference) -> float` in [0, 1].
  """
  percent = lambda sums: 100 * sums[0] / sums[1]
  return Metric(
    statistics=lambda *texts: (score(*texts), 1), total=percent, example=percent
  )


def standard_error(
  metric: Metric,
  predictions: Sequence[str],
  references: Sequence[str],
  seed: int,
  resamples: int = 1000,
) -> float:
  """Returns the bootstrap standard error of a metric's total.

  Predictions are resampled together with their references (Koehn, "Statistical
  Significance Tests for Machine Translation Evaluation", 2004).

  Args:
    metric: a metric.
    predictions: `N` texts, at least 2.
    references: `N` texts, one for each prediction.
    seed: seed of the resamples.
    resamples: number of resamples, at least 2. The relative error of the result
      is about `1 / sqrt(2 * resamples)`.

  Returns:
    The standard deviation of the total over resamples, in points from 0 to 100.
  """
  checks.check_integers('resamples', resamples, 2)
  rows = _statistics(metric, predictions, references)
  num = len(rows)
  checks.check_range('The number of predictions', num, 2)
  rng = np.random.default_rng(seed)
  totals = [
    metric.total(rows[rng.integers(num, size=num)].sum(axis=0))
    for _ in range(resamples)
  ]
  return float(np.std(totals, ddof=1))


def _statistics(
  metric: Metric, predictions: Sequence[str], references: Sequence[str]
) -> np.ndarray:
  """Returns the statistics of all examples, `[N, K]` float64."""
  _check(predictions, references)
  return np.array(
    [metric.statistics(*texts) for texts in zip(predictions, references)],
    np.float64,
  )


def _check(predictions: Any, references: Any) -> None:
  """Raises `ValueError` unless there are valid pairs of texts."""
  arguments = {'predictions': predictions, 'references': references}
  for name, texts in arguments.items():
    if isinstance(texts, str):
      raise ValueError(f'{name} must be a list of strings, got {texts!r}.')
    if not len(texts):
      raise ValueError(f'{name} must not be empty, got {texts!r}.')
    for index, text in enumerate(texts):
      if not isinstance(text, str):
        raise ValueError(f'{name}[{index}] must be a string, got {text!r}.')
  if len(predictions) != len(references):
    raise ValueError(
      'predictions must have as many entries as references '
      f'({len(references)}), got {len(predictions)}.'
    )
  for index, text in enumerate(references):
    if not text.strip():
      raise ValueError(f'references[{index}] must not be blank, got {text!r}.')
