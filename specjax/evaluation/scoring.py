"""What metrics of text have in common: totals, and their standard errors."""

from collections.abc import Callable
from collections.abc import Sequence
import importlib
import types
from typing import NamedTuple

import numpy as np

from specjax import checks


class Scores(NamedTuple):
  """Scores of `N` predictions, from 0 to 100."""

  total: float  # of all together; not always the mean of `each`
  each: np.ndarray  # [N] float64


class Metric(NamedTuple):
  """A score of predictions against references, from 0 to 100.

  A score of many examples is a function of what adds up over them, so that a
  resample of the examples is scored without a look at their texts.

  Attributes:
    statistics: `(prediction, reference) -> [K]` numbers that add up.
    total: `(sums[K]) -> float`, the score of examples whose statistics were
      added.
    each: `(statistics[K]) -> float`, the score of one example.
  """

  statistics: Callable[[str, str], Sequence[float]]
  total: Callable[[np.ndarray], float]
  each: Callable[[np.ndarray], float]

  def __call__(
    self, predictions: Sequence[str], references: Sequence[str]
  ) -> Scores:
    """Scores predictions, each against its reference.

    Raises:
      ValueError: there are none, or not as many of one as of the other; one is
        no string; a reference is blank, or lacks what the metric compares.
    """
    rows = _statistics(self, predictions, references)
    each = np.array([self.each(row) for row in rows], np.float64)
    return Scores(float(self.total(rows.sum(axis=0))), each)


def mean(score: Callable[[str, str], float]) -> Metric:
  """Builds the metric whose total is the mean of `score`, in percent.

  Args:
    score: `(prediction, reference) -> float` in [0, 1].
  """
  percent = lambda sums: 100 * sums[0] / sums[1]
  return Metric(
    statistics=lambda *texts: (score(*texts), 1), total=percent, each=percent
  )


def standard_error(
  metric: Metric,
  predictions: Sequence[str],
  references: Sequence[str],
  seed: int,
  resamples: int = 1000,
) -> float:
  """Returns the standard error of a metric's total, by the bootstrap.

  A prediction is drawn together with its reference. The source is Koehn,
  "Statistical Significance Tests for Machine Translation Evaluation" (2004).

  Args:
    metric: from a factory of `METRICS`.
    predictions: `N` texts, at least 2.
    references: of each prediction.
    seed: of the resamples.
    resamples: how many times `N` examples are drawn, at least 2. The relative
      error of what is returned is about `1 / sqrt(2 * resamples)`.

  Returns:
    The standard deviation of the total over resamples, in its own unit.
  """
  checks.check_range('resamples', resamples, 2)
  rows = _statistics(metric, predictions, references)
  num = len(rows)
  checks.check_range('The number of predictions', num, 2)
  rng = np.random.default_rng(seed)
  totals = [
    metric.total(rows[rng.integers(num, size=num)].sum(axis=0))
    for _ in range(resamples)
  ]
  return float(np.std(totals, ddof=1))


def require(module: str, metric: str) -> types.ModuleType:
  """Imports what only a metric needs.

  Raises:
    ImportError: it is not installed; the message shows how to.
  """
  try:
    return importlib.import_module(module)
  except ImportError as error:
    raise ImportError(
      f'The metric {metric!r} needs the package {module.split(".")[0]}: '
      "pip install 'specjax[evaluation]'"
    ) from error


def _statistics(metric, predictions, references):
  """`[N, K]` float64."""
  _check(predictions, references)
  return np.array(
    [metric.statistics(*texts) for texts in zip(predictions, references)],
    np.float64,
  )


def _check(predictions, references):
  named = {'predictions': predictions, 'references': references}
  for name, texts in named.items():
    if isinstance(texts, str):
      raise ValueError(f'{name} must be a list of strings, got {texts!r}.')
    if not len(texts):
      raise ValueError(f'{name} must not be empty, got {texts!r}.')
    for index, text in enumerate(texts):
      if not isinstance(text, str):
        raise ValueError(f'{name}[{index}] must be a string, got {text!r}.')
  if len(predictions) != len(references):
    raise ValueError(
      f'predictions must be as many as references ({len(references)}), got '
      f'{len(predictions)}.'
    )
  for index, text in enumerate(references):
    if not text.strip():
      raise ValueError(f'references[{index}] must not be blank, got {text!r}.')
