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

from experiments import calibrate
from experiments import cascades
from experiments import rule_bandit
from specjax import evaluation
from specjax import families
from specjax import metrics
from specjax.data import examples as examples_lib
from specjax.evaluation import scoring
from specjax.testing import toys
from tests import experiments_test

pytestmark = pytest.mark.slow

_PROMPTS = ('one', 'a b a b', 'what is it?', 'x y', 'count', 'two', 'go', 'so')
_RUN = {
  'draft': 'small',
  'domain': 'talk',
  'metric': 'letters',
  'max_new_tokens': 8,
  'max_length': 32,
}
_FRONTIER = _RUN | {
  'methods': {
    'target': {},
    'lossless': {},
    'rule': {'method': 'token_v3', 'alphas': (0.2, 0.9)},
    'draft': {},
  },
  'temperatures': (0.0, 1.0),
  'draft_lengths': (2,),
  'prompts': 3,
}
_CALIBRATE = _RUN | {
  'methods': {
    'rule': {'method': 'token_v3', 'alphas': (0.2, 0.9), 'bonus_probs': True}
  },
  'draft_lengths': (2,),
  'dev_prompts': 3,
  'test_prompts': 4,
}
_RULES = _RUN | {
  'arms': {
    'lossless': {},
    'rule': {'method': 'token_v3', 'alpha': 0.9, 'draft_length': 3},
  },
  'bandits': ('ucb1:beta=0.1',),
  'weights': (0.2, 0.9),
  'carry_over': False,
  'draft_length': 2,
  'prompts': 3,
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


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A family whose drafter is near its target, and prompts with responses."""
  folder = tmp_path_factory.mktemp('family')
  toys.write_family(folder, {'small': 0.3})
  examples_lib.write(
    folder / 'talk.eval.jsonl',
    [examples_lib.Example('talk', text, 'yes') for text in _PROMPTS],
  )
  return folder


def _config(name, folder, changes):
  """A config that is changed; nested fields are replaced as a whole."""
  fields = experiments_test._load(f'cascades/{name}.py').to_dict()
  paths = {'family': str(folder), 'data_dir': str(folder)}
  return ml_collections.ConfigDict(fields | paths | changes)


def _run(name, folder, workdir, changes):
  return experiments_test._run(_config(name, folder, changes), workdir)


def _read(workdir, name):
  return json.loads((workdir / name).read_text())


def _key(row):
  names = 'temperature', 'draft_length', 'label', 'alpha'
  return tuple(row[name] for name in names)


class _Measured:
  """Stands in for `cascades.measure`: numbers of each point, and its calls."""

  def __init__(self, monkeypatch):
    self.calls = []
    monkeypatch.setattr(cascades, 'measure', self)

  def __call__(self, setup, entry, jobs, metric, reference, label=''):
    self.calls.append((label, setup.draft_length, tuple(entry['alphas']), jobs))
    return [self._point(setup, label, alpha, jobs) for alpha in entry['alphas']]

  def _point(self, setup, label, alpha, jobs):
    seed = [*f'{label} {alpha} {setup.draft_length} {len(jobs)}'.encode()]
    costs = np.random.default_rng(seed).uniform(0.3, 1, 3).round(2)
    quality = {'target': 20.0, 'lossless': 19.0}.get(label, 20 - 10 * alpha)
    latency, calls, rate = costs.tolist()
    return {
      'alpha': alpha,
      'quality': quality,
      'quality_error': 1.0,
      'target_nats': quality - 30,
      'target_nats_error': 0.1,
      'latency': latency,
      'latency_error': 0.01,
      'rejection_rate': None if label == 'target' else rate,
      'target_calls': calls,
    }


# The frontier.


@pytest.fixture(scope='module')
def frontier(folder, tmp_path_factory):
  """The workdir and the rows of a small run."""
  workdir = tmp_path_factory.mktemp('frontier')
  return workdir, _run('frontier', folder, workdir, _FRONTIER)


def test_a_row_for_each_point(frontier, folder):
  workdir, rows = frontier
  lines = ('lossless', 0), ('rule', 0.2), ('rule', 0.9), ('target', 0)
  assert [_key(row) for row in rows] == [  # A config sorts its names.
    (temperature, 2, *line)
    for temperature in (0, 1)
    for line in (('draft', 0), *lines)
  ]
  for row in rows:
    assert row['prompts'] == 3 and 3 <= row['tokens'] <= 24
    assert row['latency'] > 0 <= row['latency_error']
    assert row['target_nats'] < 0 < row['quality']
    draft = row['label'] == 'draft'
    assert draft * 0 <= row['target_calls'] <= 1 - draft
    alone = row['label'] in ('target', 'draft')
    assert (row['rejection_rate'] is None) == alone
    assert alone or 0 <= row['rejection_rate'] <= 1
  draft, lossless, *_, target = rows[:5]
  # At temperature 0, the lossless answer is the target's.
  for name in ('quality', 'target_nats'):
    assert lossless[name] == target[name] != draft[name]
  assert draft['target_nats'] < target['target_nats']
  for name in ('quality_latency', 'target_nats_rejection_rate'):
    assert matplotlib.image.imread(workdir / f'{name}.png').std() > 0


def test_the_summary_is_what_the_rows_say(frontier):
  workdir, rows = frontier
  table = _read(workdir, 'summary.json')
  assert len(table) == 16
  for entry in table:
    quality = entry['by']
    same = [row for row in rows if row['temperature'] == entry['temperature']]
    (bar,) = [row[quality] for row in same if row['label'] == 'target']
    speeds, qualities = [], []
    for row in same:
      if row['label'] == entry['label'] and row[quality] >= bar:
        speeds.append(1 / row['latency'])
      if row['label'] == entry['label'] and row['latency'] <= 1:
        qualities.append(row[quality])
    assert entry['speed_up'] == (max(speeds) if speeds else None)
    assert entry['best'] == (max(qualities) if qualities else None)


def test_a_summary_by_hand():
  """From latency 0.5 on, `fast` is best until `good` is better at 0.8."""
  rows = [
    dict(
      zip(('label', 'latency', 'quality'), each), temperature=1, draft_length=2
    )
    for each in (
      ('target', 1.0, 10.0),
      ('fast', 0.5, 8.0),
      ('fast', 1.25, 12.0),
      ('good', 0.8, 11.0),
      ('bad', 0.9, 7.0),
    )
  ]
  table = {row['label']: row for row in cascades.summary(rows)}
  found = {
    label: (row['speed_up'], row['best'], row['best_share'])
    for label, row in table.items()
  }
  assert found == {
    'target': (1.0, 10.0, 0.0),
    'fast': (0.8, 8.0, pytest.approx(0.6, abs=0.01)),
    'good': (1.25, 11.0, pytest.approx(0.4, abs=0.01)),
    'bad': (None, 7.0, 0.0),
  }


def test_the_frontier_goes_on_where_it_stopped(frontier, folder, monkeypatch):
  workdir, rows = frontier
  measured = _Measured(monkeypatch)
  path = workdir / 'metrics.jsonl'
  logged = path.read_text()
  np.testing.assert_equal(_run('frontier', folder, workdir, _FRONTIER), rows)
  assert not measured.calls and path.read_text() == logged
  # The last line is torn, and another alpha is asked for.
  path.write_text(logged[:-20])
  rule = {'method': 'token_v3', 'alphas': (0.2, 0.9, 0.5)}
  changes = {'methods': _FRONTIER['methods'] | {'rule': rule}}
  again = _run('frontier', folder, workdir, _FRONTIER | changes)
  calls = [call[:3] for call in measured.calls]
  assert calls == [('rule', 2, (0.5,))] * 2 + [('target', 2, (0.0,))]
  assert [_key(row) for row in again[2:5]] == [
    (0, 2, 'rule', alpha) for alpha in (0.2, 0.9, 0.5)
  ]
  # Another option is another point.
  measured.calls.clear()
  rule['bonus_probs'] = False
  _run('frontier', folder, workdir, _FRONTIER | changes)
  assert [call[:3] for call in measured.calls] == [
    ('rule', 2, (0.2, 0.9, 0.5))
  ] * 2


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'methods': {'target': {}, 'best': {}}}, "Unknown method 'best'. Known"),
    (
      {'methods': {'target': {}, 'chow': {'alphas': (0.5, 2.0)}}},
      r'alpha of chow must lie in \[0, 1\], got 2',
    ),
    (
      {'methods': {'target': {}, 'sequence_cascade': {'alphas': (-1.0,)}}},
      'alpha of sequence_cascade must lie',
    ),
    ({'metric': 'bluer'}, "Unknown metric 'bluer'. Known"),
    ({'draft': 'tiny'}, "Unknown drafter 'tiny'. Known: small"),
    ({'domain': 'code'}, "Unknown domain 'code'"),
    ({'max_length': 9}, "Nothing of 'talk' fits: max_length=9"),
  ],
)
def test_the_frontier_is_checked_before_it_is_measured(
  tmp_path, folder, monkeypatch, changes, message
):
  measured = _Measured(monkeypatch)
  with pytest.raises(ValueError, match=message):
    _run('frontier', folder, tmp_path, _FRONTIER | changes)
  assert not measured.calls


# What is picked on it.


@pytest.mark.parametrize('cost', calibrate.COSTS)
@pytest.mark.parametrize(
  ('floor', 'margin', 'num'),
  [(0.5, 0.0, 8), (0.85, 0.0, 6), (0.85, 1.5, 4), (0.97, 0.0, 2)],
)
def test_the_choice_is_the_cheapest_that_is_good_enough(
  tmp_path, folder, monkeypatch, capsys, cost, floor, margin, num
):
  """Rules of quality 18 and 11, the target's 20, the lossless one's 19."""
  _Measured(monkeypatch)
  changes = {'floor': floor, 'margin': margin, 'cost': cost}
  changes['draft_lengths'] = (2, 3)
  rows = _run('calibrate', folder, tmp_path, _CALIBRATE | changes)
  dev = [row for row in rows if row['part'] == 'dev']
  assert len(dev) == 8
  best = None
  for row in dev:
    good = row['quality'] - margin * 1.0 >= floor * 20
    good = good and row[cost] is not None
    assert row['eligible'] == good
    if good and (best is None or row[cost] < best[cost]):
      best = row
  if best is None:  # Falls back.
    lossless = [row for row in dev if row['label'] == 'lossless']
    best = min(lossless, key=lambda row: row[cost])
  # Where nothing is drafted, nothing is rejected.
  without = 2 if cost == 'rejection_rate' else 0
  assert sum(row['eligible'] for row in dev) == num - without
  choice = _read(tmp_path, 'choice.json')
  assert choice['eligible'] == best['eligible']
  method = {'rule': 'token_v3'}.get(best['label'], best['label'])
  assert choice['method'] == method
  for name in ('alpha', 'draft_length'):
    assert choice[name] == best[name]
  tests = [row for row in rows if row['part'] == 'test']
  (test,) = [row for row in tests if _key(row) == _key(best)]
  for name in ('quality', 'latency'):
    assert choice[f'dev_{name}'] == best[name]
    assert choice[f'test_{name}'] == test[name]
  assert choice['floor'] == floor
  assert {row['label'] for row in tests} == {
    'target',
    'lossless',
    best['label'],
  }
  printed = capsys.readouterr().out.splitlines()[-1]
  assert f'Chose {best["label"]} {best["alpha"]:g}' in printed
  for row in (best, test):
    said = f'{row["quality"]:.2f} ± {row["quality_error"]:.2f} at '
    assert said + f'{row["latency"]:.2f}' in printed
  assert matplotlib.image.imread(tmp_path / 'dev.png').std() > 0


def test_dev_and_test_are_disjoint_and_measured_once(
  tmp_path, folder, monkeypatch
):
  """Another floor asks for no dev prompt again; another test size neither."""
  measured = _Measured(monkeypatch)
  first = _run('calibrate', folder, tmp_path, _CALIBRATE | {'floor': 0.5})
  dev, test = [], []
  for *_, jobs in measured.calls:
    (dev if len(jobs) == 3 else test).append([job.tokens for job in jobs])
  # Two that are always there and the rule, on each part.
  assert len(dev) == len(test) == 3
  assert all(each == dev[0] for each in dev)
  assert all(each == test[0] for each in test)
  assert len({tuple(tokens) for tokens in dev[0] + test[0]}) == 3 + 4
  measured.calls.clear()
  again = _run('calibrate', folder, tmp_path, _CALIBRATE | {'floor': 0.5})
  np.testing.assert_equal(again, first)
  assert not measured.calls
  _run('calibrate', folder, tmp_path, _CALIBRATE | {'floor': 2.0})
  assert not measured.calls  # The lossless one was compared before.
  changes = {'floor': 0.5, 'test_prompts': 2}
  _run('calibrate', folder, tmp_path, _CALIBRATE | changes)
  assert [len(call[-1]) for call in measured.calls] == [2] * 3


def test_nothing_is_good_enough(tmp_path, folder, monkeypatch, capsys):
  _Measured(monkeypatch)
  _run('calibrate', folder, tmp_path, _CALIBRATE | {'floor': 1.5})
  choice = _read(tmp_path, 'choice.json')
  assert (choice['method'], choice['eligible']) == ('lossless', False)
  printed = capsys.readouterr().out.splitlines()[-1]
  assert printed.startswith('Nothing reaches letters 30.00 on dev (floor=1.5')
  assert 'the best is target 0, draft length 2 with 20.00 ± 1.00' in printed
  assert 'Chose lossless 0, draft length 2, of letters 19.00' in printed


def test_a_choice_is_a_decoder(tmp_path, folder, frontier, monkeypatch):
  """It says what the same point of a frontier has said."""
  _, rows = frontier
  _Measured(monkeypatch)
  changes = {'floor': 0.5, 'cost': 'target_calls'}
  rule = {'rule': _CALIBRATE['methods']['rule'] | {'alphas': (0.9,)}}
  monkeypatch.setattr(calibrate, 'choose', lambda rows, _: rows[-1])
  changes['methods'] = rule
  _run('calibrate', folder, tmp_path, _CALIBRATE | changes)
  choice = _read(tmp_path, 'choice.json')
  named = [choice[name] for name in ('method', 'alpha', 'draft_length')]
  assert named == ['token_v3', 0.9, 2]
  assert choice['options'] == {'bonus_probs': True}
  family = families.load(str(folder))
  config = _config('frontier', folder, _FRONTIER)
  jobs = cascades.read_jobs(config, family.tokenizer, 3)
  decoder = calibrate.decoder(family, choice)
  outputs = decoder.decode(
    [job.tokens for job in jobs], choice['max_new_tokens']
  )
  texts = [family.tokenizer.decode(output.tokens) for output in outputs]
  (row,) = [row for row in rows if _key(row) == (1, 2, 'rule', 0.9)]
  quality = _letters()(texts, ['yes'] * 3).total
  assert row['quality'] == pytest.approx(quality)
  calls = 1 / metrics.block_efficiency(outputs)[0]
  assert row['target_calls'] == pytest.approx(calls)
  assert row['rejection_rate'] == metrics.rejection_rate(outputs)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'floor': 0.0}, r'floor must be > 0 and finite, got 0\.0'),
    ({'floor': math.nan}, 'floor must be > 0 and finite, got nan'),
    ({'margin': -1.0}, r'margin must be >= 0 and finite, got -1\.0'),
    ({'cost': 'seconds'}, "cost must be one of .*, got 'seconds'"),
    ({'dev_prompts': 1}, 'dev_prompts must be >= 2, got 1'),
    ({'test_prompts': 6}, r"must be <= 8, .*'talk' fit, got 3 \+ 6"),
    ({'draft_lengths': ()}, 'draft_lengths must hold at least one'),
    ({'methods': {'draft': {}}}, "Unknown method to choose 'draft'. Known"),
    (
      {'methods': {'target': {'method': 'lossy', 'alphas': (0.5,)}}},
      "method of methods.target must be 'target', got 'lossy'",
    ),
    ({'methods': {'diff': {'alphas': (3.0,)}}}, 'alpha of diff must lie in'),
  ],
)
def test_calibrate_is_checked_before_it_measures(
  tmp_path, folder, monkeypatch, changes, message
):
  measured = _Measured(monkeypatch)
  with pytest.raises(ValueError, match=message):
    _run('calibrate', folder, tmp_path, _CALIBRATE | changes)
  assert not measured.calls


# A bandit over rules.


@pytest.fixture(scope='module')
def rules(folder, tmp_path_factory):
  """The workdir and the rows of a small run, and the rounds that it played."""
  workdir, played, play = (
    tmp_path_factory.mktemp('rules'),
    [],
    rule_bandit._play,
  )

  def spy(*args):
    state, infos = play(*args)
    played.append(infos)
    return state, infos

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(rule_bandit, '_play', spy)
    rows = _run('rule_bandit', folder, workdir, _RULES)
  return workdir, rows, played


def test_rules_have_a_row_for_each_weight_and_way(rules, frontier):
  workdir, rows, _ = rules
  bandit = _RULES['bandits'][0]
  ways = ('lossless', 'rule', bandit)
  assert [(row['weight'], row['label']) for row in rows] == [
    (weight, way) for weight in _RULES['weights'] for way in ways
  ]
  for row in rows:
    pulls = [int(each) for each in row['pulls'].split()]
    assert len(pulls) == 2 and sum(pulls) == row['rounds']
    efficiency = row['block_efficiency']
    assert 1 <= efficiency <= 4 and row['target_calls'] == 1 / efficiency
    if row['label'] == bandit:
      assert min(pulls) > 0
    else:
      assert pulls[1 - ways.index(row['label'])] == 0
    lossless = row['label'] == 'lossless'
    assert (row['fidelity'] == 1) if lossless else (0 < row['fidelity'] < 1)
  # In batches of two, and with a bandit for each row.
  alone = [row for row in frontier[1] if _key(row) == (1, 2, 'lossless', 0)]
  for row in alone:
    for name in ('quality', 'quality_error', 'target_calls'):
      assert rows[0][name] == pytest.approx(row[name])
  assert matplotlib.image.imread(workdir / 'quality.png').std() > 0


def test_rewards_of_rules_are_those_of_their_rounds(rules):
  """On the scale of the deepest arm, 3, for arms alone, too."""
  _, rows, played = rules
  # Of each way two batches, in which the last prompt is repeated.
  by_way = [played[i : i + 2] for i in range(0, len(played), 2)]
  assert len(by_way) == 4
  ways = {'lossless': (0, 0), 'rule': (1, 1), _RULES['bandits'][0]: (2, 3)}
  sums = {}
  for row in rows:
    at = _RULES['weights'].index(row['weight'])
    rewards, rounds, learnt = [], [], 0.0
    for infos, count in zip(by_way[ways[row['label']][at]], (2, 1)):
      reward = (1 - row['weight']) * (infos.num_emitted - 1) / 3
      reward = (reward + row['weight'] * infos.fidelity) * infos.live
      rewards += reward.sum(0)[:count].tolist()
      rounds += infos.live.sum(0)[:count].tolist()
      learnt += infos.reward[:, :count].sum()
    rewards, rounds = np.array(rewards), np.array(rounds)
    mean = rewards.sum() / rounds.sum()
    assert row['reward'] == pytest.approx(mean, abs=1e-5)
    if row['label'] in _RULES['bandits']:
      assert learnt == pytest.approx(rewards.sum(), abs=1e-4)
    off = (rewards - mean * rounds) / rounds.sum()
    sums[row['weight'], row['label']] = mean, off
  for row in rows:
    arms = [(sums[row['weight'], arm][0], arm) for arm in ('lossless', 'rule')]
    assert row['best_arm'] == max(arms)[1]
    mean, off = sums[row['weight'], row['label']]
    best, off_best = sums[row['weight'], row['best_arm']]
    assert row['over_best'] == pytest.approx(mean - best, abs=1e-5)
    error = np.sqrt(((off - off_best) ** 2).sum())
    assert row['over_best_error'] == pytest.approx(error, abs=1e-5)
    error = np.sqrt((off**2).sum())
    assert row['reward_error'] == pytest.approx(error, abs=1e-5)


def test_rules_go_on_where_they_stopped(rules, folder, monkeypatch):
  workdir, rows, _ = rules
  traced = []
  monkeypatch.setattr(rule_bandit, '_trace', lambda *args: traced.append(args))
  path = workdir / 'metrics.jsonl'
  logged = path.read_text()
  changes = _RULES | {'batch_size': 3}
  assert _run('rule_bandit', folder, workdir, changes) == rows
  assert not traced and path.read_text() == logged
  # Less of what was asked for before.
  changes = _RULES | {'weights': (0.9,)}
  assert _run('rule_bandit', folder, workdir, changes) == rows[3:]


@pytest.mark.parametrize(
  ('carry_over', 'weight', 'same'),
  [(False, 0.5, True), (True, None, True), (True, 0.5, False)],
)
def test_only_carried_lessons_depend_on_the_batch_size(
  folder, carry_over, weight, same
):
  settings = []
  for size in (2, 3):
    changes = {'carry_over': carry_over, 'batch_size': size}
    config = _config('rule_bandit', folder, _RULES | changes)
    settings.append(
      rule_bandit._settings(config, 'way', weight, _RULES['arms'])
    )
  assert (settings[0] == settings[1]) == same


def test_lessons_are_carried_over_if_asked(folder, monkeypatch):
  """A row begins with what it knew at the end of the batch before."""
  config = _config('rule_bandit', folder, _RULES)
  family = families.load(str(folder))
  arms = rule_bandit.build(config, family)
  jobs = cascades.read_jobs(config, family.tokenizer, config.prompts)
  decoder = rule_bandit.decoder(config, family, arms, _RULES['bandits'][0], 0.5)
  known, play = [], rule_bandit._play
  counts = lambda state: np.array(jax.tree.leaves(state.bandit)[0])

  def spy(made, state):
    before = counts(state)
    state, infos = play(made, state)
    known.append((before, counts(state)))
    return state, infos

  monkeypatch.setattr(rule_bandit, '_play', spy)
  for carry_over in (False, True):
    with config.unlocked():
      config.carry_over = carry_over
    rule_bandit._trace(config, family, decoder, arms, jobs)
  (fresh, _), (forgot, _), (_, learnt), (carried, _) = known
  assert not np.array_equal(fresh, learnt)
  np.testing.assert_array_equal(forgot, fresh)
  np.testing.assert_array_equal(carried, learnt)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'weights': (0.5, 1.5)}, r'weights must lie in \[0, 1\], got'),
    ({'weights': ()}, 'weights must hold at least one'),
    ({'arms': {}}, 'arms must hold at least one'),
    ({'arms': {'best': {}}}, "Unknown method 'best'. Known"),
    ({'arms': {'chow': {'alpha': -1.0}}}, 'alpha of chow must lie'),
    ({'arms': {'lossy': {'alpha': 0.5}}}, "arms.lossy must not be 'lossy'"),
    ({'bandits': ('best',)}, "Unknown bandit 'best'"),
    ({'bandits': ('hedge',)}, "bandits must be lazy .*, got 'hedge'"),
    ({'bandits': ('ucb1/emitted',)}, "the trade-off .*, got 'ucb1/emitted'"),
    ({'arms': {'ucb1': {}}, 'bandits': ('ucb1',)}, "is, got 'ucb1'"),
    ({'metric': 'bluer'}, "Unknown metric 'bluer'"),
    ({'prompts': 1}, 'prompts must be >= 2, got 1'),
  ],
)
def test_rules_are_checked_before_they_are_played(
  tmp_path, folder, monkeypatch, changes, message
):
  monkeypatch.setattr(rule_bandit, '_trace', None)
  with pytest.raises(ValueError, match=message):
    _run('rule_bandit', folder, tmp_path, _RULES | changes)
