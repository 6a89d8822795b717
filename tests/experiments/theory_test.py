"""The theory paper's experiments: that they count what they say."""

import functools
import types

import matplotlib.image
import numpy as np
import pytest

from experiments import main
from experiments.common import workdirs
from experiments.theory import pareto
from experiments.theory import rejections
from experiments.theory import trees as trees_lib
from experiments.theory import winrate
from specjax import evaluation
from specjax import families
from specjax import theory
from specjax import trees
from specjax import verifiers
from tests import parts
from tests.experiments import toy

_REJECTIONS = {
  'vocab_size': 3,
  'horizons': (4,),
  'num_drafts': (1, 2),
  'simulated_drafts': (3,),
  'simulated_runs': 20000,
  'runs_per_chunk': 10000,
  'decoded_horizons': (4,),
  'decoded_drafts': (1, 3),
  'decoded_runs': 2000,
  'batch_size': 800,
  'means_at': (100, 1000),
}
_PARETO = {'positions': (0, 1), 'epsilons': (0.0, 0.1), 'runs': 40000}
_IMPROVEMENT = {
  'max_drafts': 4,
  'bernoulli_drafts': (0.6, 0.9),
  'uniform_targets': (60, 30),
}
_WINRATE = toy.SIZES | {
  'methods': (
    {'arm': 'none', 'label': 'target'},
    {'arm': 'none', 'label': 'small', 'target': 'small'},
    *(
      {
        'arm': f'small:2/over_acceptance({epsilon}, {replacement})',
        'label': label,
        'columns': {'epsilon': epsilon},
      }
      for epsilon in (0.0, 1.0)
      for label, replacement in (('OPT', 'residual'), ('UNO', 'target'))
    ),
  ),
  'comparisons': (('target', 'small'), ('OPT', 'UNO')),
  'num_seeds': 2,
}
_DIAGNOSE = toy.SIZES | {
  'methods': ('small:2/maximal',),
  'num_seeds': 8,
  'max_new_tokens': 16,
}
_LEDGER = toy.SIZES | {
  'methods': ('small:2/maximal',),
  'epsilons': (1e-4, 1e-3),  # The toys' vocabulary is large.
  'max_new_tokens': 16,
}


def _load(name, changes, family=None):
  return toy.config(f'theory/{name}', family, changes)


def _drawn(workdir):
  images = sorted(workdir.glob('*.png'))
  assert all(matplotlib.image.imread(path).std() > 0 for path in images)
  return [path.stem for path in images]


# Rejections.


def test_tables_are_probably_those_of_the_paper():
  """Figure 2: 16.41 rejections of 50 tokens; how far other seeds are off."""
  expected = [
    theory.expected_rejections(*rejections.tables(7, 50, seed), 50)
    for seed in range(300)
  ]
  assert expected[10] == pytest.approx(16.405, abs=5e-4)
  assert np.mean(expected) == pytest.approx(16.31, abs=0.01)
  assert np.std(expected) == pytest.approx(0.29, abs=0.01)


def test_tables_are_draft_and_then_target():
  numbers = np.random.RandomState(3)
  draft, target = (numbers.rand(5, 4, 4) for _ in range(2))
  found = rejections.tables(4, 5, 3)
  for table, wanted in zip(found, (target, draft)):
    assert table.shape == (5, 4, 4) and table.dtype == np.float32
    wanted /= wanted.sum(-1, keepdims=True)
    np.testing.assert_allclose(table, wanted, atol=1e-7)


@pytest.fixture(scope='module', name='counted')
def _counted(tmp_path_factory):
  """The workdir, and rows by source, number of drafts and runs."""
  workdir = tmp_path_factory.mktemp('rejections')
  rows = toy.run(_load('rejections', _REJECTIONS), workdir)
  names = ('source', 'num_drafts', 'runs')
  return workdir, {tuple(map(row.get, names)): row for row in rows}


@pytest.mark.slow
def test_rejections_have_a_row_for_each_case_and_plots(counted):
  workdir, rows = counted
  assert list(rows) == [
    *(('theory', 1, None), ('theory', 2, None)),
    ('limit of infinitely many drafts', None, None),
    *(('simulation', 3, n) for n in (100, 1000, 20000)),
    *(('decoder', k, n) for k in (1, 3) for n in (100, 1000, 2000)),
  ]
  for (source, *_), row in rows.items():
    assert row['horizon'] == 4
    if source == 'theory':
      assert row['acceleration'] * row['rejections'] == pytest.approx(4)
  assert _drawn(workdir) == ['num_drafts', 'running_mean']


@pytest.mark.slow
def test_theory_rows_are_of_the_tables_that_are_run(counted):
  """One draft: distances along the target's marginals, summed by hand."""
  _, rows = counted
  target, draft = rejections.tables(3, 4, seed=10)
  reached, expected = np.full(3, 1 / 3), 0
  for probs, other in zip(target, draft):
    expected += reached @ np.abs(probs - other).sum(1) / 2
    reached = reached @ probs
  cases = (
    ('theory', 1),
    ('theory', 2),
    ('limit of infinitely many drafts', None),
  )
  found = [rows[source, k, None]['rejections'] for source, k in cases]
  assert found[0] == pytest.approx(expected, abs=1e-5)
  assert found[0] > found[1] > found[2] > 0


@pytest.mark.slow
@pytest.mark.parametrize('source', ['simulation', 'decoder'])
def test_counts_agree_with_theory(counted, source):
  """Within 4 standard errors, of about 0.007 and 0.02 rejections.

  Counts off by 8, of some 0.9 to 1.5 rejections, fail with 0.9999.
  """
  _, rows = counted
  runs = {'simulation': 20000, 'decoder': 2000}[source]
  for (of, num_drafts, num), row in rows.items():
    if (of, num) == (source, runs):
      pair = rejections.tables(3, 4, seed=10)
      expected = theory.batch_expected_rejections(*pair, 4, num_drafts)
      error = row['rejections_error']
      assert 0 < error < 4 / runs**0.5
      assert row['excess'] == pytest.approx(row['rejections'] - expected)
      assert abs(row['excess']) < 4 * error


def _counts(source, config, workdir):
  count = {'simulation': rejections.simulated, 'decoder': rejections.decoded}
  return count[source](config, workdirs.Workdir(workdir, config))


@pytest.mark.slow
@pytest.mark.parametrize('source', ['simulation', 'decoder'])
def test_a_broken_rule_deviates(monkeypatch, tmp_path, source):
  """A rejected draft becomes a target sample, and may be drawn once more."""
  one = {'simulated_drafts': (1,), 'decoded_drafts': (1,)}
  config = _load('rejections', _REJECTIONS | one | {'simulated_runs': 60000})
  config.decoded_runs = 8000
  broken = functools.partial(theory.simulate, coupling=parts.Resampling())
  monkeypatch.setattr(theory, 'simulate', broken)
  walk = verifiers.TreeWalk(parts.Resampling())
  monkeypatch.setitem(verifiers.VERIFIERS, 'batch', lambda: walk)
  found = _counts(source, config, tmp_path)[source, 4, 1]
  expected = theory.expected_rejections(*rejections.tables(3, 4, seed=10), 4)
  row = rejections.statistics(found, expected)
  assert abs(row['excess']) > 8 * row['rejections_error']


@pytest.mark.slow
@pytest.mark.parametrize(
  ('source', 'draft'),
  [
    ('simulation', (0, 1, 0, 1)),
    ('simulation', (1, 1, 0, 0)),
    ('decoder', (0, 1, 1, 0)),
  ],
)
def test_counts_of_sure_rejections(monkeypatch, tmp_path, source, draft):
  """The target says 0; two drafts of 1 are each rejected in every run."""
  small = {'runs_per_chunk': 4, 'batch_size': 4}
  small |= {'simulated_runs': 8, 'decoded_runs': 10}
  small |= {'simulated_drafts': (2,), 'decoded_drafts': (2,)}
  sure = lambda tokens: np.eye(3, dtype=np.float32)[list(zip(*3 * [tokens]))]
  pair = sure((0, 0, 0, 0)), sure(draft)
  monkeypatch.setattr(rejections, 'tables', lambda *settings: pair)
  config = _load('rejections', _REJECTIONS | small)
  counts = _counts(source, config, tmp_path)
  num = {'simulation': 8, 'decoder': 10}[source]
  assert counts == {(source, 4, 2): [2] * num}


# The front.


@pytest.fixture(scope='module', name='points')
def _points(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('pareto')
  return workdir, toy.run(_load('pareto', _PARETO), workdir)


@pytest.mark.slow
def test_formulas_of_the_front(points):
  """OPT stays on the line; both forms of UNO lie above it, the code's more."""
  workdir, rows = points
  tables = rejections.tables(7, 50, 10)
  assert len(rows) == 12
  above = {rule: [] for rule in pareto.RULES}
  for row in rows:
    target, draft = (table[row['position'], 0] for table in tables)
    distance = np.abs(draft - target).sum() / 2
    kept = np.minimum(draft, target + row['epsilon'])
    assert row['total_variation'] == pytest.approx(distance, abs=1e-5)
    assert row['rejection'] == pytest.approx(1 - kept.sum(), abs=1e-5)
    others = {'OPT': np.maximum(target - draft, 0) / distance}
    others |= {'UNO': target, 'UNO, code': draft}
    output = kept + (1 - kept.sum()) * others[row['rule']]
    bias = np.abs(output - target).sum() / 2
    assert row['bias'] == pytest.approx(bias, abs=1e-5)
    above[row['rule']].append(row['rejection'] + row['bias'] - distance)
  np.testing.assert_allclose(above['OPT'], 0, atol=1e-5)
  assert min(above['UNO']) > 0.005
  assert np.greater(above['UNO, code'], above['UNO']).all()
  assert _drawn(workdir) == ['front']


@pytest.mark.slow
def test_verifier_lies_where_the_formulas_say(points):
  """Of 40000 runs, both within 0.0125: 5 standard errors of the rejection.

  A bias or a rejection that is off by 0.025 fails with 0.9999.
  """
  _, rows = points
  for row in rows:
    for name in ('rejection', 'bias'):
      assert row[f'measured_{name}'] == pytest.approx(row[name], abs=0.0125)


# Batch improvement.


@pytest.mark.slow
def test_batch_improvement(tmp_path):
  """Figure 3, by values computed by hand."""
  curves = {}
  config = _load('batch_improvement', _IMPROVEMENT)
  for row in toy.run(config, tmp_path):
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


# Win rates.


@pytest.mark.slow
def test_a_score_is_the_mean_log_likelihood_of_the_response(family):
  """Against whole texts without a cache.

  A metric judges beside it, by the prompts' reference answers.
  """
  family = families.load(str(family))
  texts = [text for _, text in toy.PROMPTS]
  prompts = [family.tokenizer.encode_prompt(text) for text in texts]
  responses = [[5], [7, 300, 7], [9, 8, 1000, 11, 12]]
  references = [family.tokenizer.decode(responses[0]), 'x', 'y']
  # A correction, a bonus token and a draft that was cut; then done.
  infos = types.SimpleNamespace(
    num_accepted=np.array([[0, 2, 1], [0, 0, 1]]),
    num_emitted=np.array([[1, 3, 1], [0, 1, 2]]),
    depth=np.array([[2, 2, 2], [0, 2, 2]]),
  )
  batch = types.SimpleNamespace(
    jobs=[
      types.SimpleNamespace(turns=[prompt], reference=reference)
      for prompt, reference in zip(prompts, references)
    ],
    results=[types.SimpleNamespace(tokens=tokens) for tokens in responses],
    infos=infos,
  )
  metric = evaluation.METRICS['exact_match']()
  judges = {
    'likelihood': functools.partial(winrate.by_likelihood, family.target),
    'exact': functools.partial(winrate.by_metric, metric, family.tokenizer),
  }
  found = winrate.observe(judges, batch)
  assert [record['rejected'] for record in found] == [1, 1, 1]
  assert [record['scores']['exact'] > 0 for record in found] == [1, 0, 0]
  for prompt, response, record in zip(prompts, responses, found):
    given = toy.log_probs(family.target, prompt, response)
    expected = given[np.arange(len(response)), response].mean()
    np.testing.assert_allclose(
      record['scores']['likelihood'], expected, rtol=1e-4
    )


def test_a_prompt_is_won_by_more_comparisons():
  """Won, won in spite of the lower mean, lost, and tied."""
  first = [[2, 2, 2], [5, 5, -90], [0, 0, 3], [1, 1, 1]]
  second = [[1, 1, 1], [1, 1, 1], [2, 2, 2], [0, 1, 2]]
  row = winrate.versus(
    *((np.array(each, float), 0.5) for each in (first, second))
  )
  assert row['win_rate'] == 0.5 and row['tied'] == 0.25
  assert row['win_rate_error'] == 0.25  # sqrt(0.5 * 0.5 / 4)
  assert row['score'] == -68 / 12 and row['against_score'] == 15 / 12
  assert row['gap'] == pytest.approx((-68 - 15) / 12)


def test_methods_of_equal_columns_are_compared(family, tmp_path, monkeypatch):
  """By each judge, of which the metric is one; by hand: more is better."""
  score = {'target': 2.0, 'small': 1.0, 'OPT': 1.5, 'UNO': 1.75}
  rejected = {'target': 0, 'small': 0, 'OPT': 3, 'UNO': 6}

  def fields(method, _):
    value = score[method.label] - method.columns.get('epsilon', 0)
    scores = {'likelihood': value, 'rougeL': 10 - value}
    return {'scores': scores, 'rejected': rejected[method.label]}

  toy.simulate(monkeypatch, fields)
  config = _load('winrate', _WINRATE | {'metric': 'rougeL'}, family)
  rows = toy.run(config, tmp_path)
  names = ('judge', 'method', 'against', 'epsilon', 'win_rate', 'rejections')
  assert [tuple(map(row.get, names)) for row in rows] == [
    (judge, *pair, epsilon, wins, rejections)
    for judge, second in (('likelihood', 0.0), ('rougeL', 1.0))
    for pair, epsilon, wins, rejections in (
      (('target', 'small'), None, 1 - second, 0),
      (('OPT', 'UNO'), 0.0, second, 0.25),
      (('OPT', 'UNO'), 1.0, second, 0.25),
    )
  ]
  assert {row['against_rejections'] for row in rows[1:3]} == {0.5}
  assert _drawn(tmp_path) == ['gap', 'win_rate']


@pytest.mark.slow
def test_methods_share_no_randomness_and_rejections_are_counted(
  family, tmp_path
):
  """Of chains of one, a round rejects its draft where it keeps none."""
  methods = tuple({'arm': 'small:1', 'label': label} for label in ('a', 'b'))
  changes = _WINRATE | {'methods': methods, 'comparisons': (('a', 'b'),)}
  config = _load('winrate', changes, family)
  (row,) = rows = toy.run(config, tmp_path / 'run')
  units = [unit['outcome']['records'] for unit in toy.units(tmp_path / 'run')]
  # Of each method and seed, two prompts and then one.
  units = [units[i] + units[i + 1] for i in range(0, 8, 2)]
  scores = [[r['scores']['likelihood'] for r in unit] for unit in units]
  assert all(len(set(each)) == 4 for each in zip(*scores))
  assert row['score'] == pytest.approx(np.mean(scores[:2]))
  for unit, name in ((units[:2], 'rejections'), (units[2:], None)):
    records = [record for each in unit for record in each]
    rejected = sum(r['rounds'] - sum(r['accepted']) for r in records)
    found = rejected / sum(record['emitted'] for record in records)
    assert 0 < found == row[name or 'against_rejections']
  again = toy.torn(tmp_path / 'run', tmp_path / 'again', 5)
  assert toy.run(config, again) == rows
  assert toy.units(again) == toy.units(tmp_path / 'run')


# Diagnosis.


@pytest.mark.slow
@pytest.mark.parametrize(
  'verifier, flagged', [('maximal', False), ('over_acceptance', True)]
)
def test_biased_rounds_are_flagged(family, tmp_path, capsys, verifier, flagged):
  """Some 50 rejections are due and 0 come: 4 to 8 standard errors less.

  A sound run is flagged with chance 0.003 a row.
  """
  changes = _DIAGNOSE | {'methods': (f'small:2/{verifier}',)}
  rows = toy.run(_load('diagnose', changes, family), tmp_path)
  assert [row['domain'] for row in rows] == ['all', 'one', 'two']
  assert {row['method'] for row in rows} == {f'small:2/{verifier}'}
  for field in ('tested', 'seen', 'predicted'):
    every, *of_domains = [row[field] for row in rows]
    np.testing.assert_allclose(sum(of_domains), every, rtol=1e-6)
  for row in rows:
    error = row['predicted_error']
    np.testing.assert_allclose(
      row['deviation'], (row['seen'] - row['predicted']) / error
    )
    assert row['flagged'] == flagged == (abs(row['deviation']) > 3)
  warnings = capsys.readouterr().out.count(f'Warning: small:2/{verifier}, ')
  assert warnings == 3 * flagged


# The ledger.


@pytest.mark.slow
def test_the_ledger_tells_rules_apart(family, tmp_path):
  """On the front, and as far above it as the replacement costs."""
  rows = toy.run(_load('ledger', _LEDGER, family), tmp_path)
  assert [(row['epsilon'], row['rule']) for row in rows] == [
    (epsilon, rule) for epsilon in (1e-4, 1e-3) for rule in pareto.RULES
  ]
  for same in (rows[:3], rows[3:]):
    best, *others = same
    assert best['over_best'] == 0
    for row in others:
      assert row['rejection'] == best['rejection'] > 0
      gap = row['bias'] - best['bias']
      assert row['over_best'] == pytest.approx(gap, abs=1e-6)
      assert row['over_best'] > 0 and row['over_best_error'] > 0
  front = [row['rejection'] + row['bias'] for row in (rows[0], rows[3])]
  assert front[0] == pytest.approx(front[1], abs=1e-5)
  assert _drawn(tmp_path) == ['bias', 'over_best']


# Theory meets practice.

_PRACTICE = toy.SIZES | {
  'methods': tuple(
    {
      'arm': f'small:{drafts}x{length}',
      'columns': {'drafts': drafts, 'length': length},
    }
    for drafts in (1, 2)
    for length in (1, 3)
  ),
  'from_length': 3,
  'sampling': {'temperature': 0.0},
}


def _drafted(method, _):
  """Seconds of 12 tokens, and drafts that are kept half or all of the time."""
  drafts, length = method.columns.values()
  accepted = [4, 4, 0] if drafts == 1 else [4, 4, 4]
  clocks = {'seconds': 2.0 + drafts + length, 'prefill': 0.1, 'differ': 0}
  clocks |= {'reference_seconds': 12.0, 'reference_prefill': 0.1}
  counts = {'rounds': 4, 'accepted': accepted[:length]}
  counts |= {'drafted': [4] * length, 'reference_emitted': 12}
  return clocks | counts


def test_speeds_of_drafts_are_predicted_from_one_length(
  family, tmp_path, monkeypatch
):
  """By hand: two drafts are all kept, of one 8 are kept and 4 rejected."""
  toy.simulate(monkeypatch, _drafted)
  depths = {'none': 0, 'small:1x1': 1, 'small:1x3': 3}
  depths |= {'small:2x1': 1, 'small:2x3': 3}
  costs = toy.write_costs(tmp_path / 'costs', depths)
  config = _load('practice', _PRACTICE | {'costs': costs}, family)
  *drafts, choice = toy.run(config, tmp_path / 'run')
  shapes = [(row['drafts'], row['length']) for row in drafts]
  assert shapes == [(1, 1), (1, 3), (2, 1), (2, 3)]
  found = [row['acceptance'] for row in drafts]
  assert found == pytest.approx([2 / 3, 2 / 3, 1, 1])
  # `1 + a + ... + a^length` tokens in rounds of `1 + length` seconds.
  assert [row['predicted_efficiency'] for row in drafts] == pytest.approx(
    [5 / 3, 65 / 27, 2, 4]
  )
  assert [row['relative_round'] for row in drafts] == [2, 4, 2, 4]
  for row in drafts:
    speed = row['predicted_efficiency'] / row['relative_round']
    assert row['predicted_speed_up'] == speed
  speed_ups = [12 / (2 + sum(shape)) for shape in shapes]
  assert [row['speed_up'] for row in drafts] == pytest.approx(speed_ups)
  # Of two that are predicted to be as fast, the first; one draft is faster.
  assert (choice['predicted_best'], choice['best']) == ('2 x 1', '1 x 1')
  found = [choice[name] for name in ('best_speed_up', 'speed_up', 'worth')]
  assert found == pytest.approx([3, 2.4, 0.8])
  assert choice['worth_error'] == pytest.approx(0)
  assert _drawn(tmp_path / 'run') == ['block_efficiency', 'speed_up']


# What they share.


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_stopped(points, tmp_path):
  """In the middle of a line; what was done before is not done again."""
  workdir, rows = points
  again = toy.torn(workdir, tmp_path / 'again', 1)
  assert toy.run(_load('pareto', _PARETO), again) == rows
  assert toy.units(again) == toy.units(workdir)


def test_acceptance_is_by_depth_and_rank():
  """Of three rounds; of each text, the last one is left out."""
  tree = trees.prefix_tree((2, 2))  # Nodes 0, 1; then 2, 3 and 4, 5.
  records = [
    {'path': [[1, 4], [0, 9], [0, 2]], 'num_accepted': [2, 1, 2]},
    {'path': [[9, 9], [0, 2]], 'num_accepted': [0, 2]},
  ]
  found = trees_lib.acceptance(tree, records)
  # At depth 1, both ranks once of three; below, rank 0 once of two.
  np.testing.assert_allclose(found, [[1 / 3, 1 / 3], [1 / 2, 0]])


@pytest.mark.parametrize(
  ('name', 'changes', 'message'),
  [
    ('rejections', {'vocab_size': 1}, 'vocab_size must be >= 2, got 1'),
    ('rejections', {'horizons': ()}, 'horizons must be >= 1'),
    ('rejections', {'horizons': (50, 0)}, 'horizons must be >= 1'),
    ('rejections', {'simulated_drafts': (1, 0)}, 'simulated_drafts'),
    ('rejections', {'decoded_runs': 1}, 'decoded_runs must be >= 2'),
    ('pareto', {'epsilons': (0.1, -0.1)}, 'epsilons must be >= 0'),
    ('pareto', {'epsilons': ()}, r'epsilons must be >= 0, got \(\)'),
    ('pareto', {'positions': (50,)}, r'positions must lie in \[0, 49\]'),
    ('pareto', {'runs': 0}, 'runs must be >= 1'),
    ('chains', {'num_models': 1}, 'num_models must be >= 2, got 1'),
    ('chains', {'overlap': 1.5}, r'overlap must lie in \[0, 1\], got 1.5'),
    ('batch_improvement', {'max_drafts': 0}, 'max_drafts'),
    ('batch_improvement', {'bernoulli_drafts': (1.4,)}, r'lie in \[0, 1\]'),
    ('batch_improvement', {'bernoulli_target': 1.5}, 'bernoulli_target'),
    ('batch_improvement', {'uniform_targets': (121,)}, r'lie in \[1, 120\]'),
    ('winrate', {'num_seeds': 0}, 'num_seeds must be >= 1, got 0'),
    (
      'winrate',
      {'comparisons': (('OPT', 'me'),)},
      r'comparisons.0.*UNO, co',
    ),
    (
      'diagnose',
      {'methods': ('small:4x2',)},
      r'methods\[0\] must draft a chain',
    ),
    ('diagnose', {'methods': ('prompt_lookup:4',)}, "such as 'small:4', got"),
    ('practice', {'from_length': 3}, 'from_length must be the length of a m'),
    (
      'practice',
      {'methods': ('small:2',)},
      r'methods\[0\] must be an arm with colu',
    ),
    (
      'practice',
      {'methods': 2 * _PRACTICE['methods'][:1]},
      r'methods\[1\] must differ',
    ),
    ('practice', {'repeats': 0}, 'repeats must be >= 1'),
    ('ledger', {'methods': ('none',)}, "methods.0. must draft a chain.*'none'"),
    ('ledger', {'epsilons': (-1.0,)}, 'epsilons must be >= 0'),
    ('ledger', {'epsilons': ()}, r'epsilons must be >= 0, got \(\)'),
    (
      'trees',
      {'depth': 6},
      'depth must be at most 5, the length of factors, got 6',
    ),
  ],
)
def test_bad_values_are_refused_before_anything_runs(
  tmp_path, name, changes, message
):
  with pytest.raises(ValueError, match=message):
    main.run(_load(name, changes), tmp_path / 'new')
  assert not (tmp_path / 'new').exists()
