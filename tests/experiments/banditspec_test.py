"""BanditSpec's experiments: their rows, and how they go on.

Times are checked for their bookkeeping alone.
"""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import arm_selection
from experiments import main
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
  'bandits': ({'bandit': 'hedge', 'feedback': 'full', 'label': 'hedge'},),
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
  'repeats': 0,
  'sweep': '',
}


def _config(name, family, changes):
  return toy.config(f'banditspec/{name}', family, changes)


# Drafters as arms.

# By method: the rounds of a prompt from domain 'one' and from domain 'two', and
# the pulls of each arm of a bandit.
_ROUNDS_AND_PULLS = {
  'small:2': ((4, 6), None),
  'prompt_lookup:3': ((6, 4), None),
  'none': ((12, 12), None),
  'hedge': ((5, 5), [3, 1]),
}


def _drafter_record(method, job):
  by_domain, pulls = _ROUNDS_AND_PULLS[method.label]
  rounds = by_domain[job.label == 'two']
  clocks = {'seconds': 2.0 * rounds, 'prefill': 0.1, 'differ': 0}
  clocks |= {'reference_seconds': 24.0, 'reference_prefill': 0.1}
  counts = {'rounds': rounds, 'pulls': pulls or [rounds]}
  return counts | clocks | {'reference_emitted': 12}


@pytest.fixture(name='rows')
def _rows(tmp_path, family, monkeypatch):
  """Rows of two sets of prompts."""
  toy.simulate(monkeypatch, _drafter_record)
  (tmp_path / 'mine.jsonl').write_text('{"domain": "one", "prompt": "x y"}\n')
  sets = {'eval': {}, 'mine': {'source': str(tmp_path / 'mine.jsonl')}}
  config = _config('drafters', family, _DRAFTERS | {'prompts': sets})
  return toy.run(config, tmp_path / 'run')


def test_drafters_have_a_row_for_each_set_method_and_kind(rows):
  """Uses a family with two prompts in domain 'one' and one in 'two'."""
  assert {(r['prompts'], r['domain'], r['method']) for r in rows} == {
    (label, domain, method)
    for label, domains in (('eval', ['one', 'two']), ('mine', ['one']))
    for domain in ['all', *domains]
    for method in [*_ROUNDS_AND_PULLS, 'oracle']
  }
  assert len(rows) == 25
  metrics = {
    row['method']: (row['block_efficiency'], row['over_best'], row['speed_up'])
    for row in rows
    if (row['prompts'], row['part']) == ('eval', 'all prompts')
  }
  rounds = {'small:2': 14, 'prompt_lookup:3': 16, 'none': 36}
  rounds |= {'hedge': 15, 'oracle': 12}
  for method, num in rounds.items():
    expected = 36 / num, 14 / num, 36 / num
    assert metrics[method] == pytest.approx(expected), method
  pulls = {row['pulls'] for row in rows if row['method'] == 'hedge'}
  assert pulls == {'0.75 0.25'}


def test_figures_of_drafters(rows):
  """Draws single arms as open markers and bandits as filled ones."""
  figures = arm_selection.figures(rows)
  assert set(figures) == {'block_efficiency', 'speed_up', 'over_best_arm'}
  (axes,) = figures['over_best_arm'].axes
  labels = [label.get_text() for label in axes.get_yticklabels()]
  assert labels == [
    *('eval: all', 'eval: one', 'eval: two', 'mine: all', 'mine: one')
  ]
  faces = {
    container.get_label(): container[0].get_markerfacecolor()
    for container in axes.containers
  }
  assert [faces[arm] for arm in (*_ARMS, 'oracle')] == ['white'] * 3
  assert faces['hedge'] != 'white' and 'none' not in faces


def test_of_equal_arms_the_oracle_takes_the_first():
  """Minimizes rounds per token, since arms can emit different numbers."""
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
        {
          **{'rounds': r, 'emitted': e, 'seconds': r * r},
          **{'accepted': depths, 'drafted': depths, 'tested': depths},
        }
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
  assert [record['pulls'] for record in oracle.records] == [
    [0, 3],
    [3, 0],
    [5, 0],
  ]
  # Counts have the length of the deepest arm.
  drafted = [record['drafted'] for record in oracle.records]
  assert drafted == [[1, 1], [1, 0], [1, 0]]
  # 4 / 4 and 9 / 7 seconds per token, 9 / 9 and 4 / 4, 25 / 9 and 25 / 9.
  assert choice.best_arms(arms, 'seconds').tolist() == [0, 0, 0]
  arms[0].records[1]['seconds'] = 10
  assert choice.best_arms(arms, 'seconds').tolist() == [0, 1, 0]


def test_sessions_fit_with_what_each_turn_emits(family):
  """Leaves room for the longer prompt and eight tokens."""
  tokenizer = families.load(str(family)).tokenizer
  prompts = [tokenizer.encode_prompt(text) for _, text in toy.PROMPTS]
  room = max(map(len, prompts)) + 8
  sets = {'prompts': {'pairs': {'turns': 2}}, 'prompts_per_domain': 9}
  config = _config('drafters', family, _DRAFTERS | sets | {'max_length': room})
  (prompt_set,) = prompts_lib.build(config, families.load(str(family)))
  assert len(prompt_set.jobs) == 1 and len(prompt_set.jobs[0].turns) == 2
  config.max_length = 2
  with pytest.raises(ValueError, match='No prompt of prompts.pairs fits: max_'):
    prompts_lib.build(config, families.load(str(family)))


# Lengths as arms.


@pytest.fixture(scope='module', name='lengths_run')
def _lengths_run(tmp_path_factory, family):
  """Returns config, workdir and rows of three batches with three methods."""
  folder = tmp_path_factory.mktemp('lengths')
  costs = toy.write_costs(folder / 'costs', family, {'none': 0, 'small:2': 2})
  config = _config('lengths', family, _LENGTHS | {'costs': costs})
  return config, folder / 'run', toy.run(config, folder / 'run')


def test_rows_of_lengths_say_what_was_logged(lengths_run):
  """Compares rows with a log of the cost table and of each method's batches."""
  _, workdir, rows = lengths_run
  table, *units = toy.units(workdir)
  assert table['costs'] == ['none', 'small:2']
  batches = [unit['outcome']['records'] for unit in units]
  speeds = np.array([_speed_up(records) for records in batches]).reshape(3, 3)
  total, parts = rows[:3], rows[3:]
  methods = ['none', 'small:2', 'ucb_spec']
  assert [row['method'] for row in total] == methods
  best = max(speeds[:2], key=np.mean)
  hindsight = speeds[:2].max(axis=0)
  for row, method_speeds in zip(total, speeds):
    assert row['batch_size'] == 2 and row['decoded'] > 0
    assert row['over_best'] == pytest.approx(method_speeds.sum() / best.sum())
    expected = method_speeds.sum() / hindsight.sum()
    assert row['over_hindsight'] == pytest.approx(expected)
  # In the table, a round of `small:2` takes three seconds, a plain round one.
  num_rounds = _num_rounds(batches[:3]), 3 * _num_rounds(batches[3:6])
  predicted = [row['predicted_speed_up'] for row in total]
  assert predicted[:2] == pytest.approx([1, num_rounds[0] / num_rounds[1]])
  assert min(predicted[:2]) < predicted[2] < max(predicted[:2])
  plain, two, bandit = [row['mean_length'] for row in total]
  assert (plain, two) == (0, 2) and 0 < bandit < 2
  expected = dict(zip(methods, speeds)) | {
    'best length': hindsight,
    'worst length': speeds[:2].min(axis=0),
  }
  for method, method_speeds in expected.items():
    method_rows = [row for row in parts if row['method'] == method]
    assert [row['speed_up'] for row in method_rows] == pytest.approx(
      method_speeds.tolist()
    )
    assert sorted(row['rank'] for row in method_rows) == [0, 1, 2]
  leader = [row for row in parts if row['method'] == 'best length']
  leader.sort(key=lambda row: row['rank'])
  assert (np.diff([row['speed_up'] for row in leader]) >= 0).all()
  assert len(lengths.figures(rows)['speed_up'].axes) == 1


def _num_rounds(batches):
  """Sums the rounds of the longest row of each batch."""
  return sum(max(row['rounds'] for row in records) for records in batches)


def _speed_up(records):
  """Returns the tokens per second of a batch over those of plain decoding."""
  total = lambda name: sum(record[name] for record in records)
  speed = total('emitted') / total('seconds')
  return speed / (total('reference_emitted') / total('reference_seconds'))


@pytest.mark.parametrize('keep', [3, 8])
def test_lengths_go_on_where_they_stopped(keep, tmp_path, lengths_run):
  """Resumes a run: a bandit keeps its state and selects the same arms."""
  config, workdir, rows = lengths_run
  torn_dir = toy.torn_workdir(workdir, tmp_path / 'again', keep)
  resumed_rows = toy.run(config, torn_dir)
  assert toy.without_clocks(resumed_rows[:3]) == toy.without_clocks(rows[:3])
  units, resumed_units = toy.units(workdir), toy.units(torn_dir)
  assert resumed_units[:keep] == units[:keep] and len(resumed_units) == len(
    units
  )
  # The last three units are the bandit's. Each starts from the logged state.
  states = [unit['outcome']['bandit_state'] for unit in resumed_units[-3:]]
  rounds = [sum(state[0]) for state in states]
  assert 0 < rounds[0] < rounds[1] < rounds[2]


def test_batches_are_drawn_at_random(family, tmp_path, monkeypatch):
  """Draws the same prompts for any number of batches; jobs have no number."""
  decoded = toy.simulate(monkeypatch, _batch_record)
  costs = toy.write_costs(tmp_path / 'costs', family, {'none': 0, 'small:2': 2})
  samples = []
  for num in (2, 5):
    changes = {'num_batches': num, 'costs': costs}
    config = _config('lengths', family, _LENGTHS | changes)
    lengths.run(config, workdirs.Workdir(tmp_path / str(num), config))
    prompts = decoded[-1].prompts
    assert prompts.settings['at_random']
    assert all(job.number is None for job in prompts.jobs)
    samples.append([job.turns[0] for job in prompts.jobs])
  small_sample, large_sample = samples
  assert (
    len(small_sample) == 4
    and len(large_sample) == 10
    and large_sample[:4] == small_sample
  )
  assert len({tuple(tokens) for tokens in large_sample}) > 1


def _batch_record(method, job):
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
      'memory',
      {'prompts': {'a': {'source': 'family'}, 'b': {'source': 'family'}}},
      r"prompts must hold a single prompt set, got \['a', 'b'\]",
    ),
    (
      'drafters',
      {
        'methods': tuple(
          {'arm': arm, 'label': 'same', 'columns': {'number': number}}
          for number, arm in enumerate(_ARMS)
        )
      },
      "different labels here, got two with the label 'same'",
    ),
    ('drafters', {'oracle': 'bytes'}, "Unknown oracle 'bytes'. Known: rounds"),
    (
      'drafters',
      {'oracle': 'seconds', 'repeats': 0},
      "oracle 'seconds' needs timed methods",
    ),
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


def test_memory_counts_what_the_loop_holds(tmp_path, family, monkeypatch):
  """Compares sizes computed by hand; drafter and target have the same shape."""
  rounds = lambda method: 12 if method.label == 'none' else 5
  toy.simulate(monkeypatch, lambda method, _: {'rounds': rounds(method)})
  rows = toy.run(_config('memory', family, _MEMORY), tmp_path)
  rows = {row['method']: row for row in rows}
  small, plain, drafter_bandit, length_bandit = rows.values()
  assert list(rows) == ['small:2', 'none', 'drafters', 'lengths']
  model = plain['parameters']
  for row in (small, drafter_bandit, length_bandit):
    assert row['parameters'] == 2 * model
  # A KV cache holds keys and values per position, and the lengths of two rows.
  # The target has room for a round after the longest row, the drafter for a
  # chunk of 16 tokens. Both are rounded up to tiles of 32 positions.
  entry = 2 * 2 * 4 * toys.TINY['num_kv_heads'] * toys.TINY['head_dim']
  cache = lambda size: -(-size // 32) * 32 * entry + 2 * 4
  target = lambda depth: cache(toy.SIZES['max_length'] + depth + 1)
  drafter = cache(toy.SIZES['max_length'] + 16)
  assert plain['caches'] == target(0)
  assert small['caches'] == length_bandit['caches'] == target(2) + drafter
  assert drafter_bandit['caches'] == target(3) + drafter
  counts = 2 * (4 + 4 + 4)  # Pulls, and rewards in two parts.
  bandit_bytes = [row['bandit'] for row in rows.values()]
  assert bandit_bytes == [4, 4, counts, counts]  # The arm that is fixed.
  for row in rows.values():
    num_bytes = row['parameters'] + row['caches'] + row['bandit']
    # The loop also holds token buffers, counters and intermediate values: a few
    # copies of probabilities over 4096 tokens at up to 2 x 5 positions.
    assert num_bytes < row['loop'] < num_bytes + 10 * 10 * 4096 * 4
    assert row['bytes_of_pass'] > row['parameters']
    per_token = row['bytes_of_pass'] / row['block_efficiency'] / 2
    assert row['bytes_per_token'] == pytest.approx(per_token)
    for name in ('parameters', 'caches', 'loop', 'bytes_per_token'):
      ratio = row[name] / small[name]
      assert row[f'relative_{name}'] == pytest.approx(ratio)
  assert (plain['block_efficiency'], small['block_efficiency']) == (1, 2.4)
  assert drafter_bandit['loop'] > small['loop'] > plain['loop']


def test_bandwidth_counts_the_bytes_of_the_arms_that_were_selected(
  tmp_path, family, monkeypatch
):
  """Compares numbers computed by hand for batches of two rows and of one.

  The machine is half as fast while the bandit is timed, which cancels.
  """
  gigabytes = {'none': 1.0, 'small:2': 2.0, 'prompt_lookup:3': 1.5}
  rows = itertools.cycle([(3, 0.5), (6, 0.5), (4, 1.0)])

  def fields(method, _):
    rounds, seconds = next(rows)
    slow = 2.0 if method.label == 'drafters' else 1.0
    several = len(method.arms) > 1
    return {
      'rounds': rounds,
      'pulls': [rounds - 1, 1] if several else [rounds],
      'seconds': slow * seconds * (0.8 if several else 1.0),
      'reference_seconds': slow,
      'reference_emitted': 12,
      **dict.fromkeys(('prefill', 'reference_prefill'), 1.0),
    }

  def count_bytes(config, setup, method, prompts):
    del config, setup, prompts
    names = 'parameters', 'caches', 'bandit', 'loop'
    size = gigabytes.get(method.label, 9.0) * 10**9
    return {**dict.fromkeys(names, 1), 'bytes_of_pass': size}

  toy.simulate(monkeypatch, fields)
  monkeypatch.setattr(memory, '_memory', count_bytes)
  config = _config('memory', family, _MEMORY | {'repeats': 1})
  rows_by_method = {row['method']: row for row in toy.run(config, tmp_path)}
  # A batch takes the rounds of its longest row, and is as long as two rows.
  for method, num_bytes, seconds in (
    ('small:2', (6 + 4) * 2.0, 3.0),
    ('none', (6 + 4) * 1.0, 3.0),
    ('drafters', (5 + 3) * 2.0 + 2 * 1.5, 2 * 0.8 * 3.0),
    ('lengths', (5 + 3) * 1.0 + 2 * 2.0, 0.8 * 3.0),
  ):
    row = rows_by_method[method]
    bandwidth = num_bytes / seconds
    assert row['gigabytes_per_second'] == pytest.approx(bandwidth)
    slow = 2.0 if method == 'drafters' else 1.0
    relative = slow * bandwidth / (20.0 / 3.0)
    assert row['relative_bandwidth'] == pytest.approx(relative)
    # Variation that all share with the baseline is no error.
    varies = method in ('drafters', 'lengths')
    assert (row['relative_bandwidth_error'] > 1e-9) == varies


def test_bytes_of_an_array_that_is_shared_count_once():
  shared_array, small_array = jnp.zeros((3, 4)), jnp.zeros(5, jnp.int8)
  assert (
    memory.num_bytes(
      ((shared_array, small_array), {'again': shared_array}, None)
    )
    == 48 + 5
  )
