"""The benchmark, tiny: tables of costs, and what is compared with what.

Times are checked for their bookkeeping alone.
"""

import importlib.util
import itertools
import json
import pathlib
import shutil
import types

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import main
from experiments.benchmark import refill
from experiments.benchmark import rounds
from experiments.benchmark import transformers_peer
from experiments.common import compare
from experiments.common import configs
from experiments.common import costs
from experiments.common import log
from experiments.common import results
from experiments.common import ways
from experiments.common import workdirs
from specjax import base
from specjax import families
from specjax.data import examples as examples_lib
from specjax.models import checkpoint
from specjax.models import cutting
from specjax.testing import toys

_CONFIGS = pathlib.Path(__file__).parents[2] / 'configs' / 'benchmark'
_SMALL = {
  'max_new_tokens': 8,
  'max_length': 32,
  'sweep': '',
  'batch_size': 2,
}
_COSTS = _SMALL | {'cost_rounds': 2, 'cost_repeats': 1}
_ROUNDS = _SMALL | {
  'arm': 'small:2',
  'arms': ('small:2', 'prompt_lookup:2', 'none'),
  'rounds': 4,
  'repeats': 1,
}


@pytest.fixture(scope='module', name='folder')
def _folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('family')
  toys.write_family(folder, {'small': 0.2, 'tiny': 0.3})
  examples = [
    examples_lib.Example('one', text) for text in ('count', 'a b a b')
  ]
  examples_lib.write(folder / 'prompts.jsonl', examples)
  return folder


def _config(name, folder, changes):
  config = configs.load(str(_CONFIGS / f'{name}.py'))
  with config.ignore_type():
    for field, value in ({'family': str(folder)} | changes).items():
      config[field] = value
  return config


def _run(name, folder, changes, workdir):
  main.run(_config(name, folder, changes), workdir)
  return results.read(workdir)['rows']


# Tables of costs.

_ARMS = (
  *('none', 'small:2', 'windowed(tiny):1', 'ensemble((small, tiny)):2'),
  'deferred(small):2',
)


@pytest.fixture(scope='module', name='table')
def _table(tmp_path_factory, folder):
  """A table that was measured: the workdir and rows."""
  workdir = tmp_path_factory.mktemp('costs')
  changes = _COSTS | {'arms': _ARMS}
  return workdir, _run('costs', folder, changes, workdir)


@pytest.mark.slow
def test_a_table_has_a_row_for_each_arm(table):
  """Whoever has something to read says what a token of it takes."""
  _, rows = table
  assert [row['arm'] for row in rows] == list(_ARMS)
  assert [row['depth'] for row in rows] == [0, 2, 1, 2, 2]
  for row in rows:
    assert (row['batch_size'], row['temperature']) == (2, 0)
    assert row['round_ms'] > 0
    assert (row['catch_up_ms'] > 0) == (row['arm'] != 'none')
    assert (row['prompt_ms'] > 0) == (row['arm'] != 'none')


@pytest.mark.slow
def test_a_prompt_takes_the_time_of_one_reading(folder, tmp_path, monkeypatch):
  """Where each reading takes a second, however many are timed together."""
  monkeypatch.setattr(
    costs.measure,
    'in_turns',
    lambda runs, *_: np.array([[_num_results(run()) for run in runs]]),
  )
  timed, of_arm = [], costs._of_arm
  monkeypatch.setattr(
    costs, '_of_arm', lambda *args: timed.append(args[-1]) or of_arm(*args)
  )
  started, start = [], costs._start
  monkeypatch.setattr(
    costs,
    '_start',
    lambda *args, **options: started.append(1) or start(*args, **options),
  )
  rows = _run('costs', folder, _COSTS | {'arms': _SHARED}, tmp_path / 'run')
  assert started == [1]  # The target reads the batch once, for all of them.
  # Once what their drafter reads later is known, of who has it for both.
  assert timed == [2, 0, 1, 2]
  # Arms that share a drafter share what it has read; who reads nothing has 0.
  assert [row['prompt_ms'] for row in rows] == [0.0, 1000.0, 1000.0]


_SHARED = ('none', 'small:1', 'small:2')


def _num_results(play):
  """One, or as many as a call returns."""
  result = play()
  return float(len(result)) if isinstance(result, list) else 1.0


def _write(workdir, arms, device=None, **changes):
  """A table as a run leaves it."""
  row = {'batch_size': 4, 'temperature': 0.0}
  row |= {'catch_up_ms': 500.0, 'prompt_ms': 3000.0}
  rows = [
    {
      'arm': arm,
      **row,
      'depth': depth,
      'round_ms': 1e3 * (1 + depth),
      **changes,
    }
    for arm, depth in arms.items()
  ]
  workdir.mkdir(exist_ok=True)
  results.write(workdir, 'benchmark.costs', '', rows)
  path = workdir / results.FILE
  content = json.loads(path.read_text())
  if device:
    results.save_json(str(path), content | {'device': device})
  return str(workdir)


def _bandit(folder, source, arms, **changes):
  """The config of a bandit that earns tokens per second, and a workdir."""
  own = {'arms': arms, 'costs': source, 'batch_size': 4} | changes
  config = _config('costs', folder, _COSTS | {'sweep': ''})
  with config.unlocked():
    config.update(own)
    config.update({'experiment': 'compare', 'ways': ('none',)})
    config.update({'bandits': ('ucb1',), 'reward': 'throughput'})
  return config


def _reward(config, workdir):
  """What the bandit of a config earns; the table is that of its workdir."""
  made = compare.plan(config)
  told = costs.of(
    config, workdirs.Workdir(workdir, config), made.family, [[1, 2]]
  )
  way = made.ways[-1]
  return ways.build(way, made.family, 32, told).decoder.round_fn.reward


def test_rewards_of_a_table(tmp_path, folder):
  """By hand, whatever the order of the arms."""
  source = _write(tmp_path / 'table', {'none': 0, 'small:3': 3})
  config = _bandit(folder, source, ('small:3', 'none'))
  info = base.RoundInfo(
    arm=jnp.array([0, 0, 1]),
    live=jnp.ones(3, bool),
    tokens=jnp.zeros((3, 4), jnp.int32),
    num_emitted=jnp.array([4, 3, 1]),
    num_accepted=jnp.array([3, 2, 0]),
    depth=jnp.array([3, 3, 0]),
    tree_depth=jnp.array([3, 3, 0]),
    acceptance=jnp.ones(3),
    raw_acceptance=jnp.ones(3),
    fidelity=jnp.ones(3),
    num_catch_up_tokens=jnp.array([0, 4, 0]),
  )
  # 4 tokens in 4 s and 1 in 1 s are the most; 3 in 4 + 4 * 0.5 s are half.
  earned = _reward(config, tmp_path / 'run')(info)
  np.testing.assert_allclose(earned, [1, 0.5, 1], rtol=1e-6)
  # A run that goes on has the table that it began with.
  _write(tmp_path / 'table', {'none': 3, 'small:3': 0})
  earned = _reward(config, tmp_path / 'run')(info)
  np.testing.assert_allclose(earned, [1, 0.5, 1], rtol=1e-6)


def test_prompts_are_read_for_every_answer(tmp_path, folder):
  """Drafters of 4 rows, 3 s each, for answers of 6 tokens: 2 s a token."""
  source = _write(tmp_path / 'table', {'none': 0, 'small:3': 3})
  config = _bandit(folder, source, ('small:3', 'none'))
  made, workdir = compare.plan(config), workdirs.Workdir(tmp_path, config)
  for answer, reading in ((6.0, [2.0, 2.0]), (None, None)):
    told = costs.of(config, workdir, made.family, [[1, 2]], answer)
    assert told(made.ways[-1]).get('reading_costs') == reading


def test_reading_is_shared_out_among_plain_answers(
  tmp_path, folder, monkeypatch
):
  """Of 2 and 6 tokens: a prompt for every 4."""
  answers = [types.SimpleNamespace(tokens=[0] * each) for each in (2, 6)]
  asked = []

  def of(*args):
    asked.append(args[-1])
    raise InterruptedError

  monkeypatch.setattr(refill, '_refilled', lambda *args: answers)
  monkeypatch.setattr(costs, 'of', of)
  changes = {'ways': ('none',), 'padded': (), 'arms': ('none',)}
  with pytest.raises(InterruptedError):
    _run('refill', folder, _SMALL | changes, tmp_path / 'run')
  assert asked == [4.0]


def test_rewards_with_options_of_their_own(tmp_path, folder):
  """Nothing is read or measured for them."""
  config = _bandit(folder, 'nowhere', ('small:3', 'none'))
  config.reward = 'throughput(costs=(4.0, 1.0), depths=(3, 0))'
  assert _reward(config, tmp_path)
  assert not (tmp_path / log.FILE).exists()


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'arm': 'none'}, 'no rows for small:3 at batch size 4 and temp'),
    ({'batch_size': 2}, 'no rows for none, small:3 at batch size 4'),
    ({'temperature': 1.0}, 'and temperature 0.0'),
  ],
)
def test_a_table_that_does_not_fit_is_refused(
  tmp_path, folder, changes, message
):
  """Before anything is decoded."""
  arms = {'none': 0, 'small:3': 3}
  source = _write(tmp_path / 'table', arms, **changes)
  config = _bandit(folder, source, tuple(arms))
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path / 'run')
  assert not (tmp_path / 'run' / log.FILE).exists()
  with pytest.raises(ValueError, match='There are no results in'):
    costs.read(str(tmp_path), compare.plan(config).ways[-1], 4)


def test_a_table_of_another_device_is_not_used(tmp_path, folder, capsys):
  arms = {'none': 0, 'small:3': 3}
  source = _write(tmp_path / 'table', arms, 'an abacus')
  config = _bandit(folder, source, tuple(arms))
  assert costs.read(source, compare.plan(config).ways[-1], 4) == []
  assert 'is of an abacus, not of' in capsys.readouterr().out


@pytest.mark.slow
def test_bandits_earn_by_a_table_of_costs(tmp_path, folder, table):
  """Read from another run, or measured once for all that have the same arms."""
  source, rows = table
  config = _bandit(folder, str(source), _ARMS[:2], batch_size=2)
  main.run(config, tmp_path / 'read')
  (first, *_) = [json.loads(x) for x in (tmp_path / 'read' / log.FILE).open()]
  assert first['outcome']['rows'] == rows[:2]
  config = _bandit(folder, '', _ARMS[:2], batch_size=2)
  config.bandits = ('ucb1', 'ucb_spec', {'bandit': 'ucb1', 'reward': 'emitted'})
  main.run(config, tmp_path / 'now')
  units = [json.loads(x) for x in (tmp_path / 'now' / log.FILE).open()]
  measured = [unit.get('costs') for unit in units]
  assert measured == [['none', 'small:2']] + [None] * 4
  found = {row['way'] for row in results.read(tmp_path / 'now')['rows']}
  assert found == {'none', 'ucb1', 'ucb_spec', 'ucb1, emitted'}


# What is compared with what.


@pytest.mark.slow
def test_rounds_are_compared(tmp_path, folder):
  rows = _run('rounds', folder, _ROUNDS, tmp_path)
  (weights,), calls, (features,), several = (
    [row for row in rows if word in row['part']]
    for word in ('weights', 'model calls', 'features', 'several arms')
  )
  target = families.load(str(folder)).target
  seconds = weights['other_ms'] / 1e3
  gigabytes = 4 * families.num_params(target) / 1e9
  assert weights['arm'] == 'none'
  assert weights['gigabytes_per_second'] == pytest.approx(gigabytes / seconds)
  assert [row['arm'] for row in calls] == ['none', 'small:2']
  assert features['arm'] == 'small:2'
  assert [row['arm'] for row in several] == [*_ROUNDS['arms'], 'ucb_spec']
  for row in rows:
    assert row['batch_size'] == 2
    ratio = row['round_ms'] / row['other_ms']
    assert row['ratio'] == pytest.approx(ratio) and ratio > 0
  # Arms take turns at first, so that the bandit's share lies between theirs.
  *own, mixed = [row['other_ms'] for row in several]
  assert min(own) < mixed < max(own)
  # Each comparison is a unit of the log.
  lines = (tmp_path / log.FILE).read_text().splitlines(keepends=True)
  assert len(lines) == 5
  (tmp_path / log.FILE).write_text(''.join(lines[:4]))
  again = _run('rounds', folder, _ROUNDS, tmp_path)
  assert again[:4] == rows[:4] and len(again) == len(rows)


@pytest.mark.slow
@pytest.mark.parametrize('arm', ['feature_head(eagle3):3', 'medusa(medusa):3'])
def test_rounds_of_heads_are_compared_with_their_calls(
  tmp_path, arm, monkeypatch
):
  """They read features as they are, so that there is nothing to add."""
  find, kinds = rounds._calls_of_drafter, []

  def spied(functions, drafter):
    kinds.append(type(functions))
    return find(functions, drafter)

  monkeypatch.setattr(rounds, '_calls_of_drafter', spied)
  folder = tmp_path / 'family'
  folder.mkdir()
  toys.write_family(folder, {})
  examples_lib.write(
    folder / 'prompts.jsonl', [examples_lib.Example('one', 'count')]
  )
  toys.write_heads(folder, dict(zip(*[('eagle', 'eagle3', 'medusa')] * 2)))
  changes = _ROUNDS | {'arm': arm, 'arms': (arm, 'none')}
  rows = _run('rounds', folder / 'heads', changes, tmp_path / 'run')
  assert not any('features' in row['part'] for row in rows)
  (calls,) = [row for row in rows if row['arm'] == arm][:1]
  assert 'model calls' in calls['part']
  assert calls['round_ms'] > 0 and calls['other_ms'] > 0
  is_medusa = arm.startswith('medusa')
  assert kinds == [base.ParallelHead if is_medusa else base.FeatureHead]
  changes |= {'arm': 'dynamic_tree(eagle, num_nodes=6, depth=3)'}
  with pytest.raises(ValueError, match='arm must draft a chain, got dynamic'):
    _run('rounds', folder / 'heads', changes, tmp_path / 'other')


_PEER = _SMALL | {
  'batch_size': 1,
  'repeats': 1,
  'prompts_per_domain': 2,
  'ways': ('none', 'small:2', 'prompt_lookup:2', 'suffix:2'),
}


def _with_reduced_head(folder, tmp_path):
  """The family with a drafter that emits every other token only."""
  shutil.copytree(folder, tmp_path / 'family')
  name = tmp_path / 'family' / 'small.safetensors'
  config, params = checkpoint.load(name)
  tokens = range(0, config.vocab_size, 2)
  checkpoint.save(name, *cutting.narrow_head(config, params, tokens))
  return tmp_path / 'family'


@pytest.mark.slow
@pytest.mark.parametrize('reduced', [False, True])
def test_peers_say_the_same(tmp_path, folder, reduced):
  """In all ways that they have, and with as few of the target's calls."""
  pytest.importorskip('transformers')
  if reduced:
    folder = _with_reduced_head(folder, tmp_path)
  rows = _run('peer', folder, _PEER, tmp_path / 'run')
  ours, theirs = rows[:4], rows[4:]
  assert {row['implementation'] for row in ours} == {'specjax'}
  assert [row['way'] for row in ours] == list(_PEER['ways'])
  assert {row['implementation'] for row in theirs} == {'transformers'}
  assert [row['way'] for row in theirs] == list(_PEER['ways'][:3])
  for row in rows:
    assert (row['same_outputs'], row['decoded']) == (2, 2)
  for i, own in enumerate(theirs):
    speeds = ours[i]['tokens_per_second'], own['tokens_per_second']
    assert own['specjax_ratio'] == pytest.approx(speeds[0] / speeds[1])
    plain = theirs[0]['tokens_per_second']
    assert own['speed_up'] == pytest.approx(speeds[1] / plain)
  assert theirs[0]['block_efficiency'] == ours[0]['block_efficiency'] == 1
  assert theirs[1]['block_efficiency'] > 1 and ours[1]['block_efficiency'] > 1
  # Each prompt is a unit of the log, and nobody plays again.
  assert _run('peer', folder, _PEER, tmp_path / 'run') == rows


def test_a_reduced_head_elsewhere(tmp_path, folder):
  """The same logits, and none of tokens that it lacks."""
  torch = pytest.importorskip('torch')
  pytest.importorskip('transformers')
  family = families.load(str(_with_reduced_head(folder, tmp_path)))
  small = family.drafters['small']
  tokens = [[3, 1, 4, 1, 5]]
  extension = small.functions.extend(small.params, None, jnp.array(tokens))
  with torch.no_grad():
    theirs = transformers_peer.load(family, small)(torch.tensor(tokens)).logits
  ours = np.asarray(extension.logits)
  assert np.isneginf(ours[..., 1::2]).all()
  np.testing.assert_allclose(theirs.numpy(), ours, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_sampled_ways_of_peers(tmp_path, folder):
  """Their texts are others, so that nobody counts which are the same."""
  pytest.importorskip('transformers')
  sampling = {'temperature': 0.7, 'top_k': 5, 'min_p': 0.01}
  rows = _run('peer', folder, _PEER | {'sampling': sampling}, tmp_path)
  assert len(rows) == 7
  for row in rows:
    assert row['tokens'] > 0 and 'same_outputs' not in row


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'batch_size': 2}, r'batch_size must lie in \[1, 1\], got 2'),
    ({'repeats': 0}, 'repeats must be >= 1, got 0'),
    ({'peers': ('vllm',)}, "peer 'vllm'"),
    ({'ways': ('suffix:2',)}, "must have one that is labelled 'none'"),
  ],
)
def test_comparisons_that_are_refused(tmp_path, folder, changes, message):
  changes = _PEER | {'peers': ()} | changes
  with pytest.raises(ValueError, match=message):
    _run('peer', folder, changes, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_a_peer_that_is_not_installed(tmp_path, folder, monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(ValueError, match=r"needs llama_cpp: .*'.\[llama_cpp\]'"):
    _run('peer', folder, _PEER | {'peers': ('llama.cpp',)}, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.slow
def test_llama_cpp_needs_a_file_of_its_own(tmp_path, folder):
  pytest.importorskip('llama_cpp')
  with pytest.raises(ValueError, match='must be of a GGUF file for the peer'):
    _run('peer', folder, _PEER | {'peers': ('llama.cpp',)}, tmp_path / 'run')


@pytest.mark.parametrize(
  ('name', 'changes', 'message'),
  [
    ('costs', {'arms': ('huge:2',)}, r"arms.*'huge:2'.*Unknown drafter 'huge'"),
    ('costs', {'arms': ()}, 'arms: a bandit needs arms'),
    ('rounds', {'arm': 'small'}, 'arm: autoregressive needs a tree'),
    ('rounds', {'prompts': {}}, 'prompts must hold at least one set'),
  ],
)
def test_bad_values_are_refused(tmp_path, folder, name, changes, message):
  base_changes = {'costs': _COSTS, 'rounds': _ROUNDS}[name]
  with pytest.raises(ValueError, match=message):
    _run(name, folder, base_changes | changes, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_rounds_are_timed_once_everybody_has_read(folder):
  """Those too who read a prompt when they are first played."""
  family = families.load(str(folder))
  config = _bandit(folder, '', ('deferred(small):2',))
  (alone,) = ways.alone(compare.plan(config).ways[-1])
  decoder = ways.build(alone, family, 32).decoder
  (waits,) = decoder.init([[1, 2, 3]], 8).drafters
  (reads,) = costs.begin(decoder, [[1, 2, 3]], 8).drafters
  assert waits.waiting.tolist() == [3] and reads.waiting.tolist() == [0]


def test_runs_take_turns_there_and_back(monkeypatch):
  """A machine that slows down steadily does not favour who comes first."""
  clock = itertools.count()
  monkeypatch.setattr(costs.measure, 'timed', lambda run: (None, run()))
  runs = [lambda: lambda: float(next(clock))] * 3
  seconds = costs.measure.in_turns(runs, 4, warm_up=False)
  np.testing.assert_array_equal(seconds[:2], [[0, 1, 2], [5, 4, 3]])
  np.testing.assert_array_equal(seconds.sum(axis=0), 22)


def test_a_batch_repeats_prompts():
  assert costs.batch([[1], [2]], 5) == [[1], [2], [1], [2], [1]]


def test_every_arm_of_a_bandit_alone(folder):
  """Nothing of the bandit is left."""
  config = _bandit(folder, '', _ARMS[:3])
  config.bandits = ({'bandit': 'ucb1', 'warm_start': 4, 'per_row': True},)
  way = compare.plan(config).ways[-1]
  each = ways.alone(way)
  assert [own.label for own in each] == list(_ARMS[:3])
  for own in each:
    decoder = ways.build(own, families.load(str(folder)), 32).decoder
    assert decoder.round_fn.bandit.num_arms == 1
    assert not own.per_row and not own.warm_start
