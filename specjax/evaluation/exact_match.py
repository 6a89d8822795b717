"""Whether short answers are the same."""

import re
import string

from specjax.evaluation import scoring

_NO_PUNCTUATION = str.maketrans('', '', string.punctuation)
_ARTICLES = re.compile(r'\b(a|an|the)\b')


def exact_match(anywhere: bool = False) -> scoring.Metric:
  """Builds exact match (Rajpurkar et al., 2016), in percent.

  Lower case, without punctuation and articles, white space collapsed. A text of
  which this leaves nothing ('A+', '---') stays with its own characters: it
  matches no other such text, nor an empty prediction.

  Args:
    anywhere: whether the reference may occur inside of a prediction, in whole
      words, as models that answer in sentences write it.
  """

  def score(prediction: str, reference: str) -> float:
    predicted, expected = _normal(prediction), _normal(reference)
    if anywhere:
      return float(f' {expected} ' in f' {predicted} ')
    return float(predicted == expected)

  return scoring.mean(score)


def _normal(text: str) -> str:
  """Drops what a comparison ignores."""
  lower = text.lower()
  bare = _ARTICLES.sub(' ', lower.translate(_NO_PUNCTUATION))
  return ' '.join(bare.split() or lower.split())
