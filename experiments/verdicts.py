"""Judges the papers' claims by the kept results."""

from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any
from typing import NamedTuple

HOLDS, FAILS, OPEN = 'holds', 'does not hold', 'undecided'
# No row reached the point at which it is to be compared.
MISSING = 'not reached'
# Differences up to this number of standard errors are noise.
_NOISE = 2

Row = dict[str, Any]


class Claim(NamedTuple):
  """A claim of a paper, and the rows of a result that it is judged by.

  A claim holds if all of these rows are inside the thresholds by two standard
  errors or more, does not hold if one row is outside by as much, and is
  undecided otherwise.

  Attributes:
    source: the name of the paper.
    text: the claim, as a sentence.
    result: the name of the results in `docs/results/data`.
    where: columns that rows must have.
    field: the column that is judged; 'measured' for rows of the paper's claims.
    low: the lower threshold.
    high: the upper threshold.
    paper: the paper's number, if no row of the paper's claims has it.
    explanation: the reason why the claim does not hold, or is undecided.
  """

  source: str
  text: str
  result: str
  where: Mapping[str, Any]
  field: str
  low: float = -math.inf
  high: float = math.inf
  paper: float | None = None
  explanation: str = ''

  @property
  def threshold(self) -> str:
    """Returns the thresholds as text."""
    if math.isinf(self.high):
      return f'at least {self.low:g}'
    if math.isinf(self.low):
      return f'at most {self.high:g}'
    return f'{self.low:g} to {self.high:g}'


def judge(claim: Claim, contents: Mapping[str, Any]) -> Row | None:
  """Returns the verdict on a claim, by its worst row; None without results.

  Args:
    claim: the claim.
    contents: the contents of results, by name.
  """
  if claim.result not in contents:
    return None
  content = contents[claim.result]
  rows = [
    row
    for row in [*content['rows'], *content['claims']]
    if row.get(claim.field) is not None
    and all(row.get(name) == value for name, value in claim.where.items())
  ]
  verdict = {
    'source': claim.source,
    'claim': claim.text,
    'threshold': claim.threshold,
    'paper': claim.paper,
    'measured': None,
    'measured_error': None,
    'ours / paper': None,
    'verdict': MISSING,
    'explanation': claim.explanation,
    'result': claim.result,
  }
  if not rows:
    return verdict
  worst = min(rows, key=lambda row: _margin(claim, row))
  num_errors, _ = _margin(claim, worst)
  measured = float(worst[claim.field])
  number = claim.paper
  if claim.field == 'measured':
    number = worst['paper']
  return verdict | {
    'paper': number,
    'measured': measured,
    'measured_error': worst.get(f'{claim.field}_error'),
    'ours / paper': measured / number if number else None,
    'verdict': _verdict(num_errors),
  }


def judge_all(
  claims: Sequence[Claim], contents: Mapping[str, Any]
) -> list[Row]:
  """Returns the verdicts on the claims that have results."""
  verdicts = [judge(claim, contents) for claim in claims]
  return [verdict for verdict in verdicts if verdict]


def _margin(claim: Claim, row: Row) -> tuple[float, float]:
  """Returns how far inside the thresholds a row is.

  Returns:
    The margin in standard errors, and in the unit of the field; both are
    negative outside.
  """
  value = row[claim.field]
  least = min(value - claim.low, claim.high - value)
  error = row.get(f'{claim.field}_error')
  # A number without an error is inside or outside; on the threshold, inside.
  return least / error if error else math.copysign(math.inf, least), least


def _verdict(num_errors: float) -> str:
  if num_errors >= _NOISE:
    return HOLDS
  return FAILS if num_errors <= -_NOISE else OPEN
