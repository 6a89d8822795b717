"""ROUGE (Lin, 2004), as `rouge-score` computes it.

A score is the F-measure of the n-grams that a prediction and its reference
share, and the total is the mean. Words are sequences of the letters a to z and
of digits, in lower case, so that texts in other scripts have none and score 0.
"""

from specjax import optional
from specjax.evaluation import scoring


def rouge1(use_stemmer: bool = True) -> scoring.Metric:
  """Builds ROUGE-1: single words.

  Args:
    use_stemmer: whether to compare words by their Porter stems.

  Raises:
    ValueError: `rouge-score` is not installed.
  """
  return _rouge('rouge1', use_stemmer)


def rouge2(use_stemmer: bool = True) -> scoring.Metric:
  """Builds ROUGE-2: pairs of adjacent words.

  Args:
    use_stemmer: See `rouge1`.

  Raises:
    ValueError: `rouge-score` is not installed.
  """
  return _rouge('rouge2', use_stemmer)


def rouge_l(use_stemmer: bool = True) -> scoring.Metric:
  """Builds ROUGE-L: the longest common subsequence of the whole texts.

  Args:
    use_stemmer: See `rouge1`.

  Raises:
    ValueError: `rouge-score` is not installed.
  """
  return _rouge('rougeL', use_stemmer)


def _rouge(name: str, use_stemmer: bool) -> scoring.Metric:
  """Builds the metric with a name in `rouge-score`."""
  library = optional.load(
    'rouge_score.rouge_scorer', 'evaluation', f'The metric {name!r}'
  )
  scorer = library.RougeScorer([name], use_stemmer=use_stemmer)
  return scoring.mean(
    lambda prediction, reference: (
      scorer.score(target=reference, prediction=prediction)[name].fmeasure
    )
  )
