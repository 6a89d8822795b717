"""Whether a claim of a paper holds, as it follows from the kept results."""

from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any
from typing import NamedTuple

HOLDS, FAILS, OPEN = 'holds', 'does not hold', 'undecided'
# Where a row never reached what it is to be compared at.
MISSING = 'not reached'
# How many standard errors are noise.
_NOISE = 2

Row = dict[str, Any]


class Claim(NamedTuple):
  """A claim of a paper, and the rows of a result that it is judged by.

  It holds if all of these rows lie within the bounds beyond two standard
  errors, fails if one lies outside of them by as much, and is open otherwise.
  """

  paper: str
  says: str
  result: str  # the name of results in `docs/results/data`
  where: Mapping[str, Any]  # columns that rows must have
  field: str  # of rows; of the paper's claims it is 'measured'
  low: float = -math.inf
  high: float = math.inf
  # The paper's number, where no row of its claims has it; or none.
  printed: float | None = None
  why: str = ''  # it does not hold, or is undecided

  @property
  def bound(self) -> str:
    """What is asked of the number."""
    if math.isinf(self.high):
      return f'at least {self.low:g}'
    if math.isinf(self.low):
      return f'at most {self.high:g}'
    return f'{self.low:g} to {self.high:g}'


def judge(claim: Claim, found: Mapping[str, Any]) -> Row | None:
  """Returns the verdict on a claim, by its worst row; None without results."""
  if claim.result not in found:
    return None
  content = found[claim.result]
  rows = [
    row
    for row in [*content['rows'], *content['claims']]
    if row.get(claim.field) is not None
    and all(row.get(name) == value for name, value in claim.where.items())
  ]
  verdict = {
    'paper': claim.paper,
    'claim': claim.says,
    'asked': claim.bound,
    'printed': claim.printed,
    'measured': None,
    'measured_error': None,
    'over_printed': None,
    'verdict': MISSING,
    'why': claim.why,
    'result': claim.result,
  }
  if not rows:
    return verdict
  worst = min(rows, key=lambda row: _inside(claim, row))
  inside, _ = _inside(claim, worst)
  measured = float(worst[claim.field])
  printed = claim.printed
  if claim.field == 'measured':
    printed = worst['paper']
  return verdict | {
    'printed': printed,
    'measured': measured,
    'measured_error': worst.get(f'{claim.field}_error'),
    'over_printed': measured / printed if printed else None,
    'verdict': _verdict(inside),
  }


def judged(claims: Sequence[Claim], found: Mapping[str, Any]) -> list[Row]:
  """Returns the verdicts on those claims that there are results of."""
  verdicts = [judge(claim, found) for claim in claims]
  return [verdict for verdict in verdicts if verdict]


def _inside(claim, row):
  """How far inside of the bounds a row lies: in standard errors, and as is."""
  value = row[claim.field]
  least = min(value - claim.low, claim.high - value)
  error = row.get(f'{claim.field}_error')
  # An exact number is inside or outside for sure; on the bound is inside.
  return least / error if error else math.copysign(math.inf, least), least


def _verdict(inside):
  if inside >= _NOISE:
    return HOLDS
  return FAILS if inside <= -_NOISE else OPEN
