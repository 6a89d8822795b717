"""BLEU, as `sacrebleu` computes it."""

import numpy as np

from specjax import optional
from specjax.evaluation import scoring

_ORDER = 4  # Length of the longest n-grams.


def bleu(tokenize: str = '13a') -> scoring.Metric:
  """Builds BLEU (Papineni et al., 2002; Post, 2018), case sensitive.

  The total is the score of the corpus. Scores of single examples use only
  n-grams that match (effective order), since few sentences share four
  consecutive words with their reference.

  Args:
    tokenize: tokenizer of `sacrebleu`: '13a' for languages with spaces, 'zh'
      for Chinese, 'ja-mecab' for Japanese (which requires `sacrebleu[ja]`),
      'char' for any language.

  Raises:
    ValueError: `sacrebleu` is not installed, or has no such tokenizer.
  """
  library = optional.load(
    'sacrebleu.metrics', 'evaluation', "The metric 'bleu'"
  ).BLEU
  if tokenize not in library.TOKENIZERS:
    raise ValueError(
      f'tokenize must be one of {", ".join(sorted(library.TOKENIZERS))}, got '
      f'{tokenize!r}.'
    )
  scorer = library(
    tokenize=tokenize, max_ngram_order=_ORDER, effective_order=True
  )

  def statistics(prediction: str, reference: str) -> list[float]:
    score = scorer.sentence_score(prediction, [reference])
    return [*score.counts, *score.totals, score.sys_len, score.ref_len]

  def score(sums: np.ndarray, effective_order: bool) -> float:
    *counts, predicted_length, reference_length = map(int, sums)
    return library.compute_bleu(
      counts[:_ORDER],
      counts[_ORDER:],
      predicted_length,
      reference_length,
      smooth_method=scorer.smooth_method,
      effective_order=effective_order,
      max_ngram_order=_ORDER,
    ).score

  return scoring.Metric(
    statistics=statistics,
    total=lambda sums: score(sums, effective_order=False),
    example=lambda row: score(row, effective_order=True),
  )
