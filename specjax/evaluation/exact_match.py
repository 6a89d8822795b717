"""Whether short answers are the same."""

import re
import string

from specjax.evaluation import scoring

_NO_PUNCTUATION = str.maketrans('', '', string.punctuation)
_ARTICLES = re.compile(r'\b(a|an|the)\b')


def exact_match(
  separator: str | None = None, anywhere: bool = False
) -> scoring.Metric:
  """Builds exact match (Rajpurkar et al., 2016), in percent.

  Lower case, without punctuation and articles, white space collapsed. A text of
  which this leaves nothing ('A+', '---') stays with its own characters: it
  matches no other such text, nor an empty prediction.

  Args:
    separator: None takes a reference for one answer. Otherwise it stands
      between answers of a reference, each of which is right, as is the whole.
      An answer that holds the separator itself falls into parts.
    anywhere: whether an answer may stand inside of a prediction, in whole
      words, as models answer that speak in sentences.
  """
  if separator is not None and not separator:
    raise ValueError(f'separator must be None or not empty, got {separator!r}.')

  def score(prediction, reference):
    answers = [reference]
    if separator is not None:
      answers += [part for part in reference.split(separator) if part.strip()]
    said, wanted = _normal(prediction), list(map(_normal, answers))
    if anywhere:
      return float(any(f' {each} ' in f' {said} ' for each in wanted))
    return float(said in wanted)

  return scoring.mean(score)


def _normal(text):
  lower = text.lower()
  bare = _ARTICLES.sub(' ', lower.translate(_NO_PUNCTUATION))
  return ' '.join(bare.split() or lower.split())
