"""BanditSpec's experiments: their rows, and how they go on.

Times are checked for their bookkeeping alone.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import main
from experiments.banditspec import drafters
from experiments.banditspec import lengths
from experiments.banditspec import memory
from experiments.common import choice
from experiments.common import compare
from experiments.common import methods
from experiments.common import prompts as prompts_lib
from experiments.common import workdirs
from specjax import families
from specjax.testing import toys
from tests.experiments import toy

_ARMS = ('small:2', 'prompt_lookup:3')
_DRAFTERS = toy.SIZES | {
  'arms': _ARMS,
  'bandits': ({'bandit': 'hedge', 'label': 'hedge'},),
  'repeats': 1,
}
_LENGTHS = toy.SIZES | {
  'arms': ('none', 'small:2'),
  'bandits': ('ucb_spec',),
  'sweep': '',
  'num_batches': 3,
}
_MEMORY = toy.SIZES | {
  'arms': ('small:2',),
  'bandits': (
    {'bandit': 'ucb_spec', 'arms': _ARMS, 'label': 'drafters'},
    {'bandit': 'ucb_spec', 'arms': ('none', 'small:2'), 'label': 'lengths'},
  ),
  'baseline': 'small:2',
  'sweep': '',
}


def _config(name, family, changes):
  return toy.config(f'banditspec/{name}', family, changes)


# Drafters as arms.

# By method: rounds of a prompt of 'one' and of one of 'two', and what a bandit
# has played of each arm.
_PLAYED = {
  'small:2': ((4, 6), None),
  'prompt_lookup:3': ((6, 4), None),
  'none': ((12, 12), None),
  'hedge': ((5, 5), [3, 1]),
}


def _played(method, job):
  by_domain, pulls = _PLAYED[method.label]
  rounds = by_domain[job.label == 'two']
  clocks = {'seconds': 2.0 * rounds, 'prefill': 0.1, 'differ': 0}
  clocks |= {'reference_seconds': 24.0, 'reference_prefill': 0.1}
  counts = {'rounds': rounds, 'pulls': pulls or [rounds]}
  return counts | clocks | {'reference_emitted': 12}


@pytest.fixture(name='rows')
def _rows(tmp_path, family, monkeypatch):
  """Rows of two sets of prompts."""
  toy.simulate(monkeypatch, _played)
  (tmp_path / 'mine.jsonl').write_text('{"domain": "one", "prompt": "x y"}\n')
  sets = {'eval': {}, 'mine': {'from': str(tmp_path / 'mine.jsonl')}}
  config = _config('drafters', family, _DRAFTERS | {'prompts': sets})
  return toy.run(config, tmp_path / 'run')


def test_drafters_have_a_row_for_each_set_method_and_kind(rows):
  """The family has two prompts of 'one' and one of 'two'."""
  assert {(r['prompts'], r['domain'], r['method']) for r in rows} == {
    (label, domain, method)
    for label, domains in (('eval', ['one', 'two']), ('mine', ['one']))
    for domain in ['all', *domains]
    for method in [*_PLAYED, 'oracle']
  }
  assert len(rows) == 25
  found = {
    row['method']: (row['block_efficiency'], row['over_best'], row['speed_up'])
    for row in rows
    if (row['prompts'], row['part']) == ('eval', 'all prompts')
  }
  rounds = {'small:2': 14, 'prompt_lookup:3': 16, 'none': 36}
  rounds |= {'hedge': 15, 'oracle': 12}
  for method, num in rounds.items():
    expected = 36 / num, 14 / num, 36 / num
    assert found[method] == pytest.approx(expected), method
  pulls = {row['pulls'] for row in rows if row['method'] == 'hedge'}
  assert pulls == {'0.75 0.25'}


def test_figures_of_drafters(rows):
  """A single arm is an open marker; one that chooses a filled one."""
  figures = drafters.figures(rows)
  assert set(figures) == {'block_efficiency', 'speed_up', 'over_best_arm'}
  (axes,) = figures['over_best_arm'].axes
  labels = [label.get_text() for label in axes.get_yticklabels()]
  assert labels == [
    *('eval: all', 'eval: one', 'eval: two', 'mine: all', 'mine: one')
  ]
  faces = {
    each.get_label(): each[0].get_markerfacecolor() for each in axes.containers
  }
  assert [faces[arm] for arm in (*_ARMS, 'oracle')] == ['white'] * 3
  assert faces['hedge'] != 'white' and 'none' not in faces


def test_of_equal_arms_the_oracle_takes_the_first():
  """The fewest rounds for a token, as what is emitted can differ."""
  table = [
    ([2, 3, 5], [4, 9, 9], [1]),
    ([3, 2, 5], [6, 4, 9], [1, 1]),
  ]
  prompts = prompts_lib.PromptSet('eval', [], {})
  method = methods.Method('', {}, (), *[None] * 8)
  arms = [
    compare.Decoded(
      method,
      prompts,
      [
        {'rounds': r, 'emitted': e, 'accepted': depths, 'drafted': depths}
        for r, e in zip(rounds, emitted)
      ],
    )
    for rounds, emitted, depths in table
  ]
  chosen = choice.best_arms(arms)
  assert chosen.tolist() == [0, 0, 0]
  arms[1].records[0]['emitted'] = 7
  chosen = choice.best_arms(arms)
  assert chosen.tolist() == [1, 0, 0]
  oracle = choice.assign(arms, chosen, 'oracle')
  assert oracle.method.label == 'oracle'
  assert [each['pulls'] for each in oracle.records] == [[0, 3], [3, 0], [5, 0]]
  # Of the depths of the deepest arm.
  drafted = [each['drafted'] for each in oracle.records]
  assert drafted == [[1, 1], [1, 0], [1, 0]]


def test_sessions_fit_with_what_each_turn_emits(family):
  """Eight tokens, beside the longer prompt."""
  tokenizer = families.load(str(family)).tokenizer
  prompts = [tokenizer.encode_prompt(text) for _, text in toy.PROMPTS]
  room = max(map(len, prompts)) + 8
  sets = {'prompts': {'pairs': {'turns': 2}}, 'prompts_per_domain': 9}
  config = _config('drafters', family, _DRAFTERS | sets | {'max_length': room})
  (made,) = prompts_lib.build(config, families.load(str(family)))
  assert len(made.jobs) == 1 and len(made.jobs[0].turns) == 2
  config.max_length = 2
  with pytest.raises(ValueError, match='No prompt of prompts.pairs fits: max_'):
    prompts_lib.build(config, families.load(str(family)))


# Lengths as arms.


@pytest.fixture(scope='module', name='batched')
def _batched(tmp_path_factory, family):
  """Three batches of two rows with three methods: config, workdir and rows."""
  folder = tmp_path_factory.mktemp('lengths')
  costs = toy.write_costs(folder / 'costs', {'none': 0, 'small:2': 2})
  config = _config('lengths', family, _LENGTHS | {'costs': costs})
  return config, folder / 'run', toy.run(config, folder / 'run')


@pytest.mark.slow
def test_rows_of_lengths_say_what_was_logged(batched):
  """A batch of each method after the other, and the table of costs before."""
  _, workdir, rows = batched
  table, *units = toy.units(workdir)
  assert table['costs'] == ['none', 'small:2']
  batches = [unit['outcome']['records'] for unit in units]
  speeds = np.array([_speed_up(records) for records in batches]).reshape(3, 3)
  total, parts = rows[:3], rows[3:]
  methods = ['none', 'small:2', 'ucb_spec']
  assert [row['method'] for row in total] == methods
  best = max(speeds[:2], key=np.mean)
  hindsight = speeds[:2].max(axis=0)
  for row, own in zip(total, speeds):
    assert row['batch_size'] == 2 and row['decoded'] > 0
    assert row['over_best'] == pytest.approx(own.sum() / best.sum())
    expected = own.sum() / hindsight.sum()
    assert row['over_hindsight'] == pytest.approx(expected)
  # A round of `small:2` takes three seconds of the table's, a plain one one.
  num_rounds = _num_rounds(batches[:3]), 3 * _num_rounds(batches[3:6])
  seen = [row['predicted_speed_up'] for row in total]
  assert seen[:2] == pytest.approx([1, num_rounds[0] / num_rounds[1]])
  assert min(seen[:2]) < seen[2] < max(seen[:2])
  plain, two, bandit = [row['mean_length'] for row in total]
  assert (plain, two) == (0, 2) and 0 < bandit < 2
  expected = dict(zip(methods, speeds)) | {
    'best length': hindsight,
    'worst length': speeds[:2].min(axis=0),
  }
  for method, own in expected.items():
    found = [row for row in parts if row['method'] == method]
    assert [row['speed_up'] for row in found] == pytest.approx(own.tolist())
    assert sorted(row['rank'] for row in found) == [0, 1, 2]
  leader = [row for row in parts if row['method'] == 'best length']
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
@pytest.mark.parametrize('keep', [3, 8])
def test_lengths_go_on_where_they_stopped(keep, tmp_path, batched):
  """A bandit goes on with what it had learnt, and plays the same arms."""
  config, workdir, rows = batched
  again = toy.torn(workdir, tmp_path / 'again', keep)
  found = toy.run(config, again)
  assert toy.without_clocks(found[:3]) == toy.without_clocks(rows[:3])
  before, after = toy.units(workdir), toy.units(again)
  assert after[:keep] == before[:keep] and len(after) == len(before)
  # The last three are the bandit's: each begins with what the log says.
  states = [unit['outcome']['bandit_state'] for unit in after[-3:]]
  rounds = [sum(state[0]) for state in states]
  assert 0 < rounds[0] < rounds[1] < rounds[2]


def test_batches_are_drawn_at_random(family, tmp_path, monkeypatch):
  """The same ones, however many there are; nobody knows a prompt's number."""
  decoded = toy.simulate(monkeypatch, _one_of_a_batch)
  costs = toy.write_costs(tmp_path / 'costs', {'none': 0, 'small:2': 2})
  drawn = []
  for num in (2, 5):
    changes = {'num_batches': num, 'costs': costs}
    config = _config('lengths', family, _LENGTHS | changes)
    lengths.run(config, workdirs.Workdir(tmp_path / str(num), config))
    prompts = decoded[-1].prompts
    assert prompts.settings['at_random']
    assert all(job.number is None for job in prompts.jobs)
    drawn.append([job.turns[0] for job in prompts.jobs])
  few, many = drawn
  assert len(few) == 4 and len(many) == 10 and many[:4] == few
  assert len({tuple(each) for each in many}) > 1


def _one_of_a_batch(method, job):
  clocks = {'seconds': 1.0, 'prefill': 0.1}
  clocks |= {f'reference_{name}': value for name, value in clocks.items()}
  pulls = [1] * len(method.arms)
  return clocks | {'reference_emitted': 12, 'differ': 0, 'pulls': pulls}


@pytest.mark.parametrize(
  ('name', 'changes', 'message'),
  [
    ('lengths', {'num_batches': 1}, 'num_batches must be >= 2, got 1'),
    ('lengths', {'repeats': 0}, 'repeats must be >= 1, got 0'),
    ('memory', {'baseline': 'large:4'}, "Unknown baseline 'large:4'. Known"),
    (
      'drafters',
      {'arms': (*_ARMS, _ARMS[0])},
      r'methods\[2\] must differ from',
    ),
  ],
)
def test_bad_values_are_refused(tmp_path, family, name, changes, message):
  base = {'lengths': _LENGTHS, 'memory': _MEMORY, 'drafters': _DRAFTERS}[name]
  with pytest.raises(ValueError, match=message):
    main.run(_config(name, family, base | changes), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


# Memory.


@pytest.mark.slow
def test_memory_counts_what_the_loop_holds(tmp_path, family, monkeypatch):
  """Against sizes by hand; drafter and target are of one shape."""
  rounds = lambda method: 12 if method.label == 'none' else 5
  toy.simulate(monkeypatch, lambda method, _: {'rounds': rounds(method)})
  rows = toy.run(_config('memory', family, _MEMORY), tmp_path)
  rows = {row['method']: row for row in rows}
  small, plain, several, shared = rows.values()
  assert list(rows) == ['small:2', 'none', 'drafters', 'lengths']
  model = plain['parameters']
  for row in (small, several, shared):
    assert row['parameters'] == 2 * model
  # Keys and values of a position, and the lengths of two rows. The target has
  # room for a round behind the longest row, the drafter for a chunk of 16, and
  # both in whole tiles of 32 positions.
  entry = 2 * 2 * 4 * toys.TINY['num_kv_heads'] * toys.TINY['head_dim']
  cache = lambda size: -(-size // 32) * 32 * entry + 2 * 4
  target = lambda depth: cache(toy.SIZES['max_length'] + depth + 1)
  drafter = cache(toy.SIZES['max_length'] + 16)
  assert plain['caches'] == target(0)
  assert small['caches'] == shared['caches'] == target(2) + drafter
  assert several['caches'] == target(3) + drafter
  counts = 2 * (4 + 4 + 4)  # Pulls, and rewards in two parts.
  held = [row['bandit'] for row in rows.values()]
  assert held == [4, 4, counts, counts]  # The arm that is fixed.
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
  assert (plain['block_efficiency'], small['block_efficiency']) == (1, 2.4)
  assert several['loop'] > small['loop'] > plain['loop']


def test_bytes_of_an_array_that_is_shared_count_once():
  one, other = jnp.zeros((3, 4)), jnp.zeros(5, jnp.int8)
  assert memory.num_bytes(((one, other), {'again': one}, None)) == 48 + 5
