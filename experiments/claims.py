"""Judges the papers' claims in `docs/results/claims.csv` by the kept results.

Each line of the file is a claim. Its columns are:

    source       the name of the paper
    name         a short name, for figures
    claim        the claim, as a sentence
    result       the name of the results in `docs/results/data`
    numerator    a query that selects the rows that are judged, all if empty
    denominator  a query that selects one row by which they are divided, or ''
    column       the column with the numbers; 'measured' for ratios that the
                 result has computed, with the error of paired prompts
    at_least     the lower threshold
    at_most      the upper threshold
    paper        the paper's number, or a ratio of two; ratios that the result
                 has computed come with it
    explanation  the reason why the claim does not hold, or is undecided

A claim holds if all of its rows are inside the thresholds by two standard
errors or more, does not hold if one row is outside by as much, and is undecided
otherwise. Verdicts follow from the numbers.
"""

from collections.abc import Mapping
import math
import pathlib
from typing import Any

import pandas as pd

from experiments.common import paper
from experiments.common import results

FILE = pathlib.Path(__file__).parents[1] / 'docs' / 'results' / 'claims.csv'
HOLDS, FAILS, OPEN = 'holds', 'does not hold', 'undecided'
# Differences up to this number of standard errors are noise.
_NOISE = 2


def read(path: pathlib.Path = FILE) -> pd.DataFrame:
  """Reads the claims; text that a claim lacks is empty.

  Raises:
    ValueError: a line has more fields than the header.
  """
  claims = pd.read_csv(path)
  if not isinstance(claims.index, pd.RangeIndex):
    raise ValueError(
      f'{path} has a line with more fields than the header: text with commas '
      'must be in quotes.'
    )
  texts = claims.columns.difference(['at_least', 'at_most'])
  return claims.assign(
    at_least=claims['at_least'].fillna(-math.inf),
    at_most=claims['at_most'].fillna(math.inf),
    **claims[texts].astype(object).fillna(''),
  )


def judge_all(
  claims: pd.DataFrame, contents: Mapping[str, Any]
) -> pd.DataFrame:
  """Returns the claims with verdicts.

  The columns `threshold`, `ours`, `ours_error`, `paper`, `ours / paper` and
  `verdict` have the worst row of each claim; `margin` is its distance from the
  threshold, in the unit of the column and negative outside.

  Args:
    claims: the claims, as from `read`.
    contents: the contents of results, by name.

  Raises:
    ValueError: a claim has no result, or its result lacks a row or the column.
  """
  verdicts = []
  for claim in claims.to_dict('records'):
    if claim['result'] not in contents:
      raise ValueError(
        f'The claim {claim["name"]!r} needs {claim["result"]}, of which no '
        'result is kept.'
      )
    verdicts.append(judge(claim, contents[claim['result']]))
  verdicts = results.frame(verdicts).set_index(claims.index)
  return claims.drop(columns='paper').join(verdicts)


def judge(claim: Mapping[str, Any], content: Mapping[str, Any]) -> results.Row:
  """Returns the verdict on a claim, by its worst row.

  Raises:
    ValueError: the result lacks the row or the column of the claim.
  """
  rows = results.frame([*content['rows'], *content['claims']])
  column = claim['column']
  numerators = _select(claim, rows, claim['numerator'])
  if claim['denominator']:
    divisor = _select(claim, rows, claim['denominator'])[0]
    numerators = [_ratio(row, divisor, column) for row in numerators]
  low, high = claim['at_least'], claim['at_most']
  distance = lambda row: (
    _num_errors(row, column, low, high),
    _margin(row[column], low, high),
  )
  worst = min(numerators, key=distance)
  ours = float(worst[column])
  number = _ratio_of(claim['paper']) or worst.get('paper')
  if column != 'measured' and not claim['paper']:
    number = None
  return {
    'threshold': _threshold(low, high),
    'paper': number,
    'ours': ours,
    'ours_error': worst.get(f'{column}_error'),
    'ours / paper': ours / number if number else None,
    'margin': _margin(ours, low, high),
    'verdict': _verdict(distance(worst)[0]),
  }


def _select(
  claim: Mapping[str, Any], rows: pd.DataFrame, query: str
) -> list[results.Row]:
  """Returns the rows of a query that have the number of the claim."""
  place = f'The claim {claim["name"]!r} needs rows of {claim["result"]} with'
  if claim['column'] not in rows:
    raise ValueError(f'{place} the column {claim["column"]!r}, which it lacks.')
  rows = rows.dropna(subset=claim['column'])
  try:
    selected = rows.query(query) if query else rows
  except (NameError, KeyError) as error:
    raise ValueError(f'{place} {query}: {error}.') from error
  if selected.empty:
    column = claim['column']
    raise ValueError(f'{place} {query} and a value of {column!r}, got none.')
  return results.records(selected)


def _ratio(row: results.Row, divisor: results.Row, column: str) -> results.Row:
  """Returns the ratio of two rows, whose errors are independent."""
  ratio = row[column] / divisor[column]
  errors = (number.get(f'{column}_error') for number in (row, divisor))
  error = paper.ratio_error(ratio, *errors, divisor[column])
  return {column: ratio, f'{column}_error': error}


def _ratio_of(text: str) -> float | None:
  """Returns the number of a text such as '1.5' or '3 / 2'."""
  above, _, below = str(text).partition('/')
  return float(above) / float(below or 1) if above else None


def _margin(value: float, low: float, high: float) -> float:
  return min(value - low, high - value)


def _num_errors(
  row: results.Row, column: str, low: float, high: float
) -> float:
  """Returns how many standard errors a row is inside the thresholds.

  A number without an error is inside or outside; on the threshold, inside.
  """
  margin, error = _margin(row[column], low, high), row.get(f'{column}_error')
  return margin / error if error else math.copysign(math.inf, margin)


def _threshold(low: float, high: float) -> str:
  if math.isinf(high):
    return f'at least {low:g}'
  return f'at most {high:g}' if math.isinf(low) else f'{low:g} to {high:g}'


def _verdict(num_errors: float) -> str:
  if num_errors >= _NOISE:
    return HOLDS
  return FAILS if num_errors <= -_NOISE else OPEN
