"""Exact match of short answers."""

import re
import string

from specjax.evaluation import scoring

_NO_PUNCTUATION = str.maketrans('', '', string.punctuation)
_ARTICLES = re.compile(r'\b(a|an|the)\b')
_AROUND_WORDS = '.,;:!?"\'()[]'


def exact_match(anywhere: bool = False) -> scoring.Metric:
  """Builds exact match (Rajpurkar et al., 2016), in percent.

  Texts are compared in lower case, without punctuation and articles, and with
  white space collapsed. With a reference that would become empty ('A', 'A+',
  '---'), articles stay, and punctuation is only removed around words. Each line
  of a reference is an accepted answer.

  Args:
    anywhere: whether the reference may occur inside of a prediction, as whole
      words. This suits models that answer in sentences.
  """

  def score(prediction: str, reference: str) -> float:
    lines = [line for line in reference.splitlines() if line.strip()]
    return float(
      any(_matches(prediction, line, anywhere) for line in lines or [''])
    )

  return scoring.mean(score)


def _matches(prediction: str, answer: str, anywhere: bool) -> bool:
  """Returns whether a prediction equals, or contains, an accepted answer."""
  normalize = _bare if _bare(answer) else _words
  predicted, accepted = normalize(prediction), normalize(answer)
  if anywhere:
    return f' {accepted} ' in f' {predicted} '
  return predicted == accepted


def _bare(text: str) -> str:
  """Returns a text in lower case, without punctuation and articles."""
  bare = _ARTICLES.sub(' ', text.lower().translate(_NO_PUNCTUATION))
  return ' '.join(bare.split())


def _words(text: str) -> str:
  """Returns a text in lower case, without punctuation around words."""
  words = text.lower().split()
  return ' '.join(word.strip(_AROUND_WORDS) or word for word in words)
