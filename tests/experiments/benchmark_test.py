"""The benchmark: tables of costs, and what is compared with what.

Times are checked for their bookkeeping alone.
"""

import shutil
import sys
import types

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from experiments import main
from experiments.benchmark import transformers_peer
from experiments.common import compare
from experiments.common import costs
from experiments.common import log
from experiments.common import measure
from experiments.common import methods
from experiments.common import round_parts
from experiments.common import workdirs
from specjax import base
from specjax import decoding
from specjax import families
from specjax.decoding import timing
from specjax.models import checkpoint
from specjax.models import cutting
from specjax.testing import toys
from tests import extras
from tests.experiments import toy

_SMALL = toy.SIZES | {'sweep': ''}
_COSTS = _SMALL | {'cost_rounds': 2, 'cost_repeats': 1}
_ROUNDS = _SMALL | {
  'arm': 'small:2',
  'arms': ('none', 'prompt_lookup:2'),
  'rounds': 2,
  'repeats': 1,
}


@pytest.fixture(autouse=True)
def _keep_programs(monkeypatch):
  """Tests have few programs; what one has compiled is there for the others."""
  monkeypatch.setattr(jax, 'clear_caches', lambda: None)


def _config(name, family, changes):
  return toy.config(f'benchmark/{name}', family, changes)


# Tables of costs.

_ARMS = (
  *('none', 'small:1', 'small:2'),
  *('ensemble((small, far)):2', 'deferred(small):2'),
)


def test_a_table_has_a_row_for_each_arm(family, tmp_path, monkeypatch):
  """Where all that is timed takes a second, and several things several."""
  num_results = lambda result: len(result) if isinstance(result, list) else 1
  monkeypatch.setattr(
    timing,
    'interleaved',
    lambda runs, *_, **options: np.array(
      [[num_results(run()()) for run in runs]], float
    ),
  )
  config = _config('costs', family, _COSTS | {'arms': _ARMS})
  rows = toy.run(config, tmp_path)
  assert [row['arm'] for row in rows] == list(_ARMS)
  assert [row['depth'] for row in rows] == [0, 1, 2, 2, 2]
  for row in rows:
    assert (row['batch_size'], row['temperature']) == (2, 0)
    assert row['round_ms'] == 500  # Two rounds are timed together.
    # Of one prompt, alone, and of each of the tokens that are read late. Who
    # reads nothing has 0.
    assert row['prompt_ms'] == (0 if row['arm'] == 'none' else 1000)
    assert 0 < row['catch_up_ms'] < 100 or row['arm'] == 'none'
  # Arms that share a drafter share what it has read.
  assert rows[0]['catch_up_ms'] == 0
  assert rows[1]['catch_up_ms'] == rows[2]['catch_up_ms']


def _bandit(family, source, arms, **changes):
  """Returns the config of a bandit whose reward is tokens per second."""
  fields = {
    'arms': arms,
    'costs': source,
    'batch_size': 4,
    'methods': ('none',),
  }
  fields |= {'experiment': 'compare', 'bandits': ('ucb1',), 'max_length': 32}
  fields |= {'reward': 'throughput'} | changes
  return _config('costs', family, _COSTS | fields)


def _write(workdir, family, arms, **changes):
  changes = {'batch_size': 4, 'max_length': 32} | changes
  return toy.write_costs(workdir, family, arms, **changes)


def _reward(config, workdir):
  """Returns the reward of a config, with the cost table of a workdir."""
  setup = compare.prepare(config)
  cost_fn = costs.cost_function(
    config, workdirs.Workdir(workdir, config), setup.family, [[1, 2]]
  )
  method = setup.methods[-1]
  return methods.build(
    method, setup.family, 32, cost_fn
  ).decoder.round_fn.reward


def test_rewards_of_a_table(tmp_path, family):
  """Compares rewards computed by hand, with the arms in another order."""
  source = _write(tmp_path / 'table', family, {'none': 0, 'small:3': 3})
  config = _bandit(family, source, ('small:3', 'none'))
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
  # 4 tokens in 4 s and 1 in 1 s are the maximum; 3 in 4 + 4 * 0.5 s are half.
  rewards = _reward(config, tmp_path / 'run')(info)
  np.testing.assert_allclose(rewards, [1, 0.5, 1], rtol=1e-6)
  # A resumed run keeps the table that it began with.
  _write(tmp_path / 'table', family, {'none': 3, 'small:3': 0})
  rewards = _reward(config, tmp_path / 'run')(info)
  np.testing.assert_allclose(rewards, [1, 0.5, 1], rtol=1e-6)


def test_prompts_are_read_for_every_answer(tmp_path, family):
  """Spreads 3 s of prefill for each of 4 rows over 6 tokens: 2 s per token."""
  source = _write(tmp_path / 'table', family, {'none': 0, 'small:3': 3})
  config = _bandit(family, source, ('small:3', 'none'))
  setup, workdir = compare.prepare(config), workdirs.Workdir(tmp_path, config)
  for answer, prefill_costs in ((6.0, [2.0, 2.0]), (None, None)):
    cost_fn = costs.cost_function(
      config, workdir, setup.family, [[1, 2]], answer
    )
    assert cost_fn(setup.methods[-1]).get('prefill_costs') == prefill_costs


def test_reading_is_shared_out_among_plain_answers(
  tmp_path, family, monkeypatch
):
  """Passes the mean length of two answers with 2 and 6 tokens."""
  answers = [
    types.SimpleNamespace(tokens=[0] * num_tokens) for num_tokens in (2, 6)
  ]
  answer_lengths = []

  def fake_cost_function(*args):
    answer_lengths.append(args[-1])
    raise InterruptedError

  plain = lambda *_, **options: answers
  monkeypatch.setattr(decoding.Decoder, 'decode_many', plain)
  monkeypatch.setattr(costs, 'cost_function', fake_cost_function)
  changes = {'methods': ('none',), 'padded': (), 'arms': ('none',)}
  with pytest.raises(InterruptedError):
    main.run(_config('refill', family, _SMALL | changes), tmp_path / 'run')
  assert answer_lengths == [4.0]


def test_bandits_over_the_same_arms_share_a_table(tmp_path, family):
  """Reads the table once, and not for a bandit whose reward is tokens."""
  arms = {'none': 0, 'small:3': 3}
  source = _write(tmp_path / 'table', family, arms)
  config = _bandit(family, source, tuple(arms))
  config.bandits = ('ucb1', 'ucb_spec', {'bandit': 'ucb1', 'reward': 'emitted'})
  setup, workdir = compare.prepare(config), workdirs.Workdir(tmp_path, config)
  cost_fn = costs.cost_function(config, workdir, setup.family, [[1, 2]])
  assert [method.label for method in setup.methods[1:]] == [
    *('ucb1', 'ucb_spec', 'ucb1, emitted')
  ]
  for method in setup.methods[1:3]:
    methods.build(method, setup.family, 32, cost_fn)
  (unit,) = toy.units(tmp_path)
  assert unit['costs'] == list(arms) and unit['from'] == source
  assert [row['depth'] for row in unit['outcome']['rows']] == [0, 3]
  no_costs = lambda method: pytest.fail('asked for costs')
  methods.build(setup.methods[3], setup.family, 32, no_costs)


def test_rewards_with_options_of_their_own(tmp_path, family):
  """Nothing is read or measured for them."""
  config = _bandit(family, 'nowhere', ('small:3', 'none'))
  config.reward = 'throughput(costs=(4.0, 1.0), depths=(3, 0))'
  assert _reward(config, tmp_path)
  assert not (tmp_path / log.FILE).exists()


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'arm': 'none'}, 'no rows for small:3 with family'),
    ({'batch_size': 2}, 'no rows for none, small:3 with .* batch_size 4'),
    ({'temperature': 1.0}, 'temperature 0.0'),
    ({'max_length': 64}, 'max_length 32'),
  ],
)
def test_a_table_that_does_not_fit_is_refused(
  tmp_path, family, changes, message
):
  """Before anything is decoded."""
  arms = {'none': 0, 'small:3': 3}
  source = _write(tmp_path / 'table', family, arms, **changes)
  config = _bandit(family, source, tuple(arms))
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path / 'run')
  assert not (tmp_path / 'run' / log.FILE).exists()
  with pytest.raises(ValueError, match='There are no results in'):
    costs.read(str(tmp_path), compare.prepare(config).methods[-1], config)


def test_a_table_of_another_family_is_refused(tmp_path, family):
  source = _write(tmp_path / 'table', 'mini', {'none': 0})
  config = _bandit(family, source, ('none',))
  with pytest.raises(ValueError, match="no rows for none with family '/"):
    costs.read(source, compare.prepare(config).methods[-1], config)


def test_a_table_of_another_device_is_not_used(tmp_path, family, capsys):
  arms = {'none': 0, 'small:3': 3}
  source = _write(tmp_path / 'table', family, arms, device='an abacus')
  config = _bandit(family, source, tuple(arms))
  method = compare.prepare(config).methods[-1]
  assert costs.read(source, method, config) == []
  assert 'was measured on an abacus, not on' in capsys.readouterr().out


# What is compared with what.


def _without_rounds(monkeypatch):
  """Replaces timing: the n-th timed function takes n seconds."""
  prepare_nothing = lambda *args: lambda: lambda: None

  def interleave(runs, *_):
    for run in runs:
      jax.block_until_ready(run()())
    return np.arange(1.0, len(runs) + 1)[None]

  monkeypatch.setattr(timing, 'prepare_rounds', prepare_nothing)
  monkeypatch.setattr(measure, 'interleave', interleave)


def test_rounds_are_compared(tmp_path, family, monkeypatch):
  """By hand: two rounds are timed together, in seconds by their order."""
  _without_rounds(monkeypatch)
  config = _config('rounds', family, _ROUNDS)
  rows = toy.run(config, tmp_path)
  names = ('arm', 'round_ms', 'other_ms')
  assert [tuple(map(row.get, names)) for row in rows] == [
    ('none', 500, 1000),  # Against its weights,
    ('none', 500, 1000),  # its model calls,
    ('small:2', 500, 1000 + 1500),  # those of both models,
    ('small:2', 500, 1000),  # without features,
    ('none', 1500, 500),  # and among several arms.
    ('prompt_lookup:2', 2000, 1000),
    ('ucb_spec', 2500, 750),  # It plays both arms, one after the other.
  ]
  for row in rows:
    assert row['batch_size'] == 2
    assert row['ratio'] == row['round_ms'] / row['other_ms']
  gigabytes = 4 * families.num_params(families.load(str(family)).target) / 1e9
  assert rows[0]['gigabytes_per_second'] == pytest.approx(gigabytes)
  words = 'weights', 'calls', 'calls', 'taps', *3 * ['several arms']
  assert all(word in row['part'] for word, row in zip(words, rows))
  # Each comparison is a unit of the log.
  lines = (tmp_path / log.FILE).read_text().splitlines(keepends=True)
  assert len(lines) == 5
  (tmp_path / log.FILE).write_text(''.join(lines[:4]))
  assert toy.run(config, tmp_path) == rows
  assert (tmp_path / log.FILE).read_text() == ''.join(lines)


_HEADS = 'eagle', 'eagle3', 'medusa', 'dflash'


@pytest.fixture(scope='module', name='heads')
def _heads(family, tmp_path_factory):
  """A family of heads, whose drafts read features of the target."""
  folder = tmp_path_factory.mktemp('heads')
  shutil.copytree(family, folder, dirs_exist_ok=True)
  toys.write_heads(folder, dict(zip(*[_HEADS] * 2)))
  return folder / 'heads'


@pytest.mark.parametrize(
  ('arm', 'num_models'),
  [
    ('feature_head(eagle3):3', 1),
    ('medusa(medusa):3', 1),
    ('block_head(dflash):3', 1),
    ('rescored(medusa, small):3', 2),
  ],
)
def test_rounds_of_heads_are_compared_with_their_calls(
  tmp_path, heads, arm, num_models, monkeypatch
):
  """They read features as they are, so that there is nothing to add."""
  _without_rounds(monkeypatch)
  rows = toy.run(_config('rounds', heads, _ROUNDS | {'arm': arm}), tmp_path)
  assert not any('taps' in row['part'] for row in rows)
  (calls,) = [row for row in rows if row['arm'] == arm]
  assert 'model calls' in calls['part']
  draft_ms = 1500, 2000
  expected = 500, 1000 + sum(draft_ms[:num_models])
  assert (calls['round_ms'], calls['other_ms']) == expected


def test_rounds_that_draft_no_chain_are_refused(tmp_path, heads, monkeypatch):
  _without_rounds(monkeypatch)
  changes = {'arm': 'dynamic_tree(eagle, num_nodes=6, depth=3)'}
  with pytest.raises(ValueError, match='arm must draft a chain, got dynamic'):
    main.run(_config('rounds', heads, _ROUNDS | changes), tmp_path)


_PEER = _SMALL | {
  'batch_size': 1,
  'repeats': 1,
  'prompts_per_domain': 1,
  'methods': ('none', 'small:2', 'prompt_lookup:2', 'suffix:2'),
}


def _with_reduced_head(family, tmp_path):
  """The family with a drafter that emits every other token only."""
  shutil.copytree(family, tmp_path / 'family')
  name = tmp_path / 'family' / 'small.safetensors'
  config, params = checkpoint.load(name)
  tokens = range(0, config.vocab_size, 2)
  checkpoint.save(name, *cutting.narrow_head(config, params, tokens))
  return tmp_path / 'family'


@pytest.mark.oracles
@pytest.mark.parametrize(
  ('reduced', 'methods'),
  [(False, _PEER['methods']), (True, ('none', 'small:2'))],
)
def test_peers_say_the_same(tmp_path, family, reduced, methods):
  """Compares outputs and target calls for all methods of a peer."""
  extras.load('transformers')
  if reduced:
    family = _with_reduced_head(family, tmp_path)
  config = _config('peer', family, _PEER | {'methods': methods})
  rows = toy.run(config, tmp_path / 'run')
  own_rows, peer_rows = rows[: len(methods)], rows[len(methods) :]
  assert {row['implementation'] for row in own_rows} == {'specjax'}
  assert [row['method'] for row in own_rows] == list(methods)
  assert {row['implementation'] for row in peer_rows} == {'transformers'}
  assert [row['method'] for row in peer_rows] == list(methods[:3])
  for row in rows:
    assert (row['same_outputs'], row['decoded']) == (2, 2)
  for i, peer_row in enumerate(peer_rows):
    speeds = own_rows[i]['tokens_per_second'], peer_row['tokens_per_second']
    assert peer_row['specjax_ratio'] == pytest.approx(speeds[0] / speeds[1])
    plain = peer_rows[0]['tokens_per_second']
    assert peer_row['speed_up'] == pytest.approx(speeds[1] / plain)
  assert (
    peer_rows[0]['block_efficiency'] == own_rows[0]['block_efficiency'] == 1
  )
  assert (
    peer_rows[1]['block_efficiency'] > 1 and own_rows[1]['block_efficiency'] > 1
  )
  # Each prompt is a unit of the log, so that no method decodes again.
  assert toy.run(config, tmp_path / 'run') == rows


@pytest.mark.oracles
def test_a_reduced_head_elsewhere(tmp_path, family):
  """Compares logits, which are -inf for the tokens that the head lacks."""
  torch = extras.load('torch')
  extras.load('transformers')
  family = families.load(str(_with_reduced_head(family, tmp_path)))
  small = family.drafters['small']
  tokens = [[3, 1, 4, 1, 5]]
  output = small.model.extend(small.params, None, jnp.array(tokens))
  with torch.no_grad():
    peer_logits = transformers_peer.load(family, small)(
      torch.tensor(tokens)
    ).logits
  logits = np.asarray(output.logits)
  assert np.isneginf(logits[..., 1::2]).all()
  np.testing.assert_allclose(peer_logits.numpy(), logits, rtol=1e-4, atol=1e-4)


@pytest.mark.oracles
def test_sampled_methods_of_peers(tmp_path, family):
  """Their texts are others, so that nobody counts which are the same."""
  extras.load('transformers')
  changes = {'methods': ('none', 'small:2')}
  changes['sampling'] = {'temperature': 0.7, 'top_k': 5, 'min_p': 0.01}
  rows = toy.run(_config('peer', family, _PEER | changes), tmp_path)
  assert len(rows) == 4
  for row in rows:
    assert row['tokens'] > 0 and 'same_outputs' not in row


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'batch_size': 2}, r'batch_size must lie in \[1, 1\], got 2'),
    ({'repeats': 0}, 'repeats must be >= 1, got 0'),
    ({'peers': ('vllm',)}, "peer 'vllm'"),
    ({'methods': ('suffix:2',)}, "must include one with the label 'none'"),
  ],
)
def test_comparisons_that_are_refused(tmp_path, family, changes, message):
  changes = _PEER | {'peers': ()} | changes
  with pytest.raises(ValueError, match=message):
    main.run(_config('peer', family, changes), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_a_peer_that_is_not_installed(tmp_path, family, monkeypatch):
  monkeypatch.setitem(sys.modules, 'llama_cpp', None)
  config = _config('peer', family, _PEER | {'peers': ('llama.cpp',)})
  message = r"needs the package llama_cpp: pip install 'specjax\[llama-cpp\]'"
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_llama_cpp_needs_a_file_of_its_own(tmp_path, family):
  pytest.importorskip('llama_cpp')
  config = _config('peer', family, _PEER | {'peers': ('llama.cpp',)})
  with pytest.raises(ValueError, match='must be a GGUF file for the peer'):
    main.run(config, tmp_path / 'run')


@pytest.mark.parametrize(
  ('name', 'changes', 'message'),
  [
    ('costs', {'arms': ()}, 'arms: a bandit needs arms'),
    ('rounds', {'arm': 'small'}, "arm: small needs a tree, as in 'small:4'"),
    ('rounds', {'prompts': {}}, 'prompts must hold at least one prompt set'),
  ],
)
def test_bad_values_are_refused(tmp_path, family, name, changes, message):
  base_changes = {'costs': _COSTS, 'rounds': _ROUNDS}[name]
  with pytest.raises(ValueError, match=message):
    main.run(_config(name, family, base_changes | changes), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


# The parts of a round.

_SPLIT = _SMALL | {'methods': ('none', 'small:2'), 'rounds': 2}


@pytest.mark.slow
def test_a_round_is_split_into_its_parts(tmp_path, family, monkeypatch, capsys):
  """A plain round takes 4 s and one with drafts 10 s."""
  seconds = [[4.0, 0.0, 3.0, 0.5], [10.0, 4.0, 3.0, 1.0]]

  def interleaved(runs, repeats, **options):
    del options
    for prepare in runs:
      prepare()()  # All of them run.
    return np.tile(2 * np.ravel(seconds), (repeats, 1))

  monkeypatch.setattr(timing, 'interleaved', interleaved)
  config = _config('split', family, _SPLIT)
  plain, drafted = toy.run(config, tmp_path)
  names = 'round', 'draft', 'target', 'verification', 'remainder'
  assert [plain[f'{name}_ms'] for name in names] == [4e3, 0, 3e3, 500, 500]
  assert [drafted[f'{name}_ms'] for name in names] == [1e4, 4e3, 3e3, 1e3, 2e3]
  assert drafted['plain_rounds'] == 2.5
  efficiency = drafted['block_efficiency']
  assert drafted['speed_up'] == efficiency / 2.5
  assert drafted['speed_up_if_memory_bound'] == pytest.approx(efficiency / 3)
  assert (
    'takes 2.50 times as long as one of plain decoding (draft 40%, target 30%, '
    'verification 10%, remainder 20%)'
  ) in capsys.readouterr().out
  # Each prompt set has a row per method.
  sets = {'all': {'source': 'family'}, 'one': {'source': 'family', 'limit': 1}}
  config_of_sets = _config('split', family, _SPLIT | {'prompts': sets})
  rows = toy.run(config_of_sets, tmp_path / 'sets')
  plain_rounds = {'none': 1, 'small:2': 2.5}
  assert len(rows) == 4
  for row in rows:
    assert row['plain_rounds'] == plain_rounds[row['method']]
  # A run that goes on measures nothing again.
  monkeypatch.setattr(timing, 'interleaved', None)
  assert toy.run(config, tmp_path) == [plain, drafted]


def test_the_parts_of_a_bandit_are_refused(tmp_path, family):
  method = {'bandit': 'ucb1', 'arms': ('none', 'small:2')}
  config = _config('split', family, _SPLIT | {'methods': ('none', method)})
  with pytest.raises(ValueError, match=r'methods\[1\] must have a single arm'):
    main.run(config, tmp_path)


def test_the_cost_of_drafts_is_that_of_the_weights_they_read(family):
  loaded = families.load(str(family))
  config = ml_collections.ConfigDict({'sampling': {}})
  entry = {'bandit': 'ucb1', 'arms': ('none', 'small:2', 'small:4')}
  method = methods.parse(config, entry, list(loaded.drafters), 'method')
  decoder = methods.build(method, loaded, 256).decoder
  # All models have one size.
  for pulls, cost in (([1, 0, 0], 0), ([0, 1, 0], 2), ([2, 1, 1], 1.5)):
    assert round_parts.draft_cost(decoder, pulls) == pytest.approx(cost)


def test_rounds_are_timed_once_everybody_has_read(family):
  """Includes drafters that defer their prefill until they are selected."""
  config = _bandit(family, '', ('deferred(small):2',))
  setup = compare.prepare(config)
  (single_arm,) = methods.single_arms(setup.methods[-1])
  decoder = methods.build(single_arm, setup.family, 32).decoder
  (idle_state,) = decoder.init([[1, 2, 3]], 8).drafters
  (prefilled_state,) = timing.begin(decoder, [[1, 2, 3]], 8).drafters
  assert idle_state.waiting.tolist() == [
    3
  ] and prefilled_state.waiting.tolist() == [0]


def test_a_batch_repeats_prompts():
  assert costs.batch([[1], [2]], 5) == [[1], [2], [1], [2], [1]]


def test_every_arm_of_a_bandit_alone(family):
  """Removes the options of the bandit from the single arms."""
  config = _bandit(family, '', _ARMS[:3])
  config.bandits = ({'bandit': 'ucb1', 'warm_start': 4, 'per_row': True},)
  method = compare.prepare(config).methods[-1]
  single_arms = methods.single_arms(method)
  assert [single_arm.label for single_arm in single_arms] == list(_ARMS[:3])
  for single_arm in single_arms:
    decoder = methods.build(single_arm, families.load(str(family)), 32).decoder
    assert decoder.round_fn.bandit.num_arms == 1
    assert not single_arm.per_row and not single_arm.warm_start


def test_a_warm_start_of_all_methods_is_that_of_bandits_that_can_learn(family):
  config = _bandit(family, '', _ARMS[:3], reward='emitted')
  config.methods, config.bandits = ('none', _ARMS[1]), ('ucb1', 'uniform')
  config.warm_start = 4
  warm_starts = {}
  for method in compare.prepare(config).methods:  # Builds them all.
    warm_starts[method.label] = method.warm_start
  assert warm_starts == {'none': 0, _ARMS[1]: 0, 'ucb1': 4, 'uniform': 0}
  config.bandits = ({'bandit': 'uniform', 'warm_start': 4},)
  with pytest.raises(ValueError, match='does not learn from rewards, got 4'):
    compare.prepare(config)
