"""ROUGE (Lin, 2004), as `rouge-score` computes it.

The F-measure of what a prediction and its reference share; the total is the
mean. Words are runs of the letters a to z and of digits, in lower case: other
scripts have none, and score 0.
"""

from specjax.evaluation import scoring


def rouge1(use_stemmer: bool = True) -> scoring.Metric:
  """Builds ROUGE-1: single words.

  Args:
    use_stemmer: compare words by their Porter stems.

  Raises:
    ImportError: `rouge-score` is not installed.
  """
  return _rouge('rouge1', use_stemmer)


def rouge2(use_stemmer: bool = True) -> scoring.Metric:
  """Builds ROUGE-2: pairs of neighbouring words; otherwise as `rouge1`."""
  return _rouge('rouge2', use_stemmer)


def rouge_l(use_stemmer: bool = True) -> scoring.Metric:
  """Builds ROUGE-L: the longest common subsequence of the whole texts.

  Otherwise as `rouge1`.
  """
  return _rouge('rougeL', use_stemmer)


def _rouge(name, use_stemmer):
  library = scoring.require('rouge_score.rouge_scorer', name)
  scorer = library.RougeScorer([name], use_stemmer=use_stemmer)
  return scoring.mean(
    lambda prediction, reference: (
      scorer.score(target=reference, prediction=prediction)[name].fmeasure
    )
  )
