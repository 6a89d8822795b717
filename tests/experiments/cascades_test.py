"""Cascades: the frontier, what is picked on it, and a bandit over rules.

Times are checked for their bookkeeping alone.
"""

import json
import math

import jax
import matplotlib.image
import ml_collections
import numpy as np
import pytest

from experiments import main
from experiments.cascades import calibrate
from experiments.cascades import frontier
from experiments.cascades import texts
from experiments.common import compare
from experiments.common import log
from experiments.common import results
from experiments.common import runner
from experiments.common import ways
from specjax import base
from specjax import evaluation
from specjax import families
from specjax import goals
from specjax import metrics
from specjax.data import examples as examples_lib
from specjax.evaluation import scoring
from specjax.testing import toys
from tests import goals_test
from tests import small

_PROMPTS = ('one', 'a b a b', 'what is it?', 'x y', 'count', 'two', 'go', 'so')
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
_RUN = {
  'prompts': {'talk': {'domains': ('talk',), 'limit': 3}},
  'metric': 'letters',
  'max_new_tokens': 8,
  'max_length': 32,
  'paper': (),
}
_FRONTIER = _RUN | {
  'ways': (*_ALONE, _LOSSLESS, *_RULES, _CHOW),
  'sequence_alphas': (0.0, 1.0),
  'sweep': "{'sampling.temperature': (0.0, 1.0)}",
}
_CALIBRATE = _RUN | {
  'prompts': {'talk': {'domains': ('talk',)}},
  'ways': (_ALONE[0], _LOSSLESS, *_RULES),
  'dev_prompts': 3,
}
_BANDIT = 'ucb1(beta=0.1)'
_ARMS = 'small:2', 'small:3~token_v3(0.9)'
_BANDITS = _RUN | {
  'arms': _ARMS,
  'bandits': (_BANDIT,),
  'weights': (0.2, 0.9),
  'carry_over': False,
  'batch_size': 2,
}


def _letters():
  """Another number for almost every text: random models say nothing."""
  score = lambda text, _: (1 + sum(map(ord, text)) % 97) / 98
  return scoring.mean(score)


@pytest.fixture(scope='module', autouse=True)
def _a_metric():
  with pytest.MonkeyPatch.context() as patch:
    patch.setitem(evaluation.METRICS, 'letters', _letters)
    yield


@pytest.fixture(scope='module', name='folder')
def _folder(tmp_path_factory):
  """A family whose drafter is near its target, and prompts with responses."""
  folder = tmp_path_factory.mktemp('family')
  toys.write_family(folder, {'small': 0.3})
  examples_lib.write(
    folder / 'talk.eval.jsonl',
    [examples_lib.Example('talk', text, 'yes, 7') for text in _PROMPTS],
  )
  return folder


def _config(name, folder, changes):
  """A config that is changed; nested fields are replaced as a whole."""
  fields = small.load(f'cascades/{name}').to_dict()
  paths = {'family': str(folder), 'data_dir': str(folder)}
  return ml_collections.ConfigDict(fields | paths | changes)


def _run(name, folder, workdir, changes):
  """Runs an experiment in this process; returns its rows."""
  main.run(_config(name, folder, changes), workdir)
  return results.read(workdir)['rows']


def _choice(workdir):
  return json.loads((workdir / 'choice.json').read_text())


def _key(row):
  return row['way'], row.get('alpha')


def _points(rows, temperature):
  return [
    row
    for row in rows
    if 'part' not in row and row['sampling.temperature'] == temperature
  ]


# How often a rule defers.


@pytest.mark.parametrize('temperature', [0, 1])
@pytest.mark.parametrize('name', sorted({*goals_test.ALPHAS} - {'lossy'}))
def test_deferrals_are_those_of_the_rules(name, temperature):
  """Of NumPy's formulas; at temperature 0, too, where models agree."""
  rng = np.random.default_rng(0)
  raw = rng.dirichlet(np.full(6, 0.5), (2, 40))
  raw[1, :20] = 0.7 * raw[0, :20] + 0.3 * raw[1, :20]
  sampled = raw if temperature else np.eye(6)[raw.argmax(-1)]
  pairs = goals_test.float32_pairs(sampled, raw)
  target, draft = (base.Probs(pairs[i], pairs[i + 2]) for i in (0, 1))
  for alpha in goals_test.ALPHAS[name]:
    found = texts.deferrals(goals.GOALS[name](alpha), target, draft)
    _, gaps = goals_test.formula(name, alpha, *map(np.float64, pairs))
    wanted = (gaps > 0).any(axis=1)
    if name in goals_test.TOKEN_RULES:  # The mass that is drawn anew.
      wanted = ((gaps > 0) * sampled[1]).sum(axis=1)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_what_a_lossy_goal_takes_from_the_target():
  """The goal is (0.4, 0.3, 0.3), of which the draft gives the second alone.

  That is `min(draft, 2 target)`, but for the third, which is 0.6 of the
  target's so that all sum to 1.
  """
  target, draft = (
    np.array([each], np.float32) for each in ([0.2, 0.3, 0.5], [0.6, 0.3, 0.1])
  )
  made = goals.GOALS['lossy'](0.5)
  (found,) = texts.deferrals(
    made, base.Probs(target, target), base.Probs(draft, draft)
  )
  np.testing.assert_allclose(made(target[0], draft[0]), [0.4, 0.3, 0.3], 1e-5)
  assert found == pytest.approx(0.7, abs=1e-5)


# The frontier.


@pytest.fixture(scope='module', name='run')
def _frontier(folder, tmp_path_factory):
  """The workdir and the rows of a small run."""
  workdir = tmp_path_factory.mktemp('frontier')
  return workdir, _run('frontier', folder, workdir, _FRONTIER)


@pytest.mark.slow
def test_a_row_for_each_point(run):
  workdir, rows = run
  points = _points(rows, 0) + _points(rows, 1)
  lines = [('rule', 0.2), ('rule', 0.9), ('chow', 0.9)]
  alone = [('target', None), ('draft', None), ('lossless', None)]
  sequences = [('sequence_cascade', 0.0), ('sequence_cascade', 1.0)]
  assert [_key(row) for row in points] == 2 * [*alone, *lines, *sequences]
  for row in points:
    assert row['decoded'] == 3 and 3 <= row['tokens'] <= 24
    assert row['latency'] > 0 <= row['latency_error']
    assert row['target_nats'] < 0 < row['quality']
    kind, alpha = _key(row)
    draft = kind == 'draft' or (kind, alpha) == ('sequence_cascade', 1)
    assert draft * 0 <= row['target_calls'] <= 1 - draft
    plain = draft or kind in ('target', 'sequence_cascade')
    assert (row['rejection_rate'] is None) == plain
    if plain or kind == 'lossless':
      assert row['deferral_rate'] == 1 - draft
    else:
      assert 0 <= row['deferral_rate'] <= 1
      assert 0 <= row['rejection_rate'] <= 1
  target, draft, lossless, *_, no_draft, all_draft = points[:8]
  # At temperature 0, the lossless answer is the target's.
  for name in ('quality', 'target_nats'):
    assert lossless[name] == target[name] == no_draft[name] != draft[name]
    assert all_draft[name] == draft[name]
  assert draft['target_nats'] < target['target_nats']
  assert no_draft['latency'] == pytest.approx(1 + draft['latency'])
  assert all_draft['latency'] == draft['latency']
  for name in ('quality_latency', 'target_nats_deferral_rate'):
    assert matplotlib.image.imread(workdir / f'{name}.png').std() > 0


def _whole_text(family, name, tokens):
  """`[T, V]` float64 probabilities behind each token, without a cache."""
  model = {'target': family.target, **family.drafters}[name]
  logits = model.functions.extend(model.params, None, np.array([tokens])).logits
  return np.asarray(jax.nn.softmax(logits[0]), np.float64)


@pytest.mark.slow
def test_what_is_recorded_of_texts_is_what_whole_texts_show(run, folder):
  """Both models along what was said; the rules are written once more."""
  deferred = {
    'none': lambda target, draft: len(target),
    'small:2': lambda target, draft: len(target),
    'small:2~chow(0.9)': lambda target, draft: (draft.max(1) < 0.1).sum(),
    'small:2~token_v3(0.2)': lambda target, draft: (
      draft * (target < 0.8 * target.max(1, keepdims=True))
    ).sum(),
  }
  family = families.load(str(folder))
  jobs = compare.plan(_config('frontier', folder, _FRONTIER)).sets[0].jobs
  prompts = {job.number: job.turns[0] for job in jobs}
  path = run[0] / 'sampling.temperature=1.0' / log.FILE
  seen = set()
  for line in map(json.loads, path.read_text().splitlines()):
    (arm,), (record,) = line['way']['arms'], line['outcome']['records']
    prompt, said = prompts[record['job']], record['tokens']
    target, draft = (
      _whole_text(family, name, prompt + said)[len(prompt) - 1 : -1]
      for name in ('target', 'small')
    )
    nats = lambda probs, said=said: np.log(probs[range(len(said)), said]).sum()
    assert record['target_nats'] == pytest.approx(nats(target), abs=1e-3)
    own = draft if line['way']['target'] == 'small' else target
    assert record['own_nats'] == pytest.approx(nats(own), abs=1e-3)
    if own is draft:
      assert record['deferred'] == record['target_calls'] == 0
    elif arm in deferred:
      wanted = deferred[arm](target, draft)
      assert record['deferred'] == pytest.approx(wanted, abs=1e-3)
      seen.add(arm)
  assert seen == set(deferred)


def test_sequence_cascades_keep_answers_that_are_likely_enough():
  """Equation (1), on both sides of the draft's own probability."""
  chance = 0.2
  clocks = {'seconds': 1.0, 'reading': 0.1}
  others = {'reference_seconds': 3.0, 'reference_reading': 0.4}
  draft = clocks | others | {'own_nats': math.log(chance), 'tokens': [1]}
  target = dict.fromkeys((*clocks, *others), 9.0) | {'tokens': [2]}
  way = ways.parse(
    ml_collections.ConfigDict({'sampling': {}}), 'none', (), 'a way'
  )
  decoded = [
    compare.Decoded(way._replace(label=label), None, [record])
    for label, record in (('target', target), ('draft', draft))
  ]
  alphas = (0.0, 0.99 - chance, 1.01 - chance, 1.0)
  made = frontier.sequence_cascades(decoded, alphas)
  assert [each.way.columns['alpha'] for each in made] == list(alphas)
  found = [each.records[0] for each in made]
  assert found[2:] == [draft, draft]
  late = {'seconds': 4.0, 'reading': 0.5}
  assert found[:2] == [others | late | {'tokens': [2]}] * 2


def test_a_summary_by_hand():
  """From latency 0.5 on, `fast` is best until `good` is better at 0.8."""
  names = 'way', 'latency', 'quality', 'draft_length'
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
  of = lambda length, way: {
    row['part']: row
    for row in rows
    if (row['draft_length'], row['way'], row['by']) == (length, way, 'quality')
  }
  found = {
    (length, way): (
      of(length, way)['equal quality']['speed_up_at_quality'],
      of(length, way)['equal latency']['rating_at_latency'],
      of(length, way)['equal latency']['best_share'],
    )
    for length, ways in ((3, ('target', 'fast', 'good', 'bad')), (5, ('bad',)))
    for way in ways
  }
  assert found == {
    (3, 'target'): (1.0, 10.0, 0.0),
    (3, 'fast'): (0.8, 8.0, pytest.approx(0.6, abs=0.01)),
    (3, 'good'): (1.25, 11.0, pytest.approx(0.4, abs=0.01)),
    (3, 'bad'): (None, 7.0, 0.0),
    (5, 'bad'): (2.0, 10.0, 1.0),
  }
  good = of(3, 'good')
  error = good['equal quality']['speed_up_at_quality_error']
  assert error == pytest.approx(0.1 * 1.25**2)
  assert good['equal latency']['rating_at_latency_error'] == 0.2


def test_points_beyond_lossy_decoding_by_hand():
  """0.6 calls are midway from 0.5 to 0.7; each draft length has its line."""
  names = 'way', 'target_calls', 'target_nats', 'draft_length'
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
  found = [
    (row.get('nats_over_lossy'), row.get('nats_over_lossy_error'))
    for row in frontier.beyond_lossy(rows)
  ]
  nothing = (None, None)
  halves = pytest.approx(0.2 * 1.5**0.5)
  midway = [(pytest.approx(gain), halves) for gain in (0.25, 1.0)]
  at_a_point = pytest.approx(0.25), pytest.approx(0.2 * 2**0.5)
  assert found == [
    *[nothing] * 4,
    *(midway[0], nothing, midway[1]),
    *(nothing, nothing, at_a_point),
  ]


@pytest.mark.slow
def test_the_frontier_goes_on_where_it_stopped(run, folder, monkeypatch):
  workdir, rows = run
  played = []
  play = runner._Session.play

  def spy(self, point, *args):
    played.append(point.settings['way']['arms'])
    return play(self, point, *args)

  monkeypatch.setattr(runner._Session, 'play', spy)
  assert _run('frontier', folder, workdir, _FRONTIER) == rows
  assert not played
  # Another alpha is asked for, and another metric.
  more = {'arm': _RULE.format(0.5), 'label': 'rule', 'columns': {'alpha': 0.5}}
  changes = {'ways': (*_FRONTIER['ways'], more), 'metric': 'rouge1'}
  again = _run('frontier', folder, workdir, _FRONTIER | changes)
  assert played == [['small:2~token_v3(0.5)']] * 6  # 3 prompts, 2 temperatures.
  same = lambda rows: [
    {name: row[name] for name in ('way', 'latency', 'target_nats', 'tokens')}
    for row in _points(rows, 1)
    if row.get('alpha') != 0.5
  ]
  assert same(again) == same(rows)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'ways': ('small:2~best(0.1)',)}, "ways.0.: Unknown goal 'best'. Known"),
    ({'ways': ('small:2~chow(2.0)',)}, r'alpha of chow must lie in \[0, 1\]'),
    ({'ways': ('tiny:2',)}, "Unknown drafter 'tiny'. Known: small"),
    ({'sequence_alphas': (-1.0,)}, r'sequence_alphas must lie in \[0, 1\]'),
    ({'ways': _ALONE[:1]}, "ways must have one that is labelled 'draft'"),
    ({'metric': 'bluer'}, "Unknown metric 'bluer'. Known"),
    ({'max_length': 9}, 'Nothing of prompts.talk fits: max_length=9'),
    ({'prompts': {'talk': {'domains': ('code',)}}}, "Unknown domain 'code'"),
  ],
)
def test_the_frontier_is_checked_before_it_is_measured(
  tmp_path, folder, changes, message
):
  with pytest.raises(ValueError, match=message):
    _run('frontier', folder, tmp_path, _FRONTIER | {'sweep': ''} | changes)
  assert not list(tmp_path.iterdir())


def test_all_ways_of_the_configs_are_built(folder):
  """Those that the tests of configs leave out, too."""
  family = families.load(str(folder))
  family = family._replace(
    drafters=family.drafters | {'medium': family.drafters['small']}
  )
  labels = {}
  for name, variant in (
    *(('variants', each) for each in ('bild', 'lossy', 'token')),
    *(('decoder_only', each) for each in ('math', 'qa')),
    *((each, None) for each in ('calibrate', 'draft_lengths', 'frontier')),
    *((each, None) for each in ('rule_bandit', 'temperatures')),
  ):
    config = small.load(f'cascades/{name}', variant)
    made = ways.parse_all(config, list(family.drafters))
    programs = {way.label: set() for way in made}
    for way in made:
      programs[way.label].add(ways.build(way, family, 96).program)
    if name == 'frontier':
      labels = programs
  # Alphas of a line are one program, where they are numbers of a rule.
  assert {k for k, v in labels.items() if len(v) > 1} == {'min_p'}
  with_paper = {
    where['way']
    for table in small.load('cascades/frontier').paper
    for where, _ in table['rows']
  }
  assert with_paper <= {*labels, frontier.SEQUENCE}


# What is picked on it.


class _Measured:
  """Stands in for what is measured: numbers of each point, and its calls."""

  def __init__(self, monkeypatch):
    self.calls = []
    monkeypatch.setattr(texts, 'decode', self)
    monkeypatch.setattr(texts, 'rater', lambda *_: self._rate)

  def __call__(self, config, workdir, made):
    (prompts,) = made.sets
    self.calls.append(([way.label for way in made.ways], prompts))
    return [compare.Decoded(way, prompts, []) for way in made.ways]

  def _rate(self, each):
    way, alpha = each.way, each.way.columns.get('alpha', 0)
    seed = [*f'{way.label} {way.columns} {len(each.prompts.jobs)}'.encode()]
    costs = np.random.default_rng(seed).uniform(0.3, 1, 3).round(2)
    latency, calls, rate = costs.tolist()
    quality = {'target': 20.0, 'lossless': 19.0}.get(way.label, 20 - 10 * alpha)
    return {
      'prompts': each.prompts.label,
      'way': way.label,
      **way.columns,
      'metric': 'letters',
      'quality': quality,
      'quality_error': 1.0,
      'latency': latency,
      'latency_error': 0.01,
      'rejection_rate': None if way.label == 'target' else rate,
      'target_calls': calls,
    }


def _of_length(length):
  """Ways of one draft length."""
  return tuple(
    {
      'arm': way['arm'].replace('small:2', f'small:{length}'),
      'label': way['label'],
      'columns': way.get('columns', {}) | {'draft_length': length},
    }
    for way in (_LOSSLESS, *_RULES)
  )


@pytest.mark.parametrize('cost', calibrate.COSTS)
@pytest.mark.parametrize(
  ('floor', 'margin', 'num'),
  [(0.5, 0.0, 7), (0.85, 0.0, 5), (0.85, 1.5, 3), (0.97, 0.0, 1)],
)
def test_the_choice_is_the_cheapest_that_is_good_enough(
  tmp_path, folder, monkeypatch, capsys, cost, floor, margin, num
):
  """Rules of quality 18 and 11, the target's 20, the lossless one's 19."""
  _Measured(monkeypatch)
  changes = {'floor': floor, 'margin': margin, 'cost': cost}
  changes['ways'] = (_ALONE[0], *_of_length(2), *_of_length(3))
  rows = _run('calibrate', folder, tmp_path, _CALIBRATE | changes)
  dev = [row for row in rows if row['part'] == 'dev']
  assert len(dev) == 7
  best = None
  for row in dev:
    good = row['quality'] - margin * 1.0 >= floor * 20
    good = good and row[cost] is not None
    assert row['eligible'] == good
    if good and (best is None or row[cost] < best[cost]):
      best = row
  if best is None:  # Falls back.
    lossless = [row for row in dev if row['way'] == 'lossless']
    best = min(lossless, key=lambda row: row[cost])
  # Where nothing is drafted, nothing is rejected.
  assert sum(row['eligible'] for row in dev) == num - (cost == 'rejection_rate')
  choice = _choice(tmp_path)
  assert choice['dev'] == best
  tests = [row for row in rows if row['part'] == 'test']
  kind = lambda row: (*_key(row), row.get('draft_length'))
  (test,) = [row for row in tests if kind(row) == kind(best)]
  assert test['chosen'] and best['chosen']
  assert choice['test'] == test
  assert best['floor'] == floor * 20
  assert {row['way'] for row in tests} == {'target', 'lossless', best['way']}
  said = capsys.readouterr().out
  assert f'Chose way {best["way"]}' in said
  for row, part in ((best, 'dev'), (test, 'test')):
    assert f'{row["quality"]:.2f} on {part}' in said
  assert matplotlib.image.imread(tmp_path / 'dev.png').std() > 0


def test_dev_and_test_are_disjoint_and_measured_once(
  tmp_path, folder, monkeypatch
):
  """Another floor changes no point."""
  measured = _Measured(monkeypatch)
  changes = {'floor': 0.5, 'cost': 'target_calls'}
  _run('calibrate', folder, tmp_path, _CALIBRATE | changes)
  (all_ways, dev), (some, test) = measured.calls
  assert all_ways == ['target', 'lossless', 'rule', 'rule']
  assert some == ['target', 'lossless', 'rule']
  tokens = lambda prompts: [tuple(job.turns[0]) for job in prompts.jobs]
  assert (len(dev.jobs), len(test.jobs)) == (3, 5)
  assert len({*tokens(dev), *tokens(test)}) == 3 + 5
  measured.calls.clear()
  changes |= {'floor': 2.0}
  _run('calibrate', folder, tmp_path, _CALIBRATE | changes)
  assert measured.calls == [
    (all_ways, dev),
    (['target', 'lossless'], test),
  ]
  assert dev.settings != test.settings


def test_nothing_is_good_enough(tmp_path, folder, monkeypatch, capsys):
  _Measured(monkeypatch)
  _run('calibrate', folder, tmp_path, _CALIBRATE | {'floor': 1.5})
  dev = _choice(tmp_path)['dev']
  assert (dev['way'], dev['eligible']) == ('lossless', False)
  said = capsys.readouterr().out
  assert 'Nothing has letters 30.00 on dev prompts. Chose way lossless' in said


@pytest.mark.slow
def test_a_choice_is_a_decoder(tmp_path, folder, monkeypatch):
  """It says on test prompts what was measured there."""
  monkeypatch.setattr(calibrate, 'choose', lambda rows, _: rows[-1])
  rows = _run('calibrate', folder, tmp_path, _CALIBRATE | {'repeats': 1})
  choice = _choice(tmp_path)
  assert choice['way']['arm'] == 'small:2~token_v3(0.9)'
  family = families.load(str(folder))
  config = _config('calibrate', folder, _CALIBRATE)
  made = compare.plan(config)
  _, test = calibrate.split(config, made.sets[0])
  outputs = calibrate.decoder(family, choice).decode(
    [job.turns[0] for job in test.jobs],
    choice['max_new_tokens'],
    request_ids=[job.number for job in test.jobs],
  )
  said = [family.tokenizer.decode(output.tokens) for output in outputs]
  row = rows[-1]
  assert row['chosen'] and row['part'] == 'test'
  assert row['quality'] == pytest.approx(_letters()(said, ['yes'] * 5).total)
  calls = 1 / metrics.block_efficiency(outputs)[0]
  assert row['target_calls'] == pytest.approx(calls)
  assert row['rejection_rate'] == metrics.rejection_rate(outputs)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'floor': math.nan}, 'floor must be >= 0, got nan'),
    ({'margin': -1.0}, r'margin must be >= 0, got -1\.0'),
    ({'cost': 'seconds'}, "one of latency, .* repeats=1, got 'seconds'"),
    ({'repeats': 0}, "one of rejection.* repeats=0, got 'latency'"),
    ({'dev_prompts': 1}, r'dev_prompts must lie in \[2, 6\], got 1'),
    ({'dev_prompts': 7}, r'dev_prompts must lie in \[2, 6\], got 7'),
    ({'ways': _ALONE}, "ways must have one that is labelled 'lossless'"),
    ({'ways': (_LOSSLESS,)}, "ways must have one that is labelled 'target'"),
    (
      {'prompts': {'a': {}, 'b': {'limit': 2}}},
      'prompts must be one set, got 2',
    ),
    (
      {
        'ways': (
          *_CALIBRATE['ways'],
          {'bandit': 'ucb1', 'arms': ('small:2', 'none')},
        )
      },
      r'ways.4. must be an arm, got a bandit',
    ),
  ],
)
def test_calibrate_is_checked_before_it_measures(
  tmp_path, folder, monkeypatch, changes, message
):
  measured = _Measured(monkeypatch)
  with pytest.raises(ValueError, match=message):
    _run('calibrate', folder, tmp_path, _CALIBRATE | changes)
  assert not measured.calls and not list(tmp_path.iterdir())


# A bandit over rules.


@pytest.fixture(scope='module', name='bandits')
def _bandits(folder, tmp_path_factory):
  """The workdir and the rows of a small run, and the rounds that it played."""
  workdir = tmp_path_factory.mktemp('bandits')
  played, finish = [], runner._finish

  def spy(player, state, fields):
    state, infos = finish(player, state, (*fields, 'reward'))
    played.append(infos)
    return state, infos

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(runner, '_finish', spy)
    rows = _run('rule_bandit', folder, workdir, _BANDITS)
  return workdir, rows, played


@pytest.mark.slow
def test_rules_have_a_row_for_each_weight_and_way(bandits, run):
  workdir, rows, _ = bandits
  names = (*_ARMS, _BANDIT)
  assert [(row['weight'], row['way']) for row in rows] == [
    (weight, way) for weight in _BANDITS['weights'] for way in names
  ]
  for row in rows:
    pulls = [int(each) for each in row['pulls'].split()]
    efficiency = row['block_efficiency']
    assert 1 <= efficiency <= 4
    assert row['target_calls'] == pytest.approx(1 / efficiency)
    if row['way'] == _BANDIT:
      assert len(pulls) == 2 and min(pulls) > 0
    else:
      assert len(pulls) == 1
    lossless = row['way'] == _ARMS[0]
    assert (row['fidelity'] == 1) if lossless else (0 < row['fidelity'] < 1)
  # In batches of two, with arms that have a row each.
  (alone,) = [row for row in _points(run[1], 1) if row['way'] == 'lossless']
  for name in ('quality', 'target_calls', 'target_nats', 'deferral_rate'):
    assert rows[0][name] == pytest.approx(alone[name])
  assert matplotlib.image.imread(workdir / 'over_best.png').std() > 0


@pytest.mark.slow
def test_rewards_of_rules_are_those_of_their_rounds(bandits):
  """On the scale of the deepest arm, 3, for arms alone, too."""
  _, rows, played = bandits
  # Of each way two batches, in which the last prompt is repeated.
  by_way = [played[i : i + 2] for i in range(0, len(played), 2)]
  assert len(by_way) == 4
  places = {_ARMS[0]: (0, 0), _ARMS[1]: (1, 1), _BANDIT: (2, 3)}
  sums = {}
  for row in rows:
    at = _BANDITS['weights'].index(row['weight'])
    rewards, rounds, learnt = [], [], 0.0
    for infos, count in zip(by_way[places[row['way']][at]], (2, 1)):
      reward = (1 - row['weight']) * (infos.num_emitted - 1) / 3
      reward = (reward + row['weight'] * infos.fidelity) * infos.live
      rewards += reward.sum(0)[:count].tolist()
      rounds += infos.live.sum(0)[:count].tolist()
      learnt += infos.reward[:, :count].sum()
    rewards, rounds = np.array(rewards), np.array(rounds)
    mean = rewards.sum() / rounds.sum()
    assert row['reward'] == pytest.approx(mean, abs=1e-5)
    if row['way'] == _BANDIT:
      assert learnt == pytest.approx(rewards.sum(), abs=1e-4)
    off = (rewards - mean * rounds) / rounds.sum()
    sums[row['weight'], row['way']] = mean, off
  for row in rows:
    arms = [(sums[row['weight'], arm][0], arm) for arm in _ARMS]
    assert row['best_arm'] == max(arms)[1]
    mean, off = sums[row['weight'], row['way']]
    best, off_best = sums[row['weight'], row['best_arm']]
    assert row['over_best'] == pytest.approx(mean - best, abs=1e-5)
    error = np.sqrt(((off - off_best) ** 2).sum())
    assert row['over_best_error'] == pytest.approx(error, abs=1e-5)
    error = np.sqrt((off**2).sum())
    assert row['reward_error'] == pytest.approx(error, abs=1e-5)


@pytest.mark.slow
def test_rules_go_on_where_they_stopped(bandits, folder, monkeypatch):
  """Another weight plays its bandits, and no arm alone."""
  workdir, rows, _ = bandits
  played, play = [], runner._Session.play

  def spy(self, point, *args):
    played.append(point.settings['way'].get('reward'))
    return play(self, point, *args)

  monkeypatch.setattr(runner._Session, 'play', spy)
  assert _run('rule_bandit', folder, workdir, _BANDITS) == rows
  changes = _BANDITS | {'weights': (0.9,)}
  assert _run('rule_bandit', folder, workdir, changes) == rows[3:]
  assert not played
  _run('rule_bandit', folder, workdir, _BANDITS | {'weights': (0.2, 0.5)})
  assert played == ['tradeoff(weight=0.5)'] * 2


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'weights': ()}, r'weights must be >= 0, got \(\)'),
    ({'weights': (0.5, 1.5)}, r'bandits.1..reward.*: weight must lie in'),
    ({'ways': ('small:2~best',)}, "Unknown goal 'best'. Known"),
    ({'arms': ('small:2~chow(-1.0)',)}, 'alpha of chow must lie'),
    ({'arms': ('small:2/lossy(0.5)',)}, r'ways.0.: .* has no fidelity'),
    ({'ways': ('small:2/lossy(0.5)',)}, r'ways.2.: .* has no fidelity'),
    ({'bandits': ('best',)}, "Unknown bandit 'best'"),
    ({'bandits': ('ucb1', 'ucb1')}, 'bandits.1. must differ from bandits.0.'),
    ({'metric': 'bluer'}, "Unknown metric 'bluer'"),
  ],
)
def test_rules_are_checked_before_they_are_played(
  tmp_path, folder, changes, message
):
  with pytest.raises(ValueError, match=message):
    _run('rule_bandit', folder, tmp_path, _BANDITS | changes)
  assert not list(tmp_path.iterdir())
