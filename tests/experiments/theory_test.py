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


def _plot_names(workdir):
  images = sorted(workdir.glob('*.png'))
  assert all(matplotlib.image.imread(path).std() > 0 for path in images)
  return [path.stem for path in images]


# Rejections.


def test_tables_are_probably_those_of_the_paper():
  """Compares 16.41 rejections in 50 tokens (Figure 2) with other seeds."""
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
  tables = rejections.tables(4, 5, 3)
  for table, expected in zip(tables, (target, draft)):
    assert table.shape == (5, 4, 4) and table.dtype == np.float32
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(table, expected, atol=1e-7)


@pytest.fixture(scope='module', name='rejections_run')
def _rejections_run(tmp_path_factory):
  """Returns the workdir and the rows by source, number of drafts and runs."""
  workdir = tmp_path_factory.mktemp('rejections')
  rows = toy.run(_load('rejections', _REJECTIONS), workdir)
  names = ('source', 'num_drafts', 'runs')
  return workdir, {tuple(map(row.get, names)): row for row in rows}


def test_rejections_have_a_row_for_each_case_and_plots(rejections_run):
  workdir, rows = rejections_run
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
  assert _plot_names(workdir) == ['num_drafts', 'running_mean']


def test_theory_rows_are_of_the_tables_that_are_run(rejections_run):
  """Sums distances along the target's marginals for one draft."""
  _, rows = rejections_run
  target, draft = rejections.tables(3, 4, seed=10)
  state_probs, expected = np.full(3, 1 / 3), 0
  for target_table, draft_table in zip(target, draft):
    expected += state_probs @ np.abs(target_table - draft_table).sum(1) / 2
    state_probs = state_probs @ target_table
  cases = (
    ('theory', 1),
    ('theory', 2),
    ('limit of infinitely many drafts', None),
  )
  num_rejections = [rows[source, k, None]['rejections'] for source, k in cases]
  assert num_rejections[0] == pytest.approx(expected, abs=1e-5)
  assert num_rejections[0] > num_rejections[1] > num_rejections[2] > 0


@pytest.mark.parametrize('source', ['simulation', 'decoder'])
def test_counts_agree_with_theory(rejections_run, source):
  """Bounds the error by 4 standard errors of about 0.007 and 0.02 rejections.

  Counts of 0.9 to 1.5 rejections that are off by 8 standard errors fail with
  probability 0.9999.
  """
  _, rows = rejections_run
  runs = {'simulation': 20000, 'decoder': 2000}[source]
  for (row_source, num_drafts, num), row in rows.items():
    if (row_source, num) == (source, runs):
      pair = rejections.tables(3, 4, seed=10)
      expected = theory.batch_expected_rejections(*pair, 4, num_drafts)
      error = row['rejections_error']
      assert 0 < error < 4 / runs**0.5
      assert row['excess'] == pytest.approx(row['rejections'] - expected)
      assert abs(row['excess']) < 4 * error


def _counts(source, config, workdir):
  count = {'simulation': rejections.simulated, 'decoder': rejections.decoded}
  return count[source](config, workdirs.Workdir(workdir, config))


@pytest.mark.parametrize('source', ['simulation', 'decoder'])
def test_a_broken_rule_deviates(monkeypatch, tmp_path, source):
  """Replaces a rejected draft by a sample from the target itself."""
  single_draft = {'simulated_drafts': (1,), 'decoded_drafts': (1,)}
  config = _load(
    'rejections', _REJECTIONS | single_draft | {'simulated_runs': 60000}
  )
  config.decoded_runs = 8000
  simulate_broken = functools.partial(
    theory.simulate, coupling=parts.Resampling()
  )
  monkeypatch.setattr(theory, 'simulate', simulate_broken)
  walk = verifiers.TreeWalk(parts.Resampling())
  monkeypatch.setitem(verifiers.VERIFIERS, 'batch', lambda: walk)
  counts = _counts(source, config, tmp_path)[source, 4, 1]
  expected = theory.expected_rejections(*rejections.tables(3, 4, seed=10), 4)
  row = rejections.statistics(counts, expected)
  assert abs(row['excess']) > 8 * row['rejections_error']


@pytest.mark.parametrize(
  ('source', 'draft'),
  [
    ('simulation', (0, 1, 0, 1)),
    ('simulation', (1, 1, 0, 0)),
    ('decoder', (0, 1, 1, 0)),
  ],
)
def test_counts_of_sure_rejections(monkeypatch, tmp_path, source, draft):
  """Rejects token 1 twice in every run, as the target always emits 0."""
  sizes = {'runs_per_chunk': 4, 'batch_size': 4}
  sizes |= {'simulated_runs': 8, 'decoded_runs': 10}
  sizes |= {'simulated_drafts': (2,), 'decoded_drafts': (2,)}
  one_hot_tables = lambda tokens: np.eye(3, dtype=np.float32)[
    list(zip(*3 * [tokens]))
  ]
  pair = one_hot_tables((0, 0, 0, 0)), one_hot_tables(draft)
  monkeypatch.setattr(rejections, 'tables', lambda *settings: pair)
  config = _load('rejections', _REJECTIONS | sizes)
  counts = _counts(source, config, tmp_path)
  num = {'simulation': 8, 'decoder': 10}[source]
  assert counts == {(source, 4, 2): [2] * num}


# The front.


@pytest.fixture(scope='module', name='points')
def _points(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('pareto')
  return workdir, toy.run(_load('pareto', _PARETO), workdir)


def test_formulas_of_the_front(points):
  """Checks that OPT lies on the front, and both forms of UNO above it."""
  workdir, rows = points
  tables = rejections.tables(7, 50, 10)
  assert len(rows) == 12
  gaps = {rule: [] for rule in pareto.RULES}
  for row in rows:
    target, draft = (table[row['position'], 0] for table in tables)
    distance = np.abs(draft - target).sum() / 2
    kept = np.minimum(draft, target + row['epsilon'])
    assert row['total_variation'] == pytest.approx(distance, abs=1e-5)
    assert row['rejection'] == pytest.approx(1 - kept.sum(), abs=1e-5)
    replacements = {'OPT': np.maximum(target - draft, 0) / distance}
    replacements |= {'UNO': target, 'UNO, code': draft}
    output = kept + (1 - kept.sum()) * replacements[row['rule']]
    bias = np.abs(output - target).sum() / 2
    assert row['bias'] == pytest.approx(bias, abs=1e-5)
    gaps[row['rule']].append(row['rejection'] + row['bias'] - distance)
  np.testing.assert_allclose(gaps['OPT'], 0, atol=1e-5)
  assert min(gaps['UNO']) > 0.005
  assert np.greater(gaps['UNO, code'], gaps['UNO']).all()
  assert _plot_names(workdir) == ['front']


def test_verifier_lies_where_the_formulas_say(points):
  """Of 40000 runs, both within 0.0125: 5 standard errors of the rejection.

  A bias or a rejection that is off by 0.025 fails with 0.9999.
  """
  _, rows = points
  for row in rows:
    for name in ('rejection', 'bias'):
      assert row[f'measured_{name}'] == pytest.approx(row[name], abs=0.0125)


# Batch improvement.


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
  assert _plot_names(tmp_path) == ['batch_improvement']


# Win rates.


def test_a_score_is_the_mean_log_likelihood_of_the_response(family):
  """Compares scores with those of full texts without a KV cache.

  A metric with the reference answers of the prompts is a second judge.
  """
  family = families.load(str(family))
  texts = [text for _, text in toy.PROMPTS]
  prompts = [family.tokenizer.encode_prompt(text) for text in texts]
  responses = [[5], [7, 300, 7], [9, 8, 1000, 11, 12]]
  references = [family.tokenizer.decode(responses[0]), 'x', 'y']
  # The rounds emit a correction, a bonus token and a draft that was cut.
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
  records = winrate.observe(judges, batch)
  assert [record['rejected'] for record in records] == [1, 1, 1]
  assert [record['scores']['exact'] > 0 for record in records] == [1, 0, 0]
  for prompt, response, record in zip(prompts, responses, records):
    log_probs = toy.log_probs(family.target, prompt, response)
    expected = log_probs[np.arange(len(response)), response].mean()
    np.testing.assert_allclose(
      record['scores']['likelihood'], expected, rtol=1e-4
    )


def test_a_prompt_is_won_by_more_comparisons():
  """Covers prompts that are won, won with a lower mean, lost, and tied."""
  first = [[2, 2, 2], [5, 5, -90], [0, 0, 3], [1, 1, 1]]
  second = [[1, 1, 1], [1, 1, 1], [2, 2, 2], [0, 1, 2]]
  row = winrate.versus(
    *((np.array(scores, float), 0.5) for scores in (first, second))
  )
  assert row['win_rate'] == 0.5 and row['tied'] == 0.25
  assert row['win_rate_error'] == 0.25  # sqrt(0.5 * 0.5 / 4)
  assert row['score'] == -68 / 12 and row['against_score'] == 15 / 12
  assert row['gap'] == pytest.approx((-68 - 15) / 12)


def test_methods_of_equal_columns_are_compared(family, tmp_path, monkeypatch):
  """Compares methods with two judges: the likelihood and a metric."""
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
    (judge, *pair, epsilon, win_rate, rejections)
    for judge, second in (('likelihood', 0.0), ('rougeL', 1.0))
    for pair, epsilon, win_rate, rejections in (
      (('target', 'small'), None, 1 - second, 0),
      (('OPT', 'UNO'), 0.0, second, 0.25),
      (('OPT', 'UNO'), 1.0, second, 0.25),
    )
  ]
  assert {row['against_rejections'] for row in rows[1:3]} == {0.5}
  assert _plot_names(tmp_path) == ['gap', 'win_rate']


def test_methods_share_no_randomness_and_rejections_are_counted(
  family, tmp_path
):
  """Uses chains of one token, so that a round rejects its draft or keeps it."""
  methods = tuple({'arm': 'small:1', 'label': label} for label in ('a', 'b'))
  changes = _WINRATE | {'methods': methods, 'comparisons': (('a', 'b'),)}
  config = _load('winrate', changes, family)
  (row,) = rows = toy.run(config, tmp_path / 'run')
  units = [unit['outcome']['records'] for unit in toy.units(tmp_path / 'run')]
  # Each method and seed has a batch of two prompts and one of one prompt.
  units = [units[i] + units[i + 1] for i in range(0, 8, 2)]
  scores = [[r['scores']['likelihood'] for r in unit] for unit in units]
  assert all(len(set(values)) == 4 for values in zip(*scores))
  assert row['score'] == pytest.approx(np.mean(scores[:2]))
  for unit, name in ((units[:2], 'rejections'), (units[2:], None)):
    records = [record for method_records in unit for record in method_records]
    rejected = sum(r['rounds'] - sum(r['accepted']) for r in records)
    rejection_rate = rejected / sum(record['emitted'] for record in records)
    assert 0 < rejection_rate == row[name or 'against_rejections']
  torn_dir = toy.torn_workdir(tmp_path / 'run', tmp_path / 'again', 5)
  assert toy.run(config, torn_dir) == rows
  assert toy.units(torn_dir) == toy.units(tmp_path / 'run')


# Diagnosis.


@pytest.mark.parametrize(
  'verifier, flagged', [('maximal', False), ('over_acceptance', True)]
)
def test_biased_rounds_are_flagged(family, tmp_path, capsys, verifier, flagged):
  """Expects 50 rejections but observes 0, which is 4 to 8 standard errors less.

  A row of a lossless run is flagged with probability 0.003.
  """
  changes = _DIAGNOSE | {'methods': (f'small:2/{verifier}',)}
  rows = toy.run(_load('diagnose', changes, family), tmp_path)
  assert [row['domain'] for row in rows] == ['all', 'one', 'two']
  assert {row['method'] for row in rows} == {f'small:2/{verifier}'}
  for field in ('tested', 'seen', 'predicted'):
    total, *domain_values = [row[field] for row in rows]
    np.testing.assert_allclose(sum(domain_values), total, rtol=1e-6)
  for row in rows:
    error = row['predicted_error']
    np.testing.assert_allclose(
      row['deviation'], (row['seen'] - row['predicted']) / error
    )
    assert row['flagged'] == flagged == (abs(row['deviation']) > 3)
  warnings = capsys.readouterr().out.count(f'Warning: small:2/{verifier}, ')
  assert warnings == 3 * flagged


# The ledger.


def test_the_ledger_tells_rules_apart(family, tmp_path):
  """Compares rules with the front; the replacement adds to the bias."""
  rows = toy.run(_load('ledger', _LEDGER, family), tmp_path)
  assert [(row['epsilon'], row['rule']) for row in rows] == [
    (epsilon, rule) for epsilon in (1e-4, 1e-3) for rule in pareto.RULES
  ]
  for epsilon_rows in (rows[:3], rows[3:]):
    best, *others = epsilon_rows
    assert best['over_best'] == 0
    for row in others:
      assert row['rejection'] == best['rejection'] > 0
      gap = row['bias'] - best['bias']
      assert row['over_best'] == pytest.approx(gap, abs=1e-6)
      assert row['over_best'] > 0 and row['over_best_error'] > 0
  front = [row['rejection'] + row['bias'] for row in (rows[0], rows[3])]
  assert front[0] == pytest.approx(front[1], abs=1e-5)
  assert _plot_names(tmp_path) == ['bias', 'over_best']


# Temperatures of the draft model.

_TEMPERATURES = toy.SIZES | {
  'methods': tuple(
    {
      'arm': 'small:2/maximal',
      'sampling': {'temperature': temperature},
      'columns': {'drafter': 'small', 'target_temperature': temperature},
    }
    for temperature in (0.5, 1.0)
  ),
  'temperatures': (0.0, 0.5, 1.0),
  'max_new_tokens': 16,
}


def test_acceptance_by_the_temperature_of_the_draft(family, tmp_path):
  """Compares temperatures with the target's, and with the best of each token.

  The toys differ little, so that the target's temperature is the best.
  """
  rows = toy.run(_load('draft_temperature', _TEMPERATURES, family), tmp_path)
  assert len(rows) == 8
  by_temperature = [row for row in rows if 'part' not in row]
  for temperature in (0.5, 1.0):
    here = [r for r in rows if r['target_temperature'] == temperature]
    *members, best = here
    assert sum(row['best_share'] for row in members) == pytest.approx(1)
    (same,) = (r for r in members if r['draft_temperature'] == temperature)
    assert same['gain'] == same['gain_error'] == 0
    assert same['acceptance'] == max(r['acceptance'] for r in members)
    for row in members:
      gap = row['acceptance'] - same['acceptance']
      assert row['gain'] == pytest.approx(gap, abs=1e-6)
      assert row['acceptance'] <= best['acceptance'] + 1e-6 < 1
  assert len(by_temperature) == 6
  assert _plot_names(tmp_path) == ['acceptance']


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


def _draft_record(method, _):
  """Seconds of 12 tokens, and drafts that are kept half or all of the time."""
  drafts, length = method.columns.values()
  accepted = [4, 4, 0] if drafts == 1 else [4, 4, 4]
  clocks = {'seconds': 2.0 + drafts + length, 'prefill': 0.1, 'differ': 0}
  clocks |= {'reference_seconds': 12.0, 'reference_prefill': 0.1}
  counts = {'rounds': 4, 'accepted': accepted[:length]}
  counts |= {'drafted': [4] * length, 'reference_emitted': 12}
  counts['tested'] = [4, *accepted][:length]
  return clocks | counts


def test_speeds_of_drafts_are_predicted_from_one_length(
  family, tmp_path, monkeypatch
):
  """Uses records made by hand: all of two drafts, but 8 of 12 single ones."""
  toy.simulate(monkeypatch, _draft_record)
  depths = {'none': 0, 'small:1x1': 1, 'small:1x3': 3}
  depths |= {'small:2x1': 1, 'small:2x3': 3}
  costs = toy.write_costs(tmp_path / 'costs', family, depths)
  config = _load('practice', _PRACTICE | {'costs': costs}, family)
  *drafts, choice = toy.run(config, tmp_path / 'run')
  shapes = [(row['drafts'], row['length']) for row in drafts]
  assert shapes == [(1, 1), (1, 3), (2, 1), (2, 3)]
  actual = [row['acceptance'] for row in drafts]
  assert actual == pytest.approx([2 / 3, 2 / 3, 1, 1])
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
  # The first of two equal predictions is selected; one draft is faster.
  assert (choice['predicted_best'], choice['best']) == ('2 x 1', '1 x 1')
  actual = [choice[name] for name in ('best_speed_up', 'speed_up', 'worth')]
  assert actual == pytest.approx([3, 2.4, 0.8])
  assert choice['worth_error'] == pytest.approx(0)
  assert _plot_names(tmp_path / 'run') == ['block_efficiency', 'speed_up']


# What they share.


def test_a_killed_run_goes_on_where_it_stopped(points, tmp_path):
  """Resumes after a torn line without repeating the work before it."""
  workdir, rows = points
  torn_dir = toy.torn_workdir(workdir, tmp_path / 'again', 1)
  assert toy.run(_load('pareto', _PARETO), torn_dir) == rows
  assert toy.units(torn_dir) == toy.units(workdir)


def test_acceptance_is_by_depth_and_rank():
  """Counts three rounds; the last round of each text is left out."""
  tree = trees.prefix_tree((2, 2))  # Nodes 0, 1; then 2, 3 and 4, 5.
  records = [
    {'path': [[1, 4], [0, 9], [0, 2]], 'num_accepted': [2, 1, 2]},
    {'path': [[9, 9], [0, 2]], 'num_accepted': [0, 2]},
  ]
  acceptance = trees_lib.acceptance(tree, records)
  # At depth 1, each rank is kept in one of three rounds; at depth 2, rank 0 in
  # one of two.
  np.testing.assert_allclose(acceptance, [[1 / 3, 1 / 3], [1 / 2, 0]])


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
    (
      'draft_temperature',
      {'temperatures': (0.0, 1.0)},
      'temperatures must contain that of methods.0., 0.6',
    ),
    ('draft_temperature', {'temperatures': (-1.0,)}, 'temperatures must be'),
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
