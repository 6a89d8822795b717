"""The experiments with bandits, tiny: their rows, and how they go on.

Times are checked for their bookkeeping alone.
"""

import json
import shutil

import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest

from experiments import arms
from experiments import benchmark
from experiments import costs
from experiments import lengths
from experiments import memory
from experiments import results
from specjax import base
from specjax import families
from specjax import sampling as sampling_lib
from tests import experiments_test
from tests import toys

_PROMPTS = [('one', 'count'), ('one', 'a b a b a b'), ('two', 'what is it?')]
_DRAFTERS = 'banditspec/drafters.py'
_ARMS = (('small', 2), ('prompt_lookup', 2))
_BANDITS = {
  'arms': _ARMS,
  'bandits': ('hedge',),
  'cost_rounds': 2,
  'cost_repeats': 1,
  'max_new_tokens': 8,
  'max_length': 32,
}
_LENGTHS = {
  'drafter': 'small',
  'draft_lengths': (0, 2),
  'bandits': ('ucb_spec',),
  'batch_sizes': (2,),
  'num_batches': 2,
  'cost_rounds': 2,
  'cost_repeats': 1,
  'max_new_tokens': 8,
  'max_length': 32,
}
_BENCHMARK = {
  'drafter': 'small',
  'batch_sizes': (1,),
  'max_length': 32,
  'rounds': 4,
  'repeats': 1,
  'arms': (('small', 2), ('none', 0)),
  'costs': {'arms': (('none', 0), ('small', 1)), 'batch_sizes': (2,)},
  'peer': False,
}
_MEMORY = {
  'arms': (*_ARMS, ('retrieval', 2)),
  'baseline': 'small 2',
  'drafter': 'small',
  'draft_lengths': (0, 2),
  'bandits': ('ucb_spec',),
  'batch_sizes': (2,),
  'num_prompts': 2,
  'max_new_tokens': 4,
  'max_length': 32,
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A family whose drafter is near its target, with prompts of two kinds."""
  folder = tmp_path_factory.mktemp('family')
  toys.write_family(folder, {'small': 0.2})
  lines = [json.dumps({'domain': d, 'prompt': text}) for d, text in _PROMPTS]
  (folder / 'prompts.jsonl').write_text('\n'.join(lines))
  return folder


def _run(name, folder, changes, workdir):
  config = experiments_test._load(name)
  config.update({'family': str(folder), **changes})
  return experiments_test._run(config, workdir)


def _tear(workdir):
  """Kills the run that wrote `metrics.jsonl`, in the middle of a line."""
  path = workdir / 'metrics.jsonl'
  path.write_text(path.read_text()[:-20])


def _logged(workdir):
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def _write_costs(path, entries, batch_size, **changes):
  row = {
    'batch_size': batch_size,
    'temperature': 0.0,
    'catch_up_seconds': 0.5,
    'device': results.device(),
  }
  specs = arms.specs(entries)
  results.save(
    path,
    [
      {**spec._asdict(), **row, 'seconds': 1.0 + spec.draft_length, **changes}
      for spec in specs
    ],
  )
  return str(path)


# Drafters as arms.


@pytest.fixture(scope='module')
def decoded(tmp_path_factory, folder):
  """Two sets of prompts, decoded: the changed config, workdir and rows."""
  workdir = tmp_path_factory.mktemp('drafters')
  prompts = workdir / 'mine.v2.jsonl'
  prompts.write_text('{"domain": "one", "prompt": "x y x y"}\n')
  changes = _BANDITS | {'prompts_file': str(prompts)}
  return changes, workdir, _run(_DRAFTERS, folder, changes, workdir)


def test_bandits_rows_say_what_was_logged(decoded):
  """A row of each set, way and domain."""
  _, workdir, rows = decoded
  cells = [(row['prompts'], row['domain'], row['way']) for row in rows]
  assert len(cells) == 20 and set(cells) == {
    (label, domain, way)
    for label, domains in (('family', ['one', 'two']), ('mine', ['one']))
    for domain in ['all', *domains]
    for way in ('none', 'small 2', 'prompt_lookup 2', 'hedge')
  }
  logged = {(row['prompts'], row['way']): row for row in _logged(workdir)}
  assert len(logged) == 8
  for row in rows:
    _check_row(row, logged)
  # Hedge keeps every drafter current.
  assert {row['way'] for row in rows if row['caught_up']} == {'hedge'}
  path = workdir / 'block_efficiency.png'
  assert matplotlib.image.imread(path).std() > 0


def _check_row(row, logged):
  mine = logged[row['prompts'], row['way']]
  best = logged[row['prompts'], row['best_arm']]
  chosen = [row['domain'] in ('all', domain) for domain in mine['domains']]
  of = lambda name, line: np.array(line[name])[chosen].sum(axis=0)
  # Greedy decoding emits the same whatever is drafted.
  plain = logged[row['prompts'], 'none']
  assert mine['emitted'] == plain['emitted'] == plain['rounds']
  efficiency = of('emitted', mine) / of('rounds', mine)
  assert row['block_efficiency'] == pytest.approx(efficiency)
  ratio = of('rounds', best) / of('rounds', mine)
  assert row['over_best'] == pytest.approx(ratio)
  if row['way'] in ('small 2', 'prompt_lookup 2'):
    assert row['over_best'] <= 1 and row['pulls'] == '1.00'
  if row['way'] == row['best_arm']:
    assert (row['over_best'], row['over_best_error']) == (1, 0)
  assert row['tokens_per_second'] == pytest.approx(
    of('emitted', mine) / of('seconds', mine)
  )
  assert row['caught_up'] == of('caught_up', mine)
  pulls = of('pulls', mine)
  assert pulls.sum() == of('rounds', mine)
  shares = [float(share) for share in row['pulls'].split()]
  np.testing.assert_allclose(shares, pulls / pulls.sum(), atol=0.0051)


def test_bandits_go_on_where_they_stopped(
  tmp_path, folder, decoded, monkeypatch
):
  """Only what has another reward, or is torn, is decoded again."""
  changes, workdir, rows = decoded
  shutil.copy(workdir / 'metrics.jsonl', tmp_path)
  first = _logged(tmp_path)
  path = _write_costs(tmp_path / 'costs.json', _ARMS, 1)
  measured = []
  monkeypatch.setattr(
    costs,
    'measure',
    lambda *args, **kwargs: measured.append(args[2]) or costs.read(path),
  )
  changes = changes | {
    'prompts_file': '',
    'reward': 'throughput',
    'costs': path,
  }
  _run(_DRAFTERS, folder, changes, tmp_path)
  *kept, last = _logged(tmp_path)
  assert kept == first and not measured
  assert [last[name] for name in ('prompts', 'way', 'reward')] == [
    'family',
    'hedge',
    'throughput',
  ]
  _tear(tmp_path)
  # This time, no table is given.
  again = _run(_DRAFTERS, folder, changes | {'costs': ''}, tmp_path)
  assert _logged(tmp_path)[:-1] == first and measured == [1]
  mine = [row for row in rows if row['prompts'] == 'family']
  fixed = lambda rows: [row for row in rows if row['way'] != 'hedge']
  assert len(again) == len(mine) and fixed(again) == fixed(mine)
  # Nothing is left to do.
  assert _run(_DRAFTERS, folder, changes, tmp_path) == again
  assert len(_logged(tmp_path)) == 9 and measured == [1]


# Lengths as arms.


@pytest.fixture(scope='module')
def batched(tmp_path_factory, folder):
  """Two batches of two rows in three ways: the workdir and rows."""
  workdir = tmp_path_factory.mktemp('lengths')
  return workdir, _run('banditspec/lengths.py', folder, _LENGTHS, workdir)


def test_lengths_rows_say_what_was_logged(batched):
  workdir, rows = batched
  assert [(row['batch_size'], row['way']) for row in rows] == [
    (2, way) for way in ('length 0', 'length 2', 'ucb_spec')
  ]
  _check_lengths(rows, _logged(workdir))
  assert matplotlib.image.imread(workdir / 'lengths.png').std() > 0


def test_lengths_go_on_where_they_stopped(
  tmp_path, folder, batched, monkeypatch
):
  """A batch size that was left unfinished is made as a whole again."""
  workdir, rows = batched
  shutil.copy(workdir / 'metrics.jsonl', tmp_path)
  found = [{'speeds': row['speeds']} for row in _logged(workdir)]
  sizes = []
  monkeypatch.setattr(
    lengths, '_measure', lambda *args: sizes.append(args[3]) or found
  )
  changes = _LENGTHS | {'batch_sizes': (2, 1)}
  for measured in ([1], [1, 1], [1, 1]):
    again = _run('banditspec/lengths.py', folder, changes, tmp_path)
    assert sizes == measured and again[:3] == rows
    assert [row['batch_size'] for row in again[3:]] == [1] * 3
    if len(measured) == 1:
      _tear(tmp_path)


def _check_lengths(rows, logged):
  speeds = np.array([line['speeds'] for line in logged])
  assert speeds.shape == (3, 2) and (speeds > 0).all()
  means = speeds.mean(axis=1)
  best = max(means[:2])
  for row, mean in zip(rows, means):
    assert 'speeds' not in row
    assert row['tokens_per_second'] == pytest.approx(mean)
    assert row['over_plain'] == pytest.approx(mean / means[0])
    assert row['over_best'] == pytest.approx(mean / best)
    hindsight = speeds[:2].max(axis=0).mean()
    assert row['over_hindsight'] == pytest.approx(mean / hindsight)
    assert (row['over_best_error'] == 0) == (mean == best)
  plain, two, bandit = [row['mean_length'] for row in rows]
  assert (plain, two) == (0, 2) and 0 < bandit < 2


def test_a_ratio_and_its_error():
  """By hand: of 3 and 5 over 2 and 2, deviations -1 and 1."""
  ratio, error = lengths._ratio(np.array([3.0, 5.0]), np.array([2.0, 2.0]))
  assert ratio == 2 and error == pytest.approx(0.5)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'draft_lengths': (1, 0)}, r'begin with 0, plain decoding, got \(1, 0\)'),
    ({'num_batches': 1}, 'num_batches must be >= 2, got 1'),
  ],
)
def test_lengths_refuses_bad_values(tmp_path, folder, changes, message):
  with pytest.raises(ValueError, match=message):
    _run('banditspec/lengths.py', folder, _LENGTHS | changes, tmp_path)


# What arms cost.


def test_benchmark_of_arms_and_its_cost_table(tmp_path, folder, monkeypatch):
  """The other parts, which know nothing of arms, are left out."""
  for part in ('_rounds', '_speed_ups'):
    monkeypatch.setattr(benchmark, part, lambda config, family: ())
  rows = _run('benchmark.py', folder, _BENCHMARK, tmp_path)
  assert [row['drafter'] for row in rows] == ['small 2', 'none', 'ucb_spec']
  for row in rows:
    assert (row['benchmark'], row['batch_size']) == ('2 arms', 1)
    assert row['device'] == results.device()
    ratio = row['round_ms'] / row['own_round_ms']
    assert row['ratio'] == pytest.approx(ratio) and ratio > 0
  # Of two arms that take turns at first, the bandit's share lies between.
  one, other, mixed = [row['own_round_ms'] for row in rows]
  assert min(one, other) < mixed < max(one, other)
  table = costs.read(str(tmp_path / 'costs.json'))
  names = ('batch_size', 'drafter', 'draft_length')
  assert [tuple(row[name] for name in names) for row in table] == [
    (2, 'none', 0),
    (2, 'small', 1),
  ]
  for row in table:
    assert row['seconds'] > 0 and row['temperature'] == 1
    assert (row['catch_up_seconds'] > 0) == (row['drafter'] == 'small')


def test_a_cost_table_is_of_this_device(tmp_path):
  with pytest.raises(ValueError, match='There is no cost table.*benchmark.py'):
    costs.read(str(tmp_path / 'costs.json'))
  path = _write_costs(tmp_path / 'other.json', _ARMS, 1, device='an abacus')
  with pytest.raises(ValueError, match='of an abacus, not of .*cpu'):
    costs.read(path)


def test_rewards_of_a_cost_table(tmp_path):
  """By hand, whatever the order of the arms; and rows may be missing."""
  path = _write_costs(tmp_path / 'costs.json', [('none', 0), ('small', 3)], 4)
  table = costs.read(path)
  reward = costs.reward(table, arms.specs([('small', 3), ('none', 0)]), 4, 0.0)
  feedback = base.Feedback(
    arm=jnp.array([0, 0, 1]),
    emitted=jnp.array([4.0, 3.0, 1.0]),
    overlap=jnp.ones(3),
    depth=jnp.array([3, 3, 0]),
    max_depth=3,
    caught_up=jnp.array([0, 4, 0]),
  )
  # 4 tokens in 4 s and 1 in 1 s are the most; 3 in 4 + 4 * 0.5 s are half.
  np.testing.assert_allclose(reward(feedback), [1, 0.5, 1], rtol=1e-6)
  with pytest.raises(ValueError, match='for small 2, small 2x3 at .* size 4'):
    wanted = [('none', 0), ('small', 2), ('small', 3, 2)]
    costs.reward(table, arms.specs(wanted), 4, 0.0)
  with pytest.raises(ValueError, match='for none at batch size 2'):
    costs.reward(table, arms.specs([('none', 0)]), 2, 0.0)


@pytest.mark.parametrize(
  ('pair', 'message'),
  [
    (('tiny', 2), "Unknown drafter 'tiny'. Known: small, none, prompt_lookup"),
    (('small', 0), 'draft_length of small must be >= 1, got 0'),
    (('prompt_lookup', 0), 'draft_length'),
    (('suffix', 0), 'draft_length'),
    (('retrieval', 0), 'draft_length of retrieval'),
    (('retrieval', 2), 'retrieval needs a datastore'),
  ],
)
def test_arms_refuse_bad_pairs(folder, pair, message):
  family = families.load(str(folder))
  with pytest.raises(ValueError, match=message):
    arms.build(family, [pair], sampling_lib.Sampling(0.0))


# Memory.


def test_memory_counts_what_the_loop_holds(tmp_path, folder):
  """Against sizes by hand; drafter and target are of one shape."""
  rows = _run('banditspec/memory.py', folder, _MEMORY, tmp_path)
  rows = {row['way']: row for row in rows}
  plain, small, lookup, drafters, shared = rows.values()
  assert list(rows) == [
    'none',
    'small 2',
    'prompt_lookup 2',
    'ucb_spec, drafters',
    'ucb_spec, lengths',
  ]
  model = plain['parameters']
  assert lookup['parameters'] == model
  for row in (small, drafters, shared):
    assert row['parameters'] == 2 * model
  # Keys and values of a position, and the lengths of two rows. The target has
  # room for a block behind the longest row, the drafter for a chunk of 16.
  entry = 2 * 2 * 4 * toys.TINY['num_kv_heads'] * toys.TINY['head_dim']
  target = lambda depth: (32 + depth + 1) * entry + 2 * 4
  drafter = (32 + 16) * entry + 2 * 4
  assert plain['caches'] == target(0)
  assert lookup['caches'] == target(2)
  for row in (small, drafters, shared):
    assert row['caches'] == target(2) + drafter
  counts = 2 * (4 + 4)  # Pulls and rewards.
  bandits = [row['bandit'] for row in rows.values()]
  assert bandits == [0, 0, 0, counts, counts]
  for row in rows.values():
    held = row['parameters'] + row['caches'] + row['bandit']
    # More by token buffers, counters and intermediate values: of a round, the
    # laws of at most 2 x 5 positions of a vocabulary of 4096, a few times.
    assert held < row['loop'] < held + 10 * 10 * 4096 * 4
    assert row['round'] > row['parameters']
    per_token = row['round'] / row['block_efficiency'] / 2
    assert row['bytes_per_token'] == pytest.approx(per_token)
    for name in ('parameters', 'caches', 'loop', 'bytes_per_token'):
      ratio = row[name] / small[name]
      assert row[f'relative_{name}'] == pytest.approx(ratio)
  assert plain['block_efficiency'] == 1 < small['block_efficiency'] <= 3
  assert drafters['loop'] > lookup['loop'] > plain['loop']


def test_bytes_of_an_array_that_is_shared_count_once():
  one, other = jnp.zeros((3, 4)), jnp.zeros(5, jnp.int8)
  assert memory.num_bytes(((one, other), {'again': one}, None)) == 48 + 5


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'baseline': 'large 4'}, 'one of small 2, prompt_lookup 2, got .large 4'),
    ({'num_prompts': 3}, 'divide num_prompts=3, got 2'),
    ({'batch_sizes': (0,)}, 'divide num_prompts=2, got 0'),
  ],
)
def test_memory_refuses_bad_values(tmp_path, folder, changes, message):
  with pytest.raises(ValueError, match=message):
    _run('banditspec/memory.py', folder, _MEMORY | changes, tmp_path)
