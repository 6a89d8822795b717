"""Verdicts on the papers' claims follow from kept results."""

import pathlib

import pytest

from experiments import claims
from experiments import report
from experiments import verdicts
from experiments.common import results

_DATA = pathlib.Path(__file__).parents[2] / 'docs' / 'results' / 'data'
_ROWS = (
  {'method': 'a', 'gain': 1.1, 'gain_error': 0.04},
  {'method': 'a', 'gain': 1.5, 'gain_error': 0.01},
  {'method': 'b', 'gain': 1.03, 'gain_error': 0.04},
  {'method': 'c', 'gain': 0.9, 'gain_error': 0.04},
  {'method': 'd', 'gain': 1.3},
  {'method': 'd', 'gain': 1.0},
  {'method': 'e'},
)
_RESULTS = {
  'x/y': {
    'rows': _ROWS,
    'claims': [
      {
        **{'claim': 'f over g', 'paper': 1.6},
        **{'measured': 2.0, 'measured_error': 0.1},
      }
    ],
  }
}


def _claim(name, field='gain', **bounds):
  row_filter = {'method': name} if len(name) == 1 else {'claim': name}
  return verdicts.Claim('P', 'more', 'x/y', row_filter, field, **bounds)


@pytest.mark.parametrize(
  ('name', 'bounds', 'measured', 'verdict'),
  [
    ('a', {'low': 1.0}, 1.1, verdicts.HOLDS),  # The worse of two.
    ('b', {'low': 1.0}, 1.03, verdicts.OPEN),
    ('c', {'low': 1.0}, 0.9, verdicts.FAILS),
    ('a', {'high': 1.2}, 1.5, verdicts.FAILS),
    ('c', {'low': 0.5, 'high': 0.91}, 0.9, verdicts.OPEN),
    ('d', {'low': 1.0}, 1.0, verdicts.HOLDS),  # Exact, the nearer of two.
    ('d', {'low': 1.1}, 1.0, verdicts.FAILS),
  ],
)
def test_verdicts_by_hand(name, bounds, measured, verdict):
  row = verdicts.judge(_claim(name, **bounds), _RESULTS)
  assert (row['measured'], row['verdict']) == (measured, verdict)


def test_a_ratio_of_the_paper_can_be_asked_for():
  row = verdicts.judge(_claim('f over g', 'measured', low=1.3), _RESULTS)
  assert row['verdict'] == verdicts.HOLDS and row['threshold'] == 'at least 1.3'
  assert (row['paper'], row['ours / paper']) == (1.6, 2.0 / 1.6)
  thresholds = (
    _claim('a', low=1.0, high=2.0).threshold,
    _claim('a', high=2.0).threshold,
  )
  assert thresholds == ('1 to 2', 'at most 2')


def test_what_follows_from_a_table_of_the_paper_stands_beside():
  row = verdicts.judge(_claim('a', low=1.0, paper=2.2), _RESULTS)
  assert (row['paper'], row['ours / paper']) == (2.2, 0.5)
  assert verdicts.judge(_claim('a', low=1.0), _RESULTS)['ours / paper'] is None


def test_what_no_row_reached_is_said_and_what_was_not_run_is_left_out():
  row = verdicts.judge(_claim('e', low=1.0), _RESULTS)
  assert (row['measured'], row['verdict']) == (None, verdicts.MISSING)
  assert verdicts.judge_all([_claim('a', low=1.0)], {}) == []


def test_all_claims_are_of_rows_that_are_there():
  kept_results = {
    path.relative_to(_DATA).with_suffix('').as_posix(): results.read(path)
    for path in _DATA.rglob('*.json')
  }
  rows = verdicts.judge_all(claims.CLAIMS, kept_results)
  assert len(rows) > 3
  for row in rows:  # Only what must reach a quality may miss.
    assert row['measured'] is not None or row['source'].endswith('cascades')
  names = [claim.text for claim in claims.CLAIMS]
  assert len(set(names)) == len(names)
  for claim in claims.CLAIMS:
    assert claim.low < claim.high


def test_predictions_are_of_all_domains_together():
  rows = [
    {
      **{'domain': domain, 'decoded': 3, 'block_efficiency': 2.0},
      'predicted_efficiency': predicted,
    }
    for domain, predicted in (('all', 1.8), ('code', 1.5), ('all', None))
  ]
  kept_results = {'x/y': {'rows': rows, 'claims': []}}
  assert report.predictions(kept_results) == [
    {'result': 'x/y', 'predicted': 1.8, 'measured': 2.0}
  ]
