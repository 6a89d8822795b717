"""BLEU, as `sacrebleu` computes it."""

from specjax.evaluation import scoring

_ORDER = 4  # Of the longest n-grams.


def bleu(tokenize: str = '13a') -> scoring.Metric:
  """Builds BLEU (Papineni et al., 2002; Post, 2018), case sensitive.

  The total is that of the corpus. A single example's score stops at the longest
  n-grams that it has (effective order): few sentences share four words in a row
  with their reference.

  Args:
    tokenize: how `sacrebleu` finds words. '13a' is for languages with spaces,
      'zh' for Chinese, 'ja-mecab' for Japanese (which needs `sacrebleu[ja]`),
      'char' for any language.

  Raises:
    ImportError: `sacrebleu` is not installed.
    ValueError: it does not know `tokenize`.
  """
  library = scoring.require('sacrebleu.metrics', 'bleu').BLEU
  if tokenize not in library.TOKENIZERS:
    raise ValueError(
      f'tokenize must be one of {", ".join(sorted(library.TOKENIZERS))}, got '
      f'{tokenize!r}.'
    )
  scorer = library(
    tokenize=tokenize, max_ngram_order=_ORDER, effective_order=True
  )

  def statistics(prediction, reference):
    score = scorer.sentence_score(prediction, [reference])
    return [*score.counts, *score.totals, score.sys_len, score.ref_len]

  def score(sums, effective_order):
    *counts, predicted, wanted = (int(number) for number in sums)
    return library.compute_bleu(
      counts[:_ORDER],
      counts[_ORDER:],
      predicted,
      wanted,
      smooth_method=scorer.smooth_method,
      effective_order=effective_order,
      max_ngram_order=_ORDER,
    ).score

  return scoring.Metric(
    statistics=statistics,
    total=lambda sums: score(sums, effective_order=False),
    each=lambda row: score(row, effective_order=True),
  )
