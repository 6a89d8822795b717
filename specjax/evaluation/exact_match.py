"""Exact match of short answers."""

import re
import string

from specjax.evaluation import scoring

_NO_PUNCTUATION = str.maketrans('', '', string.punctuation)
_ARTICLES = re.compile(r'\b(a|an|the)\b')


def exact_match(anywhere: bool = False) -> scoring.Metric:
  """Builds exact match (Rajpurkar et al., 2016), in percent.

  Texts are compared in lower case, without punctuation and articles, and with
  white space collapsed. A text that would become empty ('A+', '---') keeps its
  characters, so that it matches neither another such text nor an empty one.
  Each line of a reference is an accepted answer.

  Args:
    anywhere: whether the reference may occur inside of a prediction, as whole
      words. This suits models that answer in sentences.
  """

  def score(prediction: str, reference: str) -> float:
    predicted = _normalize(prediction)
    lines = [line for line in reference.splitlines() if line.strip()]
    accepted = list(map(_normalize, lines or ['']))
    if anywhere:
      return float(any(f' {line} ' in f' {predicted} ' for line in accepted))
    return float(predicted in accepted)

  return scoring.mean(score)


def _normalize(text: str) -> str:
  """Returns a text in the form in which it is compared."""
  lower = text.lower()
  bare = _ARTICLES.sub(' ', lower.translate(_NO_PUNCTUATION))
  return ' '.join(bare.split() or lower.split())
