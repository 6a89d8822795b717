"""Cascades: the frontier, what is picked on it, and a bandit over rules.

Times are checked for their bookkeeping alone.
"""

import json
import math

import matplotlib.image
import ml_collections
import numpy as np
import pytest

from experiments import main
from experiments.cascades import calibrate
from experiments.cascades import frontier
from experiments.cascades import texts
from experiments.common import compare
from experiments.common import methods
from experiments.common import sweeps
from specjax import base
from specjax import evaluation
from specjax import families
from specjax import goals
from specjax import metrics
from specjax.evaluation import scoring
from tests import goals_test
from tests.experiments import toy

_RULE = 'small:2~token_v3({})'
_CHOW = {'arm': 'small:2~chow(0.9)', 'label': 'chow', 'columns': {'alpha': 0.9}}
_ALONE = (
  {'arm': 'none', 'label': 'target'},
  {'arm': 'none', 'target': 'small', 'label': 'draft'},
)
_LOSSLESS = {'arm': 'small:2', 'label': 'lossless'}
_RULES = tuple(
  {'arm': _RULE.format(alpha), 'label': 'rule', 'columns': {'alpha': alpha}}
  for alpha in (0.2, 0.9)
)
_RUN = toy.SIZES | {
  'prompts': {'talk': {'domains': ('asks',), 'limit': 3}},
  'prompts_per_domain': 8,
  'metric': 'letters',
  'repeats': 0,
  'paper': (),
}
_FRONTIER = _RUN | {
  'methods': (*_ALONE, _LOSSLESS, *_RULES, _CHOW),
  'sequence_alphas': (0.0, 1.0),
}
_CALIBRATE = _RUN | {
  'prompts': {'talk': {'domains': ('asks',)}},
  'methods': (_ALONE[0], _LOSSLESS, *_RULES),
  'dev_prompts': 3,
  'repeats': 1,
}
_BANDIT = 'ucb1(beta=0.1)'
_ARMS = 'small:2', 'small:3~token_v3(0.9)'
_BANDITS = _RUN | {
  'prompts': {'talk': {'domains': ('asks',), 'limit': 4}},
  'arms': _ARMS,
  'bandits': (_BANDIT,),
  'weights': (0.2, 0.9),
}


def _letters():
  """Returns a metric that differs between texts, even for random models."""
  score = lambda text, _: (1 + sum(map(ord, text)) % 97) / 98
  return scoring.mean(score)


@pytest.fixture(scope='module', autouse=True)
def _a_metric():
  with pytest.MonkeyPatch.context() as patch:
    patch.setitem(evaluation.METRICS, 'letters', _letters)
    yield


def _config(name, family, changes):
  data = {'data_dir': str(family)}
  return toy.config(f'cascades/{name}', family, data | changes)


def _choice(workdir):
  return json.loads((workdir / 'choice.json').read_text())


def _key(row):
  return row['method'], row.get('alpha')


# How often a rule defers.


@pytest.mark.parametrize('temperature', [0, 1])
@pytest.mark.parametrize('name', sorted({*goals_test.ALPHAS} - {'lossy'}))
def test_deferrals_are_those_of_the_rules(name, temperature):
  """Compares NumPy's formulas, also at temperature 0 where models agree."""
  rng = np.random.default_rng(0)
  raw = rng.dirichlet(np.full(6, 0.5), (2, 40))
  raw[1, :20] = 0.7 * raw[0, :20] + 0.3 * raw[1, :20]
  sampled = raw if temperature else np.eye(6)[raw.argmax(-1)]
  pairs = goals_test.float32_pairs(sampled, raw)
  target, draft = (base.Probs(pairs[i], pairs[i + 2]) for i in (0, 1))
  for alpha in goals_test.ALPHAS[name]:
    actual = texts.deferrals(goals.GOALS[name](alpha), target, draft)
    _, gaps = goals_test.formula(name, alpha, *map(np.float64, pairs))
    expected = (gaps > 0).any(axis=1)
    if name in goals_test.TOKEN_RULES:  # The mass that is drawn anew.
      expected = ((gaps > 0) * sampled[1]).sum(axis=1)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_what_a_lossy_goal_takes_from_the_target():
  """Checks the goal (0.4, 0.3, 0.3), which defers all but the second token.

  The goal is `min(draft, 2 target)`, except for the third token, whose
  probability is 0.6 of the target's so that all sum to 1.
  """
  target, draft = (
    np.array([probs], np.float32)
    for probs in ([0.2, 0.3, 0.5], [0.6, 0.3, 0.1])
  )
  goal = goals.GOALS['lossy'](0.5)
  (deferral,) = texts.deferrals(
    goal, base.Probs(target, target), base.Probs(draft, draft)
  )
  pair = target[0], draft[0]
  goal_probs = goal(*pair, base.RawProbs(*pair))
  np.testing.assert_allclose(goal_probs, [0.4, 0.3, 0.3], 1e-5)
  assert deferral == pytest.approx(0.7, abs=1e-5)


# The frontier.


# By label: the tokens of an answer, its nats under the target, and its nats
# under the model of the method.
_ANSWERS = {
  'target': ([5, 6], -2.0, -2.0),
  'draft': ([7], -3.0, math.log(0.5)),
  'lossless': ([5, 6], -2.0, -2.0),
  'rule': ([5, 8], -2.5, -2.5),
  'chow': ([8, 8], -4.0, -4.0),
}


def _answer_record(method, job):
  """Returns a record made by hand; a target call takes half a second more."""
  del job
  tokens, target_nats, own_nats = _ANSWERS[method.label]
  calls = {'target': 2, 'draft': 0}.get(method.label, 1)
  return {
    'tokens': tokens,
    'emitted': len(tokens),
    'rounds': len(tokens) if method.arms[0].tree is None else 1,
    'target_calls': calls,
    'target_nats': target_nats,
    'own_nats': own_nats,
    'deferred': float(method.label in ('target', 'lossless')) * len(tokens),
    'accepted': [] if method.arms[0].tree is None else [1, 0],
    'drafted': [] if method.arms[0].tree is None else [1, 1],
    'tested': [] if method.arms[0].tree is None else [1, 1],
    'seconds': 0.5 + 0.5 * calls,
    'prefill': 0.1,
    'differ': 0,
    'reference_emitted': 2,
    'reference_seconds': 1.5,
    'reference_prefill': 0.1,
  }


def test_a_row_for_each_point(family, tmp_path, monkeypatch):
  """Uses records made by hand; sequence cascades defer only at alpha 0.0."""
  toy.simulate(monkeypatch, _answer_record)
  sweep = sweeps.product({'sampling.temperature': (0.0, 1.0)})
  changes = {'repeats': 1, 'sweep': sweep}
  config = _config('frontier', family, _FRONTIER | changes)
  rows = toy.run(config, tmp_path)
  points = [row for row in rows if 'part' not in row]
  lines = [('rule', 0.2), ('rule', 0.9), ('chow', 0.9)]
  baselines = [('target', None), ('draft', None), ('lossless', None)]
  sequences = [('sequence_cascade', 0.0), ('sequence_cascade', 1.0)]
  assert [_key(row) for row in points] == 2 * [*baselines, *lines, *sequences]
  temperatures = [row['sampling.temperature'] for row in points]
  assert temperatures == [0.0] * 8 + [1.0] * 8
  target, draft, lossless, rule, _, chow, no_draft, all_draft = points[:8]
  assert {row['decoded'] for row in points} == {3}
  column = lambda name: [row[name] for row in points[:8]]
  assert column('target_calls') == [1, 0, *4 * [0.5], 1, 0]
  assert column('deferral_rate') == [1, 0, 1, 0, 0, 0, 1, 0]
  assert column('rejection_rate') == [None, None, *4 * [0.5], None, None]
  assert column('latency') == pytest.approx(
    [1, 1 / 3, *4 * [2 / 3], 2 / 1.5, 1 / 3]
  )
  assert column('total_latency') == pytest.approx(
    [1, 0.6 / 1.6, *4 * [1.1 / 1.6], 2.2 / 1.6, 0.6 / 1.6]
  )
  nats = [-1, -3, -1, -1.25, -1.25, -2, -1, -3]
  assert column('target_nats') == pytest.approx(nats)
  assert lossless['quality'] == target['quality'] == no_draft['quality']
  assert all_draft['quality'] == draft['quality'] > 0
  assert len({row['quality'] for row in (target, draft, rule, chow)}) == 4
  for name in ('quality_latency', 'target_nats_deferral_rate'):
    assert matplotlib.image.imread(tmp_path / f'{name}.png').std() > 0


@pytest.fixture(scope='module', name='run')
def _frontier(family, tmp_path_factory):
  """The config, the workdir and the rows of a small run."""
  workdir = tmp_path_factory.mktemp('frontier')
  config = _config('frontier', family, _FRONTIER | {'sweep': ''})
  config.sampling.temperature = 1.0
  return config, workdir, toy.run(config, workdir)


def test_what_is_recorded_of_texts_is_what_whole_texts_show(run, family):
  """Scores the answers with both models and with another form of the rules."""
  deferred = {
    'none': lambda target, draft: len(target),
    'small:2': lambda target, draft: len(target),
    'small:2~chow(0.9)': lambda target, draft: (draft.max(1) < 0.1).sum(),
    'small:2~token_v3(0.2)': lambda target, draft: (
      draft * (target < 0.8 * target.max(1, keepdims=True))
    ).sum(),
  }
  config, workdir, _ = run
  family = families.load(str(family))
  models = family.target, family.drafters['small']
  jobs = compare.prepare(config).prompt_sets[0].jobs
  prompts = {job.number: job.turns[0] for job in jobs}
  checked_arms = set()
  records = [
    (unit['method'], record)
    for unit in toy.units(workdir)
    for record in unit['outcome']['records']
  ]
  for method, record in records:
    (arm,) = method['arms']
    prompt, tokens = prompts[record['job']], record['tokens']
    target, draft = (
      np.exp(toy.log_probs(model, prompt, tokens)) for model in models
    )
    nats = lambda probs, tokens=tokens: np.log(
      probs[range(len(tokens)), tokens]
    ).sum()
    assert record['target_nats'] == pytest.approx(nats(target), abs=1e-3)
    method_probs = draft if method['target'] == 'small' else target
    assert record['own_nats'] == pytest.approx(nats(method_probs), abs=1e-3)
    if method_probs is draft:
      assert record['deferred'] == record['target_calls'] == 0
    elif arm in deferred:
      expected = deferred[arm](target, draft)
      assert record['deferred'] == pytest.approx(expected, abs=1e-3)
      checked_arms.add(arm)
  assert checked_arms == set(deferred)


def test_sequence_cascades_keep_answers_that_are_likely_enough():
  """Checks equation (1) near the probability of the draft's answer."""
  probability = 0.2
  clocks = {'seconds': 1.0, 'prefill': 0.1}
  reference_clocks = {'reference_seconds': 3.0, 'reference_prefill': 0.4}
  draft = (
    clocks
    | reference_clocks
    | {'own_nats': math.log(probability), 'tokens': [1]}
  )
  target = dict.fromkeys((*clocks, *reference_clocks), 9.0) | {'tokens': [2]}
  method = methods.parse(
    ml_collections.ConfigDict({'sampling': {}}), 'none', (), 'a method'
  )
  decoded = [
    compare.Decoded(method._replace(label=label), None, [record])
    for label, record in (('target', target), ('draft', draft))
  ]
  alphas = (0.0, 0.99 - probability, 1.01 - probability, 1.0)
  cascades = frontier.sequence_cascades(decoded, alphas)
  assert [cascade.method.columns['alpha'] for cascade in cascades] == list(
    alphas
  )
  cascade_records = [cascade.records[0] for cascade in cascades]
  assert cascade_records[2:] == [draft, draft]
  summed_clocks = {'seconds': 4.0, 'prefill': 0.5}
  assert (
    cascade_records[:2]
    == [reference_clocks | summed_clocks | {'tokens': [2]}] * 2
  )


def test_a_summary_by_hand():
  """Checks a table: `fast` is best from latency 0.5, `good` from 0.8."""
  names = 'method', 'latency', 'quality', 'draft_length'
  shared = {'prompts': 'all', 'latency_error': 0.1, 'quality_error': 0.2}
  shared |= {'target_nats': -1.0, 'target_nats_error': 0.0}
  table = [
    ('target', 1.0, 10.0),  # In both plots.
    ('fast', 0.5, 8.0, 3),
    ('fast', 1.25, 12.0, 3),
    ('good', 0.8, 11.0, 3),
    ('bad', 0.9, 7.0, 3),
    ('bad', 0.5, 10.0, 5),
  ]
  rows = frontier.summary([shared | dict(zip(names, row)) for row in table])
  by_part = lambda length, method: {
    row['part']: row
    for row in rows
    if (row['draft_length'], row['method'], row['by'])
    == (length, method, 'quality')
  }
  measurements = {
    (length, method): (
      by_part(length, method)['equal quality']['speed_up_at_quality'],
      by_part(length, method)['equal latency']['rating_at_latency'],
      by_part(length, method)['equal latency']['best_share'],
    )
    for length, methods in (
      (3, ('target', 'fast', 'good', 'bad')),
      (5, ('bad',)),
    )
    for method in methods
  }
  assert measurements == {
    (3, 'target'): (1.0, 10.0, 0.0),
    (3, 'fast'): (0.8, 8.0, pytest.approx(0.6, abs=0.01)),
    (3, 'good'): (1.25, 11.0, pytest.approx(0.4, abs=0.01)),
    (3, 'bad'): (None, 7.0, 0.0),
    (5, 'bad'): (2.0, 10.0, 1.0),
  }
  good = by_part(3, 'good')
  error = good['equal quality']['speed_up_at_quality_error']
  assert error == pytest.approx(0.1 * 1.25**2)
  assert good['equal latency']['rating_at_latency_error'] == 0.2


def test_lossless_decoding_is_on_the_line_of_lossy_decoding():
  """Lossy decoding reaches the target's rating only where it is lossless."""
  names = 'method', 'alpha', 'latency', 'quality'
  shared = {'prompts': 'all', 'latency_error': 0.1, 'quality_error': 0.2}
  shared |= {'target_nats': -1.0, 'target_nats_error': 0.0}
  table = [
    ('target', None, 1.0, 10.0),
    ('lossless', None, 0.8, 10.0),
    ('lossy', 0.3, 0.5, 9.0),
  ]
  rows = frontier.summary([shared | dict(zip(names, row)) for row in table])
  speed_ups = {
    row['method']: row['speed_up_at_quality']
    for row in rows
    if (row['part'], row['by']) == ('equal quality', 'quality')
  }
  assert speed_ups == {'target': 1.0, 'lossless': 1.25, 'lossy': 1.25}


def test_points_beyond_lossy_decoding_by_hand():
  """Interpolates at 0.6 calls, midway from 0.5 to 0.7, per draft length."""
  names = 'method', 'target_calls', 'target_nats', 'draft_length'
  shared = {'prompts': 'all', 'target_nats_error': 0.2}
  table = [
    ('target', 1.0, -3.0),  # In both plots.
    ('draft', 0.0, -6.0),
    ('lossless', 0.7, -3.0, 1),
    ('lossy', 0.5, -4.0, 1),
    ('rule', 0.6, -3.25, 1),
    ('rule', 0.4, -3.25, 1),
    ('rule', 0.85, -2.0, 1),
    ('lossless', 0.6, -3.5, 5),
    ('lossy', 0.4, -5.5, 5),
    ('rule', 0.6, -3.25, 5),
  ]
  rows = [shared | dict(zip(names, row)) for row in table]
  differences = [
    (row.get('nats_over_lossy'), row.get('nats_over_lossy_error'))
    for row in frontier.beyond_lossy(rows)
  ]
  no_value = (None, None)
  halves = pytest.approx(0.2 * 1.5**0.5)
  midway = [(pytest.approx(gain), halves) for gain in (0.25, 1.0)]
  at_a_point = pytest.approx(0.25), pytest.approx(0.2 * 2**0.5)
  assert differences == [
    *[no_value] * 4,
    *(midway[0], no_value, midway[1]),
    *(no_value, no_value, at_a_point),
  ]


def test_the_frontier_goes_on_where_it_stopped(run, family):
  """Adds an alpha and changes the metric: only the new alpha is decoded."""
  _, workdir, rows = run
  units = toy.units(workdir)
  extra_method = {
    'arm': _RULE.format(0.5),
    'label': 'rule',
    'columns': {'alpha': 0.5},
  }
  changes = {
    'methods': (*_FRONTIER['methods'], extra_method),
    'metric': 'rouge1',
  }
  config = _config('frontier', family, _FRONTIER | changes | {'sweep': ''})
  config.sampling.temperature = 1.0
  resumed_rows = toy.run(config, workdir)
  resumed_units = toy.units(workdir)
  assert resumed_units[: len(units)] == units
  added = [unit['method']['arms'] for unit in resumed_units[len(units) :]]
  assert added == [['small:2~token_v3(0.5)']] * 2  # Two batches.
  comparable = lambda rows: [
    {name: row[name] for name in ('method', 'target_nats', 'tokens')}
    for row in rows
    if row.get('alpha') != 0.5
  ]
  assert comparable(resumed_rows) == comparable(rows)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'sequence_alphas': (-1.0,)}, r'sequence_alphas must lie in \[0, 1\]'),
    (
      {'methods': _ALONE[:1]},
      "methods must include one with the label 'draft'",
    ),
    ({'metric': 'bluer'}, "Unknown metric 'bluer'. Known"),
  ],
)
def test_the_frontier_is_checked_before_it_is_measured(
  tmp_path, family, changes, message
):
  config = _config('frontier', family, _FRONTIER | {'sweep': ''} | changes)
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path)
  assert not list(tmp_path.iterdir())


def test_alphas_of_a_line_are_one_program_where_they_are_numbers(family):
  """Checks the lines of the config, whose labels match the paper's numbers."""
  config = toy.config('cascades/frontier', None, {})
  loaded_family = families.load(str(family))
  programs = {}
  for method in methods.parse_all(config, list(loaded_family.drafters)):
    program = methods.build(method, loaded_family, 96).program
    programs.setdefault(method.label, set()).add(program)
  assert all(len(line) == 1 for line in programs.values())
  with_paper = {
    row['method'] for table in config.paper for row in table['rows']
  }
  assert with_paper <= {*programs, frontier.SEQUENCE}


# What is picked on it.


class _FakeDecode:
  """Replaces decoding by numbers for each method, and records the calls."""

  def __init__(self, monkeypatch):
    self.calls = []
    monkeypatch.setattr(texts, 'decode', self)
    monkeypatch.setattr(texts, 'rater', lambda *_: self._rate)

  def __call__(self, config, workdir, setup):
    (prompts,) = setup.prompt_sets
    self.calls.append(([method.label for method in setup.methods], prompts))
    return [compare.Decoded(method, prompts, []) for method in setup.methods]

  def _rate(self, decoded):
    method, alpha = decoded.method, decoded.method.columns.get('alpha', 0)
    seed = [
      *f'{method.label} {method.columns} {len(decoded.prompts.jobs)}'.encode()
    ]
    costs = np.random.default_rng(seed).uniform(0.3, 1, 3).round(2)
    latency, calls, rate = costs.tolist()
    quality = {'target': 20.0, 'lossless': 19.0}.get(
      method.label, 20 - 10 * alpha
    )
    return {
      'prompts': decoded.prompts.label,
      'method': method.label,
      **method.columns,
      'metric': 'letters',
      'quality': quality,
      'quality_error': 1.0,
      'latency': latency,
      'latency_error': 0.01,
      'rejection_rate': None if method.label == 'target' else rate,
      'target_calls': calls,
    }


def _of_length(length):
  """Methods of one draft length."""
  return tuple(
    {
      'arm': method['arm'].replace('small:2', f'small:{length}'),
      'label': method['label'],
      'columns': method.get('columns', {}) | {'draft_length': length},
    }
    for method in (_LOSSLESS, *_RULES)
  )


@pytest.mark.parametrize('cost', calibrate.COSTS)
@pytest.mark.parametrize(
  ('floor', 'margin', 'num'),
  [(0.5, 0.0, 7), (0.85, 0.0, 5), (0.85, 1.5, 3), (0.97, 0.0, 1)],
)
def test_the_choice_is_the_cheapest_that_is_good_enough(
  tmp_path, family, monkeypatch, capsys, cost, floor, margin, num
):
  """Selects among rules of quality 18 and 11; target 20, lossless method 19."""
  _FakeDecode(monkeypatch)
  changes = {'floor': floor, 'margin': margin, 'cost': cost}
  changes['methods'] = (_ALONE[0], *_of_length(2), *_of_length(3))
  rows = toy.run(_config('calibrate', family, _CALIBRATE | changes), tmp_path)
  dev = [row for row in rows if row['part'] == 'dev']
  assert len(dev) == 7
  best = None
  for row in dev:
    is_eligible = row['quality'] - margin * 1.0 >= floor * 20
    is_eligible = is_eligible and row[cost] is not None
    assert row['eligible'] == is_eligible
    if is_eligible and (best is None or row[cost] < best[cost]):
      best = row
  if best is None:  # Falls back.
    lossless = [row for row in dev if row['method'] == 'lossless']
    best = min(lossless, key=lambda row: row[cost])
  # The target has no rejection rate, as it has no drafts.
  assert sum(row['eligible'] for row in dev) == num - (cost == 'rejection_rate')
  choice = _choice(tmp_path)
  assert choice['dev'] == best
  tests = [row for row in rows if row['part'] == 'test']
  kind = lambda row: (*_key(row), row.get('draft_length'))
  (test,) = [row for row in tests if kind(row) == kind(best)]
  assert test['selected'] and best['selected']
  assert choice['test'] == test
  assert best['floor'] == floor * 20
  assert {row['method'] for row in tests} == {
    'target',
    'lossless',
    best['method'],
  }
  output = capsys.readouterr().out
  assert f'Selected method {best["method"]}' in output
  for row, part in ((best, 'dev'), (test, 'test')):
    assert f'{row["quality"]:.2f} on {part}' in output
  assert matplotlib.image.imread(tmp_path / 'dev.png').std() > 0


def test_dev_and_test_are_disjoint_and_measured_once(
  tmp_path, family, monkeypatch
):
  """Checks that another floor does not change the dev set."""
  fake_decode = _FakeDecode(monkeypatch)
  changes = {'floor': 0.5, 'cost': 'target_calls'}
  main.run(_config('calibrate', family, _CALIBRATE | changes), tmp_path)
  (all_methods, dev), (test_methods, test) = fake_decode.calls
  assert all_methods == ['target', 'lossless', 'rule', 'rule']
  assert test_methods == ['target', 'lossless', 'rule']
  tokens = lambda prompts: [tuple(job.turns[0]) for job in prompts.jobs]
  assert (len(dev.jobs), len(test.jobs)) == (3, 5)
  assert len({*tokens(dev), *tokens(test)}) == 3 + 5
  fake_decode.calls.clear()
  changes |= {'floor': 2.0}
  main.run(_config('calibrate', family, _CALIBRATE | changes), tmp_path)
  assert fake_decode.calls == [
    (all_methods, dev),
    (['target', 'lossless'], test),
  ]
  assert dev.settings != test.settings


def test_nothing_is_good_enough(tmp_path, family, monkeypatch, capsys):
  _FakeDecode(monkeypatch)
  config = _config('calibrate', family, _CALIBRATE | {'floor': 1.5})
  main.run(config, tmp_path)
  dev = _choice(tmp_path)['dev']
  assert (dev['method'], dev['eligible']) == ('lossless', False)
  output = capsys.readouterr().out
  assert (
    'No method reaches letters 30.00 on dev prompts. Selected method lossless'
    in output
  )


def test_a_choice_is_a_decoder(tmp_path, family, monkeypatch):
  """Decodes the test prompts again and compares the measurements."""
  monkeypatch.setattr(calibrate, 'select', lambda rows, _: rows[-1])
  changes = {'repeats': 0, 'cost': 'target_calls', 'dev_prompts': 4}
  config = _config('calibrate', family, _CALIBRATE | changes)
  rows = toy.run(config, tmp_path)
  choice = _choice(tmp_path)
  assert choice['method']['arm'] == 'small:2~token_v3(0.9)'
  family = families.load(str(family))
  setup = compare.prepare(config)
  _, test = calibrate.split(config, setup.prompt_sets[0])
  decoder = calibrate.decoder(family, choice)
  outputs = [
    output
    for first in (0, 2)
    for output in decoder.decode(
      [job.turns[0] for job in test.jobs[first : first + 2]],
      choice['max_new_tokens'],
      request_ids=[job.number for job in test.jobs[first : first + 2]],
    )
  ]
  answers = [family.tokenizer.decode(output.tokens) for output in outputs]
  row = rows[-1]
  assert row['selected'] and row['part'] == 'test'
  quality = _letters()(answers, ['yes, 7'] * 4).total
  assert row['quality'] == pytest.approx(quality)
  calls = 1 / metrics.block_efficiency(outputs)[0]
  assert row['target_calls'] == pytest.approx(calls)
  accepted, tested = (
    np.sum([getattr(output, name) for output in outputs], axis=0)
    for name in ('accepted', 'tested')
  )
  rejection_rate = 1 - accepted.sum() / tested.sum()
  assert row['rejection_rate'] == pytest.approx(rejection_rate)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'floor': math.nan}, 'floor must be >= 0, got nan'),
    ({'margin': -1.0}, r'margin must be >= 0, got -1\.0'),
    ({'cost': 'seconds'}, "one of latency, .* repeats=1, got 'seconds'"),
    ({'repeats': 0}, "one of rejection.* repeats=0, got 'latency'"),
    ({'dev_prompts': 1}, r'dev_prompts must lie in \[2, 6\], got 1'),
    ({'dev_prompts': 7}, r'dev_prompts must lie in \[2, 6\], got 7'),
    ({'methods': _ALONE}, "methods must include one with the label 'lossless'"),
    (
      {'methods': (_LOSSLESS,)},
      "methods must include one with the label 'target'",
    ),
    (
      {'prompts': {'a': {}, 'b': {'limit': 2}}},
      'prompts must be one set, got 2',
    ),
    (
      {
        'methods': (
          *_CALIBRATE['methods'],
          {'bandit': 'ucb1', 'arms': ('small:2', 'none')},
        )
      },
      r'methods.4. must be an arm, got a bandit',
    ),
  ],
)
def test_calibrate_is_checked_before_it_measures(
  tmp_path, family, monkeypatch, changes, message
):
  fake_decode = _FakeDecode(monkeypatch)
  config = _config('calibrate', family, _CALIBRATE | changes)
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path)
  assert not fake_decode.calls and not list(tmp_path.iterdir())


# A bandit over rules.


@pytest.fixture(scope='module', name='bandits')
def _bandits(family, tmp_path_factory):
  """Returns the workdir and the rows of a small run that is resumed.

  The second weight is added later: only its bandit is decoded, not the arms.
  """
  workdir = tmp_path_factory.mktemp('bandits')
  config = _config('rule_bandit', family, _BANDITS | {'weights': (0.2,)})
  config.sampling.temperature = 1.0
  first = toy.run(config, workdir)
  units = toy.units(workdir)
  config.weights = _BANDITS['weights']
  rows = toy.run(config, workdir)
  assert rows[: len(first)] == first
  resumed_units = toy.units(workdir)
  assert resumed_units[: len(units)] == units
  added = [unit['method']['reward'] for unit in resumed_units[len(units) :]]
  assert added == ['tradeoff(weight=0.9)'] * 2
  return workdir, rows


def _rewards(unit, weight):
  """`[P]` sums of a batch's rewards, on the scale of the deepest arm, 3."""
  return [
    sum(
      (1 - weight) * (emitted - 1) / 3 + weight * fidelity
      for emitted, fidelity in zip(record['num_emitted'], record['fidelity'])
    )
    for record in unit['outcome']['records']
  ]


def test_rules_have_a_row_for_each_weight_and_method(bandits):
  workdir, rows = bandits
  names = (*_ARMS, _BANDIT)
  assert [(row['weight'], row['method']) for row in rows] == [
    (weight, method) for weight in _BANDITS['weights'] for method in names
  ]
  for row in rows:
    pulls = [int(count) for count in row['pulls'].split()]
    efficiency = row['block_efficiency']
    assert 1 <= efficiency <= 4
    assert row['target_calls'] == pytest.approx(1 / efficiency)
    if row['method'] == _BANDIT:
      assert len(pulls) == 2 and min(pulls) > 0
    else:
      assert len(pulls) == 1
    lossless = row['method'] == _ARMS[0]
    assert (row['fidelity'] == 1) if lossless else (0 < row['fidelity'] < 1)
  assert matplotlib.image.imread(workdir / 'over_best.png').std() > 0


def test_rewards_of_rules_are_those_of_their_rounds(bandits):
  """Checks single arms and bandits, whose state sums up their rewards."""
  workdir, rows = bandits
  units = toy.units(workdir)
  sums = {}
  for row in rows:
    weight, method = row['weight'], row['method']
    method_units = [
      unit
      for unit in units
      if unit['method']['arms']
      == ([method] if method in _ARMS else list(_ARMS))
      and unit['method'].get('reward', f'{weight}').count(f'{weight}')
    ]
    assert len(method_units) == 2
    rewards = np.concatenate([_rewards(unit, weight) for unit in method_units])
    records = [
      record for unit in method_units for record in unit['outcome']['records']
    ]
    rounds = np.array([record['rounds'] for record in records])
    mean = rewards.sum() / rounds.sum()
    assert row['reward'] == pytest.approx(mean, abs=1e-5)
    if method == _BANDIT:
      _, part, whole = method_units[-1]['outcome']['bandit_state']
      learnt_sum = np.sum(part) + np.sum(whole)
      assert learnt_sum == pytest.approx(rewards.sum(), abs=1e-4)
    sums[weight, method] = mean, (rewards - mean * rounds) / rounds.sum()
  for row in rows:
    arms = [(sums[row['weight'], arm][0], arm) for arm in _ARMS]
    assert row['best_arm'] == max(arms)[1]
    mean, deviations = sums[row['weight'], row['method']]
    best, best_deviations = sums[row['weight'], row['best_arm']]
    assert row['over_best'] == pytest.approx(mean - best, abs=1e-5)
    error = np.sqrt(((deviations - best_deviations) ** 2).sum())
    assert row['over_best_error'] == pytest.approx(error, abs=1e-5)
    error = np.sqrt((deviations**2).sum())
    assert row['reward_error'] == pytest.approx(error, abs=1e-5)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'weights': ()}, r'weights must be >= 0, got \(\)'),
    ({'weights': (0.5, 1.5)}, r'bandits.1..reward.*: weight must lie in'),
    (
      {'arms': ('small:2/lossy(0.5)',)},
      r'methods.0.: .* its fidelity is unknown',
    ),
    (
      {'methods': ('small:2/lossy(0.5)',)},
      r'methods.2.: .* its fidelity is unknown',
    ),
    ({'metric': 'bluer'}, "Unknown metric 'bluer'"),
  ],
)
def test_rules_are_checked_before_they_are_played(
  tmp_path, family, changes, message
):
  config = _config('rule_bandit', family, _BANDITS | changes)
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path)
  assert not list(tmp_path.iterdir())
