"""Exact match of the final numbers of solutions to word problems."""

import decimal
import re

from specjax.evaluation import scoring

# After a digit, a letter or a bracket, a minus is a difference or a hyphen.
_NUMBER = re.compile(
  r'(?P<sign>(?<![\w)])[-−])?[$€£¥]?'
  r'(?P<size>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?'
  r'|(?<![0-9])\.[0-9]+)'
)
# Elsewhere, the mark is a heading of Markdown.
_MARKED = re.compile(f'#### *{_NUMBER.pattern}')


def final_number() -> scoring.Metric:
  """Builds the exact match of final numbers, in percent.

  GSM8K (Cobbe et al., 2021) ends a solution with '#### 42'. The number of a
  text is the first one that follows '####' or, if there is none, the last one
  in the text. Commas between thousands, also '{,}', currency signs and trailing
  periods are ignored, and '8,000' equals '8000.0'. A prediction without a
  number is wrong; a reference without one raises a `ValueError`.
  """
  return scoring.mean(_score)


def _score(prediction: str, reference: str) -> float:
  """Returns whether the final numbers of two texts are equal, as 0 or 1."""
  expected = _final(reference)
  if expected is None:
    raise ValueError(f'references must contain numbers, got {reference!r}.')
  return float(_final(prediction) == expected)


def _final(text: str) -> decimal.Decimal | None:
  """Returns the final number of a text, or None."""
  text = text.replace('{,}', ',')
  match = _MARKED.search(text) or next(
    reversed(list(_NUMBER.finditer(text))), None
  )
  if match is None:
    return None
  # `int` refuses numbers with thousands of digits.
  number = decimal.Decimal(match['size'].replace(',', ''))
  return number.copy_negate() if match['sign'] else number
