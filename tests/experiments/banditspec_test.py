"""BanditSpec's experiments, tiny: their rows, and how they go on.

Times are checked for their bookkeeping alone.
"""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import main
from experiments.banditspec import drafters
from experiments.banditspec import lengths
from experiments.banditspec import memory
from experiments.common import choice
from experiments.common import compare
from experiments.common import configs
from experiments.common import log
from experiments.common import prompts as prompts_lib
from experiments.common import results
from experiments.common import ways
from specjax import families
from specjax.data import examples as examples_lib
from specjax.testing import toys

_CONFIGS = pathlib.Path(__file__).parents[2] / 'configs' / 'banditspec'
_PROMPTS = [('one', 'count'), ('one', 'a b a b a b'), ('two', 'what is it?')]
_ARMS = ('small:2', 'prompt_lookup:3')
_HEDGE = {'bandit': 'hedge', 'catch_up': 'always', 'label': 'hedge'}
_SHORT = {'max_new_tokens': 8, 'max_length': 32}
_DRAFTERS = _SHORT | {'arms': _ARMS, 'bandits': (_HEDGE,), 'repeats': 1}
_LENGTHS = _SHORT | {
  'arms': ('none', 'small:2'),
  'bandits': ('ucb_spec',),
  'sweep': '',
  'batch_size': 2,
  'num_batches': 3,
  'cost_rounds': 2,
  'cost_repeats': 1,
}
_MEMORY = {
  'arms': _ARMS,
  'bandits': (
    {'bandit': 'ucb_spec', 'label': 'drafters'},
    {'bandit': 'ucb_spec', 'arms': ('none', 'small:2'), 'label': 'lengths'},
  ),
  'baseline': 'small:2',
  'sweep': '',
  'batch_size': 2,
  'max_new_tokens': 4,
  'max_length': 32,
}


@pytest.fixture(scope='module', name='folder')
def _folder(tmp_path_factory):
  """A family whose drafter is near its target, with prompts of two kinds."""
  folder = tmp_path_factory.mktemp('family')
  toys.write_family(folder, {'small': 0.2})
  examples = [examples_lib.Example(*each) for each in _PROMPTS]
  examples_lib.write(folder / 'prompts.jsonl', examples)
  return folder


def _config(name, folder, changes):
  config = configs.load(str(_CONFIGS / f'{name}.py'))
  with config.ignore_type():  # A sweep may be a dictionary, or none.
    for field, value in ({'family': str(folder)} | changes).items():
      config[field] = value
  return config


def _run(name, folder, changes, workdir):
  main.run(_config(name, folder, changes), workdir)
  return results.read(workdir)['rows']


def _units(workdir):
  lines = (workdir / log.FILE).read_text().splitlines()
  return [json.loads(line) for line in lines]


def _again(name, folder, changes, workdir, into, *, keep):
  """The rows of a run that was killed while it wrote a line of its log."""
  into.mkdir()
  lines = (workdir / log.FILE).read_text().splitlines(keepends=True)
  (into / log.FILE).write_text(''.join(lines[:keep]) + lines[keep][:-20])
  rows = _run(name, folder, changes, into)
  assert _units(into)[:keep] == _units(workdir)[:keep]
  assert len(_units(into)) == len(lines)
  return rows


def _without_clocks(rows):
  """Rows without what is measured with a clock."""
  words = 'second', 'speed', 'latency', 'over_', 'rank'
  return [
    {k: v for k, v in row.items() if not any(word in k for word in words)}
    for row in rows
  ]


# Drafters as arms.


@pytest.fixture(scope='module', name='decoded')
def _decoded(tmp_path_factory, folder):
  """Two sets of prompts, decoded: the workdir and rows."""
  workdir = tmp_path_factory.mktemp('drafters')
  prompts = workdir / 'mine.jsonl'
  prompts.write_text('{"domain": "one", "prompt": "x y x y"}\n')
  sets = {'eval': {}, 'mine': {'from': str(prompts)}}
  changes = _DRAFTERS | {'prompts': sets}
  return changes, workdir, _run('drafters', folder, changes, workdir)


@pytest.mark.slow
def test_rows_of_drafters_say_what_was_logged(decoded):
  """A row of each set, way and kind of prompt."""
  _, workdir, rows = decoded
  ways = [*_ARMS, 'none', 'hedge', 'oracle']
  assert {(r['prompts'], r['domain'], r['way']) for r in rows} == {
    (label, domain, way)
    for label, domains in (('eval', ['one', 'two']), ('mine', ['one']))
    for domain in ['all', *domains]
    for way in ways
  }
  assert len(rows) == 25
  records = {}
  for unit in _units(workdir):
    way = 'hedge' if len(unit['way']['arms']) > 1 else unit['way']['arms'][0]
    label = 'mine' if unit['prompts']['from'] else 'eval'
    records.setdefault((label, way), []).extend(unit['outcome']['records'])
  for label in ('eval', 'mine'):
    each = zip(*(records[label, arm] for arm in _ARMS))
    records[label, 'oracle'] = [min(r, key=lambda r: r['rounds']) for r in each]
  for row in rows:
    _check(row, records)
  assert any(row['num_catch_up_tokens'] for row in rows)


def _check(row, records):
  of = lambda way, name: sum(
    each[name]
    for each in records[row['prompts'], way]
    if row['domain'] in ('all', each['label'])
  )
  own, best = row['way'], row['best_arm']
  # Greedy decoding emits the same whatever is drafted.
  assert of(own, 'emitted') == of('none', 'emitted') == of('none', 'rounds')
  efficiency = of(own, 'emitted') / of(own, 'rounds')
  assert row['block_efficiency'] == pytest.approx(efficiency)
  assert row['over_best'] == pytest.approx(
    of(best, 'rounds') / of(own, 'rounds')
  )
  speeds = [
    of(own, f'{side}emitted') / of(own, f'{side}seconds')
    for side in ('', 'reference_')
  ]
  assert row['tokens_per_second'] == pytest.approx(speeds[0])
  assert row['speed_up'] == pytest.approx(speeds[0] / speeds[1])
  if own in _ARMS:
    assert row['over_best'] <= 1 and 'pulls' not in row
  if own == best:
    assert (row['over_best'], row['over_best_error']) == (1, 0)
  if own == 'oracle':
    assert row['over_best'] >= 1
  if row['num_catch_up_tokens']:  # It keeps every drafter current.
    assert own == 'hedge'
  if own == 'hedge':
    shares = [float(each) for each in row['pulls'].split()]
    assert len(shares) == 2 and sum(shares) == pytest.approx(1, abs=0.02)


@pytest.mark.slow
def test_drafters_go_on_where_they_stopped(tmp_path, folder, decoded):
  changes, workdir, rows = decoded
  again = _again(
    'drafters', folder, changes, workdir, tmp_path / 'again', keep=9
  )
  assert _without_clocks(again) == _without_clocks(rows)


@pytest.mark.slow
def test_figures_of_drafters(decoded):
  """A single arm is an open marker; one that chooses a filled one."""
  _, _, rows = decoded
  figures = drafters.figures(rows)
  assert set(figures) == {'block_efficiency', 'speed_up', 'over_best_arm'}
  (axes,) = figures['over_best_arm'].axes
  labels = [label.get_text() for label in axes.get_yticklabels()]
  assert labels == [
    'eval: all',
    'eval: one',
    'eval: two',
    'mine: all',
    'mine: one',
  ]
  faces = {
    each.get_label(): each[0].get_markerfacecolor() for each in axes.containers
  }
  assert [faces[arm] for arm in (*_ARMS, 'oracle')] == ['white'] * 3
  assert faces['hedge'] != 'white' and 'none' not in faces


def test_drafters_have_the_paper_s_numbers():
  """Of Table 1, beside the ways that are like theirs; and its ratios."""
  config = configs.load(
    f'{_CONFIGS / "drafters.py"}:a.safetensors,spec_bench.x'
  )
  assert config.arms[-1] == "retrieval(params='a.safetensors'):4x4"
  assert config.prompts.spec_bench['from'] == 'spec_bench.x'
  rows = [
    {
      'part': 'all prompts',
      'prompts': 'spec_bench',
      'domain': 'all',
      'way': way,
      'block_efficiency': 2.0 + i,
      'speed_up': 1.0 + i,
    }
    for i, way in enumerate(('large:4', 'retrieval:4x4', 'ucb_spec'))
  ]
  found = main.paper.beside(rows, config.paper)
  assert [row['paper'] for row in found] == [3.94, 1.29, 3.98]
  first = main.paper.claims(rows, config.paper)[0]
  assert first['claim'] == 'ucb_spec over large:4, all'
  assert first['paper'] == pytest.approx(105.72 / 98.15)
  assert first['measured'] == 3


def test_of_equal_arms_the_oracle_takes_the_first():
  """The fewest rounds for a token, as what is emitted can differ."""
  table = [
    ([2, 3, 5], [4, 9, 9], [1]),
    ([3, 2, 5], [6, 4, 9], [1, 1]),
  ]
  prompts = prompts_lib.Set('eval', [], {})
  way = ways.Way('', {}, (), *[None] * 8)
  arms = [
    compare.Decoded(
      way,
      prompts,
      [
        {'rounds': r, 'emitted': e, 'accepted': depths, 'drafted': depths}
        for r, e in zip(rounds, emitted)
      ],
    )
    for rounds, emitted, depths in table
  ]
  chosen = choice.best_of_each(arms)
  assert chosen.tolist() == [0, 0, 0]
  arms[1].records[0]['emitted'] = 7
  chosen = choice.best_of_each(arms)
  assert chosen.tolist() == [1, 0, 0]
  oracle = choice.left_to(arms, chosen, 'oracle')
  assert oracle.way.label == 'oracle'
  assert [each['pulls'] for each in oracle.records] == [[0, 3], [3, 0], [5, 0]]
  # Of the depths of the deepest arm.
  drafted = [each['drafted'] for each in oracle.records]
  assert drafted == [[1, 1], [1, 0], [1, 0]]


def test_sessions_fit_with_what_each_turn_emits(folder):
  """Eight tokens, beside the longer prompt."""
  family = families.load(str(folder))
  count = lambda text: len(family.tokenizer.encode_prompt(text))
  room = max(count(text) for _, text in _PROMPTS) + 8
  sets = {'prompts': {'pairs': {'turns': 2}}, 'prompts_per_domain': 9}
  config = _config('drafters', folder, _DRAFTERS | sets | {'max_length': room})
  (made,) = prompts_lib.build(config, family)
  assert len(made.jobs) == 1 and len(made.jobs[0].turns) == 2
  config.max_length = 2
  with pytest.raises(ValueError, match='Nothing of prompts.pairs fits: max_le'):
    prompts_lib.build(config, family)


# Lengths as arms.


@pytest.fixture(scope='module', name='batched')
def _batched(tmp_path_factory, folder):
  """Three batches of two rows in three ways: the workdir and rows."""
  workdir = tmp_path_factory.mktemp('lengths')
  return workdir, _run('lengths', folder, _LENGTHS, workdir)


@pytest.mark.slow
def test_rows_of_lengths_say_what_was_logged(batched):
  """A table of costs, and then a batch of each way after the other."""
  workdir, rows = batched
  table, *units = _units(workdir)
  assert table['costs'] == ['none', 'small:2']
  batches = [unit['outcome']['records'] for unit in units]
  speeds = np.array([_speed_up(records) for records in batches]).reshape(3, 3)
  total, parts = rows[:3], rows[3:]
  ways = ['none', 'small:2', 'ucb_spec']
  assert [row['way'] for row in total] == ways
  best = max(speeds[:2], key=np.mean)
  hindsight = speeds[:2].max(axis=0)
  for row, own in zip(total, speeds):
    assert row['batch_size'] == 2 and row['decoded'] > 0
    assert row['over_best'] == pytest.approx(own.sum() / best.sum())
    expected = own.sum() / hindsight.sum()
    assert row['over_hindsight'] == pytest.approx(expected)
  none, small = (row['round_ms'] for row in table['outcome']['rows'])
  seen = [row['priced_speed_up'] for row in total]
  assert seen[:2] == pytest.approx(
    [1, _num_rounds(batches[:3]) * none / (_num_rounds(batches[3:6]) * small)]
  )
  assert min(seen[:2]) < seen[2] < max(seen[:2])
  plain, two, bandit = [row['mean_length'] for row in total]
  assert (plain, two) == (0, 2) and 0 < bandit < 2
  expected = dict(zip(ways, speeds)) | {
    'best length': hindsight,
    'worst length': speeds[:2].min(axis=0),
  }
  for way, own in expected.items():
    found = [row for row in parts if row['way'] == way]
    assert [row['speed_up'] for row in found] == pytest.approx(own.tolist())
    assert sorted(row['rank'] for row in found) == [0, 1, 2]
  leader = [row for row in parts if row['way'] == 'best length']
  leader.sort(key=lambda row: row['rank'])
  assert (np.diff([row['speed_up'] for row in leader]) >= 0).all()
  assert len(lengths.figures(rows)['speed_up'].axes) == 1


def _num_rounds(batches):
  """Those of the longest row of each batch."""
  return sum(max(row['rounds'] for row in records) for records in batches)


def _speed_up(records):
  """Tokens per second of a batch over those of plain decoding."""
  of = lambda name: sum(record[name] for record in records)
  own = of('emitted') / of('seconds')
  return own / (of('reference_emitted') / of('reference_seconds'))


@pytest.mark.slow
@pytest.mark.parametrize('keep', [0, 3, 8])
def test_lengths_go_on_where_they_stopped(keep, tmp_path, folder, batched):
  """A bandit goes on with what it had learnt; a table of costs is kept."""
  workdir, rows = batched
  into = tmp_path / 'again'
  again = _again('lengths', folder, _LENGTHS, workdir, into, keep=keep)
  if keep:  # With the same table, the bandit plays the same arms.
    assert _without_clocks(again[:3]) == _without_clocks(rows[:3])
  if keep > 7:
    # The last batch is the bandit's: it begins with what the log says.
    states = [u['outcome'].get('bandit_state') for u in _units(into)[-3:]]
    rounds = [sum(state[0]) for state in states]
    assert 0 < rounds[0] < rounds[1] < rounds[2]


def test_batches_are_drawn_at_random(folder):
  """The same ones, however many there are."""
  drawn = []
  for num in (2, 5):
    config = _config('lengths', folder, _LENGTHS | {'num_batches': num})
    made = lengths.choice.plan(config)
    (prompts,) = [lengths._at_random(config, each) for each in made.sets]
    assert prompts.settings['at_random']
    assert all(job.number is None for job in prompts.jobs)
    drawn.append([job.turns[0] for job in prompts.jobs])
  few, many = drawn
  assert len(few) == 4 and len(many) == 10 and many[:4] == few
  assert len({tuple(each) for each in many}) > 1


@pytest.mark.parametrize(
  ('name', 'changes', 'message'),
  [
    ('lengths', {'num_batches': 1}, 'num_batches must be >= 2, got 1'),
    ('lengths', {'repeats': 0}, 'repeats must be >= 1, got 0'),
    ('lengths', {'reward': 'speed'}, r"bandits\[0\].reward: Unknown reward 's"),
    ('memory', {'baseline': 'large:4'}, "Unknown baseline 'large:4'. Known"),
    ('drafters', {'arms': ('tiny:2',)}, "Unknown drafter 'tiny'"),
    ('drafters', {'arms': (*_ARMS, _ARMS[0])}, r'ways\[2\] must differ from'),
    ('drafters', {'bandits': ('ucb9',)}, "Unknown bandit 'ucb9'"),
    ('drafters', {'prompts': {}}, 'prompts must hold at least one set'),
  ],
)
def test_bad_values_are_refused(tmp_path, folder, name, changes, message):
  base = {'lengths': _LENGTHS, 'memory': _MEMORY, 'drafters': _DRAFTERS}[name]
  with pytest.raises(ValueError, match=message):
    _run(name, folder, base | changes, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


# Memory.


@pytest.mark.slow
def test_memory_counts_what_the_loop_holds(tmp_path, folder):
  """Against sizes by hand; drafter and target are of one shape."""
  rows = _run('memory', folder, _MEMORY, tmp_path)
  rows = {row['way']: row for row in rows}
  small, lookup, plain, several, shared = rows.values()
  assert list(rows) == [*_ARMS, 'none', 'drafters', 'lengths']
  model = plain['parameters']
  assert lookup['parameters'] == model
  for row in (small, several, shared):
    assert row['parameters'] == 2 * model
  # Keys and values of a position, and the lengths of two rows. The target has
  # room for a round behind the longest row, the drafter for a chunk of 16, and
  # both in whole tiles of 32 positions.
  entry = 2 * 2 * 4 * toys.TINY['num_kv_heads'] * toys.TINY['head_dim']
  cache = lambda size: -(-size // 32) * 32 * entry + 2 * 4
  target = lambda depth: cache(32 + depth + 1)
  drafter = cache(32 + 16)
  assert plain['caches'] == target(0)
  assert lookup['caches'] == target(3)
  assert small['caches'] == shared['caches'] == target(2) + drafter
  assert several['caches'] == target(3) + drafter
  counts = 2 * (4 + 4 + 4)  # Pulls, and rewards in two parts.
  held = [row['bandit'] for row in rows.values()]
  assert held == [4, 4, 4, counts, counts]  # The arm that is fixed.
  for row in rows.values():
    held = row['parameters'] + row['caches'] + row['bandit']
    # More by token buffers, counters and intermediate values: of a round, the
    # probabilities at 2 x 5 positions or fewer of 4096 tokens, a few times.
    assert held < row['loop'] < held + 10 * 10 * 4096 * 4
    assert row['bytes_of_pass'] > row['parameters']
    per_token = row['bytes_of_pass'] / row['block_efficiency'] / 2
    assert row['bytes_per_token'] == pytest.approx(per_token)
    for name in ('parameters', 'caches', 'loop', 'bytes_per_token'):
      ratio = row[name] / small[name]
      assert row[f'relative_{name}'] == pytest.approx(ratio)
  assert plain['block_efficiency'] == 1 < small['block_efficiency'] <= 3
  assert several['loop'] > lookup['loop'] > plain['loop']


def test_bytes_of_an_array_that_is_shared_count_once():
  one, other = jnp.zeros((3, 4)), jnp.zeros(5, jnp.int8)
  assert memory.num_bytes(((one, other), {'again': one}, None)) == 48 + 5
