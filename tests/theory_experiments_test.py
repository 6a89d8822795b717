"""Theory's experiments, tiny: their rows, and that they count what they say."""

import functools
import math

import matplotlib.image
import ml_collections
import numpy as np
import pytest

from experiments import pareto
from experiments import rejections
from experiments import results
from specjax import theory
from specjax import verifiers
from tests import experiments_test
from tests import parts

pytestmark = pytest.mark.slow

_REJECTIONS = {
  'vocab_size': 3,
  'concentration': 1.0,
  'horizons': (4, 6),
  'num_drafts': (1, 2),
  'simulated_drafts': (3,),
  'simulated_runs': 20000,
  'runs_per_chunk': 8000,
  'decoded_horizons': (4,),
  'decoded_drafts': (1, 3),
  'decoded_runs': 2000,
  'batch_size': 800,
}
_PARETO = {'num_pairs': 2, 'epsilons': (0.0, 0.1), 'runs': 40000}
_IMPROVEMENT = {
  'max_drafts': 4,
  'bernoulli_drafts': (0.6, 0.9),
  'uniform_targets': (60, 30),
}


def _run(name, changes, workdir):
  config = experiments_test._load(f'theory/{name}.py')
  config.update(changes)
  return experiments_test._run(config, workdir)


def _drawn(workdir):
  images = sorted(workdir.glob('*.png'))
  assert all(matplotlib.image.imread(path).std() > 0 for path in images)
  return [path.stem for path in images]


# Rejections.


@pytest.fixture(scope='module')
def counted(tmp_path_factory):
  """The workdir, and rows by source, horizon and number of drafts."""
  workdir = tmp_path_factory.mktemp('rejections')
  rows = _run('rejections', _REJECTIONS, workdir)
  names = ('source', 'horizon', 'num_drafts')
  return workdir, {tuple(row[name] for name in names): row for row in rows}


def test_rejections_have_a_row_for_each_case_and_plots(counted):
  workdir, rows = counted
  assert list(rows) == [
    *(('theory', h, k) for h in (4, 6) for k in (1, 2, 'infinity')),
    *(('simulation', h, 3) for h in (4, 6)),
    *(('decoder', 4, k) for k in (1, 3)),
  ]
  for (source, horizon, _), row in rows.items():
    assert row['acceleration'] == pytest.approx(horizon / row['rejections'])
    assert source == 'theory' or row['rounds_per_second'] > 0
  assert _drawn(workdir) == ['num_drafts', 'running_mean']


def test_theory_rows_are_of_the_tables_that_are_run(counted):
  """One draft: distances along the target's marginals, summed by hand."""
  _, rows = counted
  target, draft = rejections.tables(3, 4, 1.0, seed=10)
  reached, expected = np.full(3, 1 / 3), 0
  for probs, other in zip(target, draft):
    expected += reached @ np.abs(probs - other).sum(1) / 2
    reached = reached @ probs
  found = [rows['theory', 4, k]['rejections'] for k in (1, 2, 'infinity')]
  assert found[0] == pytest.approx(expected, abs=1e-5)
  assert found[0] > found[1] > found[2] > 0


@pytest.mark.parametrize('source', ['simulation', 'decoder'])
def test_counts_agree_with_theory(counted, source):
  """Within 4 standard errors, of about 0.007 and 0.02 rejections.

  Counts off by 8, of some 1.3 to 1.9 rejections, fail with 0.9999.
  """
  _, rows = counted
  runs = {'simulation': 20000, 'decoder': 2000}[source]
  for (of, horizon, num_drafts), row in rows.items():
    if of == source:
      pair = rejections.tables(3, 6, 1.0, seed=10)
      expected = theory.batch_expected_rejections(*pair, horizon, num_drafts)
      error = row['standard_error']
      assert row['runs'] == runs and 0 < error < horizon / runs**0.5
      assert row['deviation'] * error == pytest.approx(
        row['rejections'] - expected
      )
      assert abs(row['deviation']) < 4


@pytest.mark.parametrize('source', ['simulation', 'decoder'])
def test_a_broken_rule_deviates(monkeypatch, source):
  """A rejected draft becomes a target sample, and may be drawn once more."""
  config = ml_collections.ConfigDict(_REJECTIONS | {'seed': 0})
  pair = rejections.tables(3, 6, 1.0, seed=10)
  if source == 'simulation':
    simulate = theory.simulate

    class Broken:
      lower = functools.partial(simulate.lower, coupling=parts.resampling)

    monkeypatch.setattr(theory, 'simulate', Broken)
    counts, _ = rejections.simulated(*pair, 4, 1, config)
  else:
    broken = verifiers.tree_walk(parts.resampling)
    monkeypatch.setattr(verifiers, 'resolve', lambda name: broken)
    counts, _ = rejections.decoded(*pair, 4, 1, config)
  expected = theory.expected_rejections(*pair, 4)
  assert abs(rejections.statistics(counts, 4, expected)['deviation']) > 8


@pytest.mark.parametrize(
  ('count', 'draft', 'lost', 'rounds'),
  [
    ('simulated', (0, 1, 0, 1), 2, 2),
    ('simulated', (1, 1, 0, 0), 2, 3),
    ('decoded', (0, 1, 1, 0), 2, 3),
  ],
)
def test_counts_of_sure_rejections(monkeypatch, count, draft, lost, rounds):
  """The target says 0; a last round without a rejection counts as one."""
  monkeypatch.setattr(
    results, 'timed', lambda function, *args: (function(*args), 1)
  )
  small = {'runs_per_chunk': 5, 'batch_size': 5, 'seed': 0}
  small |= {'simulated_runs': 10, 'decoded_runs': 10}
  config = ml_collections.ConfigDict(_REJECTIONS | small)
  sure = lambda tokens: np.eye(3, dtype=np.float32)[list(zip(*3 * [tokens]))]
  counts, rate = getattr(rejections, count)(
    sure((0, 0, 0, 0)), sure(draft), 4, 2, config
  )
  assert counts.tolist() == [lost] * 10
  assert rate == 10 * rounds


def test_a_longer_horizon_leaves_the_first_positions_as_they_are():
  short, long = (rejections.tables(3, horizon, 2.0, 0) for horizon in (2, 5))
  for first, whole in zip(short, long):
    assert first.shape == (2, 3, 3) and whole.shape == (5, 3, 3)
    np.testing.assert_array_equal(first, whole[:2])
    np.testing.assert_allclose(whole.sum(-1), 1, atol=1e-6)
  assert np.abs(long[0] - long[1]).max() > 0.1


def test_statistics_without_a_rejection():
  row = rejections.statistics(np.zeros(3), 5, 0.5)
  assert row['acceleration'] is row['deviation'] is None
  assert row['rejections'] == row['standard_error'] == 0


# The front.


@pytest.fixture(scope='module')
def points(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('pareto')
  return workdir, _run('pareto', _PARETO, workdir)


def test_formulas_of_the_front(points):
  """The residual stays on the line; the target's own samples lie above it."""
  workdir, rows = points
  pairs = pareto.pairs(2, 7, 1.0, seed=10)
  formulas = [row for row in rows if row['source'] == 'formula']
  assert len(formulas) == 8 and len(rows) == 16
  for row in formulas:
    draft, target = pairs[row['pair']]
    distance = np.abs(draft - target).sum() / 2
    kept = np.minimum(draft, target + row['epsilon']).sum()
    assert row['total_variation'] == pytest.approx(distance, abs=1e-5)
    assert row['rejection'] == pytest.approx(1 - kept, abs=1e-5)
    above = row['rejection'] + row['bias'] - distance
    if row['replacement'] == 'residual':
      assert above == pytest.approx(0, abs=1e-5)
    else:
      assert above > 0.01
  assert _drawn(workdir) == ['front']


def test_verifier_lies_where_the_formulas_say(points):
  """Of 40000 runs, both within 0.0125: 5 standard errors of the rejection.

  A bias or a rejection that is off by 0.025 fails with 0.9999.
  """
  _, rows = points
  for formula, measured in zip(rows[::2], rows[1::2]):
    assert formula['source'] == 'formula'
    assert measured['source'] == 'verifier'
    for name in ('rejection', 'bias'):
      assert measured[name] == pytest.approx(formula[name], abs=0.0125)
    same = ('pair', 'epsilon', 'replacement')
    assert [formula[name] for name in same] == [measured[name] for name in same]


# Batch improvement.


def test_batch_improvement(tmp_path):
  """Figure 3, by values computed by hand; closed forms against products."""
  curves = {}
  for row in _run('batch_improvement', _IMPROVEMENT, tmp_path):
    assert row['improvement'] == pytest.approx(row['closed_form'], abs=2e-6)
    curve = curves.setdefault((row['pair'], round(row['limit'], 6)), [])
    curve.append(row['improvement'])
    assert row['num_drafts'] == len(curve)
  expected = {
    ('draft Ber(0.6)', 0.1): [0, 0.04, 0.064, 0.0784],
    ('draft Ber(0.9)', 0.4): [0, 0.04, 0.076, 0.1084],
    ('target U(60), ratio 2', 0.5): [0, 0.25, 0.375, 0.4375],
    ('target U(30), ratio 4', 0.75): [0, 0.1875, 0.328125, 0.43359375],
  }
  assert list(curves) == list(expected)
  for name, values in expected.items():
    np.testing.assert_allclose(curves[name], values, atol=2e-6)
  assert _drawn(tmp_path) == ['batch_improvement']


# What they share.


@pytest.mark.parametrize(
  ('name', 'changes', 'message'),
  [
    ('rejections', {'vocab_size': 1}, 'vocab_size must be >= 2'),
    ('rejections', {'horizons': ()}, 'at least one horizon'),
    ('rejections', {'horizons': (50, 0)}, 'horizons must be >= 1'),
    ('rejections', {'simulated_drafts': (1, 0)}, 'simulated_drafts'),
    ('rejections', {'decoded_horizons': (40,)}, r'horizons=\(50, 100\), got'),
    ('rejections', {'decoded_runs': 1}, 'decoded_runs must be >= 2'),
    ('rejections', {'concentration': math.nan}, 'concentration'),
    ('pareto', {'epsilons': (0.1, -0.1)}, 'epsilons'),
    ('pareto', {'epsilons': ()}, 'epsilons'),
    ('pareto', {'runs': 0}, 'runs must be >= 1'),
    ('pareto', {'concentration': 0.0}, 'concentration'),
    ('batch_improvement', {'max_drafts': 0}, 'max_drafts'),
    ('batch_improvement', {'bernoulli_drafts': (0.4,)}, 'got 0.4'),
    ('batch_improvement', {'bernoulli_target': 1.5}, 'bernoulli_target'),
    ('batch_improvement', {'uniform_targets': (121,)}, 'got 121'),
  ],
)
def test_bad_values_are_refused_before_anything_runs(
  tmp_path, monkeypatch, name, changes, message
):
  monkeypatch.setattr(results, 'start', lambda workdir: pytest.fail('started'))
  with pytest.raises(ValueError, match=message):
    _run(name, changes, tmp_path)
