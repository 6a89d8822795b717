"""Whether solutions of word problems arrive at the same number."""

import decimal
import re

from specjax.evaluation import scoring

_MARK = '####'
# A minus behind a digit, a letter or a bracket is a difference or a hyphen.
_NUMBER = re.compile(
  r'(?P<sign>(?<![\w)])[-−])?[$€£¥]?'
  r'(?P<size>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?'
  r'|(?<![0-9])\.[0-9]+)'
)


def final_number() -> scoring.Metric:
  """Builds the exact match of final numbers, in percent.

  GSM8K (Cobbe et al., 2021) ends a solution with '#### 42'. A text's number is
  the first one behind its first '####'; without one, the last of the text.
  Commas between thousands, currency signs and trailing periods do not count,
  and '8,000' equals '8000.0'. A prediction without a number is wrong; a
  reference without one raises a `ValueError`.
  """
  return scoring.mean(_score)


def _score(prediction, reference):
  wanted = _final(reference)
  if wanted is None:
    raise ValueError(f'references must hold a number each, got {reference!r}.')
  return float(_final(prediction) == wanted)


def _final(text):
  """The number of a text, or None."""
  marked = _NUMBER.search(text.partition(_MARK)[2])
  found = marked or next(reversed(list(_NUMBER.finditer(text))), None)
  if found is None:
    return None
  # Not `int`, which refuses thousands of digits in a row.
  number = decimal.Decimal(found['size'].replace(',', ''))
  return number.copy_negate() if found['sign'] else number
