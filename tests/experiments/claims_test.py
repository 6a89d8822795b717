"""Verdicts on the papers' claims follow from kept results."""

import math
import pathlib

import pytest

from experiments import claims
from experiments import figures
from experiments.common import results

_TEMPERATURE = 'sampling.temperature'
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
_CONTENT = {
  'rows': _ROWS,
  'claims': [
    {
      **{'claim': 'f over g', 'paper': 1.6},
      **{'measured': 2.0, 'measured_error': 0.1},
    }
  ],
}


def _claim(numerator, column='gain', low=-math.inf, high=math.inf, **fields):
  claim = {
    **{'name': 'more', 'result': 'x/y', 'numerator': numerator},
    **{'denominator': '', 'column': column, 'paper': ''},
    **{'at_least': low, 'at_most': high},
  }
  return claim | fields


def _method(name, **fields):
  return _claim(f'method == "{name}"', **fields)


@pytest.mark.parametrize(
  ('method', 'bounds', 'ours', 'verdict'),
  [
    ('a', {'low': 1.0}, 1.1, claims.HOLDS),  # The worse of two.
    ('b', {'low': 1.0}, 1.03, claims.OPEN),
    ('c', {'low': 1.0}, 0.9, claims.FAILS),
    ('a', {'high': 1.2}, 1.5, claims.FAILS),
    ('c', {'low': 0.5, 'high': 0.91}, 0.9, claims.OPEN),
    ('d', {'low': 1.0}, 1.0, claims.HOLDS),  # Exact, the nearer of two.
    ('d', {'low': 1.1}, 1.0, claims.FAILS),
  ],
)
def test_verdicts_by_hand(method, bounds, ours, verdict):
  row = claims.judge(_method(method, **bounds), _CONTENT)
  assert (row['ours'], row['verdict']) == (ours, verdict)


def test_a_ratio_of_the_paper_comes_with_its_number():
  claim = _claim('claim == "f over g"', 'measured', low=1.3)
  row = claims.judge(claim, _CONTENT)
  assert row['verdict'] == claims.HOLDS and row['threshold'] == 'at least 1.3'
  assert (row['paper'], row['ours / paper']) == (1.6, 2.0 / 1.6)
  thresholds = (
    claims.judge(_method('a', low=1.0, high=2.0), _CONTENT)['threshold'],
    claims.judge(_method('a', high=2.0), _CONTENT)['threshold'],
  )
  assert thresholds == ('1 to 2', 'at most 2')


def test_a_claim_has_a_number_or_a_ratio_of_the_paper():
  row = claims.judge(_method('a', low=1.0, paper='2.2'), _CONTENT)
  assert (row['paper'], row['ours / paper']) == (2.2, 0.5)
  row = claims.judge(_method('a', low=1.0, paper='4.4 / 2'), _CONTENT)
  assert row['paper'] == 2.2
  assert claims.judge(_method('a', low=1.0), _CONTENT)['ours / paper'] is None


def test_rows_are_divided_by_the_denominator():
  denominator = 'method == "c"'
  row = claims.judge(_method('b', denominator=denominator), _CONTENT)
  assert row['ours'] == pytest.approx(1.03 / 0.9)
  error = math.hypot(0.04, 1.03 / 0.9 * 0.04) / 0.9
  assert row['ours_error'] == pytest.approx(error)


@pytest.mark.parametrize(
  ('claim', 'sentence'),
  [
    (_method('e'), 'method == "e" and a value of \'gain\', got none'),
    (_method('z'), 'method == "z" and a value of \'gain\', got none'),
    (_method('a', denominator='method == "z"'), "a value of 'gain', got none"),
    (_method('a', column='loss'), "the column 'loss', which it lacks"),
    (_claim('role == "a"'), 'role == "a"'),
  ],
)
def test_a_claim_without_its_row_or_column_is_an_error(claim, sentence):
  with pytest.raises(ValueError, match="The claim 'more' needs rows of x/y"):
    claims.judge(claim, _CONTENT)
  with pytest.raises(ValueError) as error:
    claims.judge(claim, _CONTENT)
  assert sentence in str(error.value)


def test_a_claim_without_a_kept_result_is_an_error():
  table = claims.read()
  name, result = table[['name', 'result']].iloc[0]
  with pytest.raises(ValueError) as error:
    claims.judge_all(table, {'x/y': _CONTENT})
  message = f'The claim {name!r} needs {result}, of which no result is kept.'
  assert str(error.value) == message


def _kept():
  """Returns the contents of all kept results, by name."""
  return {
    path.relative_to(_DATA).with_suffix('').as_posix(): results.read(path)
    for path in _DATA.rglob('*.json')
  }


def test_all_claims_have_rows_in_kept_results():
  table = claims.read()
  verdicts = claims.judge_all(table, _kept())
  assert len(verdicts) == len(table) > 3
  assert verdicts['ours'].notna().all()
  for column in ('name', 'claim'):
    assert table[column].is_unique
  assert (table['at_least'] < table['at_most']).all()
  # Every claim that does not hold has an explanation or a number next to it.
  fails = verdicts[verdicts['verdict'] == claims.FAILS]
  assert (fails['explanation'] != '').all()


def test_text_with_commas_must_be_in_quotes(tmp_path):
  path = tmp_path / 'claims.csv'
  path.write_text('source,explanation\nA,first, second\n')
  with pytest.raises(ValueError, match='text with commas must be in quotes'):
    claims.read(path)


def test_predictions_are_for_all_domains_together():
  rows = [
    {
      **{'domain': domain, 'decoded': 3, 'block_efficiency': 2.0},
      **{'predicted_efficiency': predicted, 'method': 'm'},
    }
    for domain, predicted in (('all', 1.8), ('code', 1.5), ('all', None))
  ]
  table = figures.predictions({'x/y': {'rows': rows, 'claims': []}})
  assert table.to_dict('records') == [
    {'result': 'x/y', 'method': 'm', 'predicted': 1.8, 'measured': 2.0}
  ]


@pytest.mark.parametrize('variant', ['', '-sampled', '-mini'])
def test_growth_is_drawn_by_training_tokens(variant):
  """All heads are drawn at each temperature; all but the first one were fit."""
  contents = _kept()
  rows = contents[f'benchmark/growth{variant}']['rows']
  expected = sorted({row['training_tokens'] / 1000 for row in rows})
  (axes,) = figures.draw(f'train_growth{variant}', contents).axes
  drawn = [line.get_xdata().tolist() for line in axes.get_lines()]
  assert drawn.count(expected) == len({row[_TEMPERATURE] for row in rows}) == 2
  assert sum(len(positions) == len(expected) - 1 for positions in drawn) == 1


def test_an_unknown_figure_is_an_error():
  with pytest.raises(ValueError, match="Unknown figure 'x'. Known: banditspec"):
    figures.draw('x', {})
  assert figures.draw('theory_bias', {}) is None
