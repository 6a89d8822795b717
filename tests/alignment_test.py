"""Rewards round by round, and bandits of batches and of rows: MetaSD."""

import itertools
import json
import types

import matplotlib.image
import numpy as np
import pytest

from experiments import alignment
from experiments import arms
from experiments import row_batches
from specjax import decoding
from specjax import families
from specjax.testing import toys
from tests import experiments_test

pytestmark = pytest.mark.slow

_ALIGNMENT = 'metasd/alignment.py'
_BATCHES = 'metasd/batches.py'
_UCB = 'ucb1:beta=0.01/block_divergence'
_PROMPTS = {
  'code': ['def f', 'a b a b a b', 'import os', 'class A'],
  'math': ['1 + 1', '2 + 2 is more', 'x', 'count'],
}
_SHARED = {
  'bandits': (_UCB,),
  'sets': {'eval': {'domains': ('code', 'math')}},
  'max_length': 64,
}
_SMALL = {
  **_SHARED,
  'arms': (('far', 2), ('near', 2)),
  'max_new_tokens': 9,
  'num_rounds': 9,  # All that nine tokens can take.
  'share_rounds': (1, 3, 9),
  'batch_size': 3,
}
_TWO_TURNS = {'sets': {'eval': {'domains': ('code', 'math'), 'turns': 2}}}
_NAN = float('nan')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A family with a drafter that is the target, and with a stranger."""
  folder = tmp_path_factory.mktemp('family')
  toys.write_family(folder, {'near': 0.0, 'far': 0.9})
  lines = [
    json.dumps({'domain': domain, 'prompt': text})
    for domain, texts in _PROMPTS.items()
    for text in texts
  ]
  (folder / 'prompts.jsonl').write_text('\n'.join(lines))
  return folder


def _config(name, folder, changes):
  config = experiments_test._load(name)
  config.update({'family': str(folder), **changes})
  return config


def _run(name, folder, changes, workdir):
  config = _config(name, folder, changes)
  return experiments_test._run(config, workdir)


def _of(rows, **chosen):
  return [row for row in rows if chosen.items() <= row.items()]


@pytest.fixture(scope='module')
def aligned(folder, tmp_path_factory):
  """The workdir and the rows of a small run."""
  workdir = tmp_path_factory.mktemp('aligned')
  return workdir, _run(_ALIGNMENT, folder, _SMALL, workdir)


# Statistics by hand.


def _trace(values):
  """A trace whose BE is given, and whose other fields follow from it."""
  values = np.array(values)
  return alignment.Trace(
    np.where(np.isnan(values), _NAN, 0),
    2 * values + 1,
    values,
    values / 2 + 0.5,
  )


def test_rewards_of_hand_made_traces():
  """BD is linear in BE here, so that its signal is the same."""
  best = _trace([[1, 0.5, 1], [0.25, _NAN, _NAN]])
  other = _trace([[0, 0.5], [0, 0.5]])
  efficiencies = np.array([1, 0.5, 1, 0.25])
  variance, mean = efficiencies.var(), efficiencies.mean()
  traces = {'other': other, 'best': best}
  assert alignment.best_arm(traces) == 'best'
  rows = alignment.rewards(traces, 'best')
  assert [(row['arm'], row['reward']) for row in rows] == list(
    itertools.product(traces, ('BE', 'BD'))
  )
  signal = (mean - 0.25) ** 2 / max(variance, 0.0625)
  for row, expected in zip(
    rows,
    [
      (1.5, 0.25, 0.0625, 0.5, signal),
      (1.5, 0.625, 0.0625 / 4, 0, signal),
      (2 * mean + 1, mean, variance, 0, None),
      (2 * mean + 1, mean / 2 + 0.5, variance / 4, 0, None),
    ],
  ):
    names = 'block_efficiency', 'mean', 'variance', 'zeros', 'signal'
    assert [row[name] for name in names] == pytest.approx(list(expected))
  # One prompt is 3 rounds over the mean by 0.4375, the other 1 below it.
  assert rows[2]['standard_error'] == pytest.approx(0.4375 * 2**0.5 / 4)


def test_rewards_that_never_vary_have_no_signal():
  constant = _trace([[0.5, 0.5]])
  rows = alignment.rewards({'one': constant, 'two': constant}, 'one')
  assert [row['signal'] for row in rows] == [None] * 4


@pytest.mark.parametrize(
  ('played', 'settled'),
  [
    ([[1, 0, 1, 1], [0, 0, 1, 0]], 3),
    ([[1, 1], [1, 0]], 1),
    ([[1, 1], [0, 0], [1, 0]], None),  # Back below half in the last round.
    # The last two rounds are of one prompt in four.
    (
      [
        [0, 1, 0, 0],
        [0, 1, _NAN, _NAN],
        [1, _NAN, _NAN, _NAN],
        [0] + 3 * [_NAN],
      ],
      2,
    ),
  ],
)
def test_a_share_is_settled_from_the_last_time_that_it_was_low(played, settled):
  assert alignment.shares(np.array(played), ())['settled'] == settled


def test_shares_by_hand():
  """Played by 1 of 4 and by 1 of 2; then too few are left."""
  played = np.array(
    [
      [0, 1, 1],
      [0, 0, _NAN],
      [1, _NAN, _NAN],
      [0, _NAN, _NAN],
    ]
  )
  # By 1 as the best arm, and by 2 where another one was played.
  trace = alignment.Trace(*4 * [2 - played])
  np.testing.assert_array_equal(alignment.plays(trace, 1), played)
  row = alignment.shares(played, (1, 2, 3))
  assert (row['share_1'], row['share_2'], row['share_3']) == (0.25, 0.5, None)
  errors = row['error_1'], row['error_2']
  assert errors == pytest.approx((0.1875**0.5 / 2, 0.5 / 2**0.5))
  # 3 of 7 rounds; the prompts lie 5/7, -6/7, 4/7 and -3/7 off.
  assert row['share'] == pytest.approx(3 / 7)
  assert row['standard_error'] == pytest.approx(86**0.5 / 49)
  assert row['settled'] == 2


# Runs.


def test_alignment_tells_the_target_from_a_stranger(aligned):
  """One drafter is the target: nine tokens are three rounds of three."""
  workdir, rows = aligned
  rewards, shares = _of(rows, part='rewards'), _of(rows, part='best_arm')
  assert len(rewards) == 2 * 2 * 2 and len(shares) == 2
  for row in _of(rewards, arm='near 2'):
    assert row['block_efficiency'] == 3
    assert (row['mean'], row['zeros']) == (pytest.approx(1, abs=1e-3), 0)
  for row in _of(rewards, arm='far 2'):
    assert row['block_efficiency'] < 2
    assert row['mean'] < 0.6 and (row['zeros'] > 0) == (row['reward'] == 'BE')
  for row in _of(rewards, arm='far 2', reward='BD'):  # Of little variance.
    assert row['signal'] > 1
  assert {row['best_arm'] for row in shares} == {'near 2'}
  for row in shares:  # Each arm once, then the best.
    assert (row['share_1'], row['settled']) == (0, 2)
    assert (row['share_3'], row['error_3']) == (1, 0)
  for name in ('be', 'bd', 'bd_by_round', 'best_arm'):
    assert matplotlib.image.imread(workdir / f'{name}.png').std() > 0


def test_rounds_are_those_of_prompts_alone(aligned, folder, tmp_path):
  """Beside batches of three prompts, and a last one of two, of both domains."""
  changes = {'arms': _SMALL['arms'][:1], 'bandits': (), 'batch_size': 1}
  rows = _run(_ALIGNMENT, folder, _SMALL | changes, tmp_path)
  alone = _of(rows, part='rounds')
  together = _of(aligned[1], part='rounds', arm='far 2')
  for row, other in zip(together, alone, strict=True):
    assert row == pytest.approx(other, abs=1e-4)


def test_alignment_goes_on_where_it_stopped(aligned, folder):
  workdir, rows = aligned
  path = workdir / 'metrics.jsonl'
  logged = path.read_text()
  assert _run(_ALIGNMENT, folder, _SMALL, workdir) == rows
  assert path.read_text() == logged


@pytest.mark.parametrize(
  ('changes', 'match'),
  [
    ({'arms': (('near', 2), ('near', 2))}, 'arms must differ in name'),
    ({'num_rounds': 0}, 'num_rounds must be >= 1'),
    ({'bandits': ('oracle',)}, 'Unknown bandit'),
    (_TWO_TURNS, 'turns of sets.eval must be 1'),
  ],
)
def test_alignment_is_checked_before_it_starts(
  folder, tmp_path, changes, match
):
  with pytest.raises(ValueError, match=match):
    _run(_ALIGNMENT, folder, _SMALL | changes, tmp_path)


_BATCHED = {
  **_SHARED,
  'others': (('none', 0),),
  'arms': (('far', 1), ('near', 1)),
  'batch_sizes': (2,),
  'max_new_tokens': 8,
}


def test_batches_of_one_kind_and_of_many():
  """Whole batches of the largest size, and as many prompts of each domain."""
  domains = {'a': [[1], [2], [3]], 'b': [[4], [5], [6], [7]]}
  assert row_batches.order(domains, 'homogeneous', 2) == [[1], [2], [4], [5]]
  assert row_batches.order(domains, 'mixed', 2) == [[1], [4], [2], [5]]
  with pytest.raises(ValueError, match='Every domain needs 4 prompts'):
    row_batches.order(domains, 'mixed', 4)


def test_row_batches(folder, tmp_path):
  """The oracle has the target draft for itself; its first arm would not."""
  rows = _run(_BATCHES, folder, _BATCHED, tmp_path)
  assert {row['decoded'] for row in rows} == {8}
  assert all(row['tokens_per_second'] > 0 for row in rows)
  efficiency = {}
  for row in rows:
    way = row['way'], row['choice']
    efficiency.setdefault(way, []).append(row['block_efficiency'])
  bandits = [efficiency.pop((_UCB, choice)) for choice in ('batch', 'row')]
  # Homogeneous and mixed.
  assert efficiency == {('none', 'alone'): [1, 1], ('oracle', 'row'): [2, 2]}
  # Four rounds of two tokens, but that the stranger is tried once.
  for homogeneous, mixed in bandits:
    assert 1.5 < homogeneous < 2 and 1.5 < mixed < 2
  assert bandits[1][0] == bandits[1][1]  # Rows choose alike in any company.
  path = tmp_path / 'metrics.jsonl'
  logged = path.read_text()
  assert _run(_BATCHES, folder, _BATCHED, tmp_path) == rows
  assert path.read_text() == logged


def test_each_batch_gets_the_arms_of_its_prompts(monkeypatch):
  """Two batches of two prompts, of 2, 4, 6 and 8 tokens in 1 to 4 rounds."""
  calls = []

  def decode(decoder, prompts, max_new_tokens, lessons, *, seed, request_ids):
    calls.append((prompts, lessons.tolist(), list(request_ids), seed))
    one = lambda i: decoding.Result(range(2 * i + 2), i + 1, 0, i, 0, 0, 0)
    return [one(i) for i in request_ids], None, 2.5

  monkeypatch.setattr(row_batches.looped, 'decode', decode)
  monkeypatch.setattr(row_batches.looped, 'warm_up', lambda *_: None)
  config = types.SimpleNamespace(max_new_tokens=9, seed=7)
  prompts, chosen = [[1], [2], [3], [4]], np.array([1, 0, 0, 1])
  row = row_batches.measure(config, None, prompts, 2, chosen)
  assert calls == [
    ([[1], [2]], [1, 0], [0, 1], 7),
    ([[3], [4]], [0, 1], [2, 3], 7),
  ]
  assert row == {
    'decoded': 4,
    'block_efficiency': 2.0,
    'standard_error': 0.0,
    'tokens_per_second': 4.0,
    'num_catch_up_tokens': 6,
  }


def test_whose_a_bandit_is(folder):
  """That of a row has a key of its own."""
  config = _config(_BATCHES, folder, _BATCHED)
  family = families.load(config.family)
  names = [spec.name for spec in arms.specs(config.arms)]
  for decoder, shape in (
    (alignment._decoder(config, family, names, _UCB), (2,)),
    (row_batches._decoder(config, family, _UCB, 'row'), (2,)),
    (row_batches._decoder(config, family, _UCB, 'batch'), ()),
  ):
    assert decoder.init([[1], [2]], 4).bandit_key.shape == shape


@pytest.mark.parametrize(
  ('changes', 'match'),
  [
    ({'batch_sizes': (2, 3)}, 'batch_sizes must divide the largest'),
    ({'batch_sizes': (0, 2)}, 'batch_sizes must be >= 1'),
    (_TWO_TURNS, 'turns of sets must be 1'),
  ],
)
def test_row_batches_are_checked_before_they_start(
  folder, tmp_path, changes, match
):
  with pytest.raises(ValueError, match=match):
    _run(_BATCHES, folder, _BATCHED | changes, tmp_path)
