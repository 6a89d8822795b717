"""The experiments with bandits, tiny: their rows, and how they go on.

Times are checked for their bookkeeping alone.
"""

import itertools
import json
import shutil
import types

import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest

from experiments import arms
from experiments import bandits
from experiments import benchmark
from experiments import costs
from experiments import lengths
from experiments import looped
from experiments import memory
from experiments import prompt_sets
from experiments import rephrase
from experiments import results
from experiments import routing
from specjax import base
from specjax import decoding
from specjax import families
from specjax import rewards
from specjax import sampling as sampling_lib
from specjax import verifiers
from specjax.data import examples as examples_lib
from specjax.testing import toys
from tests import experiments_test

pytestmark = pytest.mark.slow

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
# Eval prompts by domain; one of them does not fit.
_EVAL = {
  'code': ['def f', 'def g', 'import os', 'class A'],
  'math': ['1 + 1', '2 + 2', '3 + 3 ' * 16],
  'talk_de': ['guten tag', 'bis morgen', 'na ja'],
  'talk_fr': ['bonjour'],
}
_SETS = {
  'plain': {'domains': ('code', 'talk')},
  'rephrased': {'domains': ('math',), 'rephrase': True},
  'pairs': {'domains': ('talk_de', 'code'), 'turns': 2},
}
_SPECIALISTS = {
  'arms': (('code', 2), ('math', 2)),
  'others': (('prompt_lookup', 2), (('code', 'math'), 2)),
  'bandits': ('ucb1:beta=0.1/block_divergence', 'ucb1'),
  'reward': 'accepted_fraction',
  'prompts_per_domain': 3,
  'router': True,
  'router_prompts': 2,
  'max_new_tokens': 4,
  'max_length': 64,
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
  assert len(cells) == 25 and set(cells) == {
    (label, domain, way)
    for label, domains in (('family', ['one', 'two']), ('mine', ['one']))
    for domain in ['all', *domains]
    for way in ('none', 'small 2', 'prompt_lookup 2', 'hedge', 'oracle')
  }
  logged = {(row['prompts'], row['way']): row for row in _logged(workdir)}
  assert len(logged) == 8
  for label in ('family', 'mine'):
    logged[label, 'oracle'] = _oracle(
      [logged[label, way] for way in ('small 2', 'prompt_lookup 2')]
    )
  for row in rows:
    _check_row(row, logged)
  # Hedge keeps every drafter current.
  assert {row['way'] for row in rows if row['num_catch_up_tokens']} == {'hedge'}
  path = workdir / 'block_efficiency.png'
  assert matplotlib.image.imread(path).std() > 0


def _oracle(lines):
  """Leaves each prompt to the line of the fewest rounds; equal is emitted."""
  line = {name: [] for name in lines[0]} | {'domains': lines[0]['domains']}
  for i, rounds in enumerate(zip(*(each['rounds'] for each in lines))):
    arm = rounds.index(min(rounds))
    for name in ('emitted', 'rounds', 'num_catch_up_tokens', 'seconds'):
      line[name].append(lines[arm][name][i])
    pulls = [0] * len(lines)
    pulls[arm] = rounds[arm]
    line['pulls'].append(pulls)
  return line


def _check_row(row, logged):
  own = logged[row['prompts'], row['way']]
  best = logged[row['prompts'], row['best_arm']]
  chosen = [row['domain'] in ('all', domain) for domain in own['domains']]
  of = lambda name, line: np.array(line[name])[chosen].sum(axis=0)
  # Greedy decoding emits the same whatever is drafted.
  plain = logged[row['prompts'], 'none']
  assert own['emitted'] == plain['emitted'] == plain['rounds']
  efficiency = of('emitted', own) / of('rounds', own)
  assert row['block_efficiency'] == pytest.approx(efficiency)
  ratio = of('rounds', best) / of('rounds', own)
  assert row['over_best'] == pytest.approx(ratio)
  if row['way'] in ('small 2', 'prompt_lookup 2'):
    assert row['over_best'] <= 1 and row['pulls'] == '1.00'
  if row['way'] == 'oracle':
    assert row['over_best'] >= 1
  if row['way'] == row['best_arm']:
    assert (row['over_best'], row['over_best_error']) == (1, 0)
  assert row['tokens_per_second'] == pytest.approx(
    of('emitted', own) / of('seconds', own)
  )
  assert row['num_catch_up_tokens'] == of('num_catch_up_tokens', own)
  pulls = of('pulls', own)
  assert pulls.sum() == of('rounds', own)
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
  own = [row for row in rows if row['prompts'] == 'family']
  fixed = lambda rows: [row for row in rows if row['way'] != 'hedge']
  assert len(again) == len(own) and fixed(again) == fixed(own)
  # Nothing is left to do.
  assert _run(_DRAFTERS, folder, changes, tmp_path) == again
  assert len(_logged(tmp_path)) == 9 and measured == [1]


# Drafters named after domains, and sets of prompts.


@pytest.fixture(scope='module')
def specialists(tmp_path_factory):
  """Changes of a config: a family of two drafters, and data of four domains."""
  folder = tmp_path_factory.mktemp('specialists')
  toys.write_family(folder, {'code': 0.2, 'math': 0.3})
  for domain, prompts in _EVAL.items():
    for split in ('eval', 'train'):
      examples_lib.write(
        folder / f'{domain}.{split}.jsonl',
        [examples_lib.Example(domain, prompt) for prompt in prompts],
      )
  return _SPECIALISTS | {'family': str(folder), 'data_dir': str(folder)}


def _build(specialists, **changes):
  """Returns labels and texts of the sets that a config states."""
  config = experiments_test._load(_DRAFTERS)
  config.update(specialists | changes)
  family = families.load(config.family)
  return {
    label: [
      (job.label, [family.tokenizer.decode(turn) for turn in job.turns])
      for job in jobs
    ]
    for label, jobs in prompt_sets.build(config, family).items()
  }


def test_prompt_sets_are_as_stated(specialists):
  """At most three of a label, what fits, and parts of a domain by turns."""
  sets = _build(specialists, sets=_SETS)
  assert list(sets) == ['pairs', 'plain', 'rephrased']
  one = lambda label, texts: [(label, [text]) for text in texts]
  assert sorted(sets['plain']) == sorted(
    one('code', _EVAL['code'][:3])
    + one('talk', ['guten tag', 'bonjour', 'bis morgen'])
  )
  reworded = [
    rephrase.rephrase(text, i) for i, text in enumerate(_EVAL['math'])
  ]
  assert sorted(sets['rephrased']) == one('math', sorted(reworded[:2]))
  pairs = list(zip(_EVAL['code'], _EVAL['talk_de']))
  assert sorted(sets['pairs']) == sorted(
    ('code + talk_de', [*pair][:: -1 if i % 2 else 1])
    for i, pair in enumerate(pairs)
  )
  # Without, each domain is on its own; a set's order is its own affair.
  assert sorted(_build(specialists)['eval']) == sorted(
    one('math', _EVAL['math'][:2])
    + [(d, [text]) for d in _EVAL if d != 'math' for text in _EVAL[d][:3]]
  )
  alone = {'rephrased': {'rephrase': True}, 'plain': _SETS['plain']}
  assert _build(specialists, sets=alone)['plain'] == sets['plain']
  reshuffled = _build(specialists, sets=alone, seed=1)['plain']
  assert sorted(sets['plain']) == sorted(reshuffled) != reshuffled
  assert reshuffled != sets['plain']


def test_sessions_fit_with_what_each_turn_emits(specialists):
  """Four tokens, beside the longer prompt."""
  family = families.load(specialists['family'])
  count = lambda text: len(family.tokenizer.encode_prompt(text))
  pairs = zip(_EVAL['code'], _EVAL['talk_de'])
  room = max(max(count(a), count(b)) for a, b in pairs) + 4
  sets = {'pairs': _SETS['pairs']}
  sizes = [
    len(_build(specialists, sets=sets, max_length=length)['pairs'])
    for length in (room, room - 1)
  ]
  assert sizes[0] == 3 > sizes[1]


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (
      {'sets': {'a': {'turn': 2}}},
      "Unknown field of sets.a 'turn'. Known: dom",
    ),
    ({'sets': {'a': {'domains': 'code'}}}, "tuple of names, got 'code'"),
    ({'sets': {'a': {'domains': ('cod',)}}}, "Unknown domain 'cod'"),
    (
      {'sets': {'a': {'domains': ('code',), 'turns': 2}}},
      r'turns of sets.a must lie in \[1, 1\], got 2',
    ),
    ({'sets': _SETS, 'max_length': 5}, 'Nothing of pairs fits: max_length=5'),
    ({'bandits': ('ucb1/',)}, r"\[/reward\].*, got 'ucb1/'"),
    ({'bandits': ('ucb1+all',)}, r"\[\+warm_start\]', got 'ucb1\+all'"),
    ({'bandits': ('ucb1@dawn',)}, "catch_up must be one of .* got 'dawn'"),
    ({'bandits': ('ucb1/speed',)}, "Unknown reward 'speed'"),
    ({'bandits': ('ucb9/emitted',)}, "Unknown bandit 'ucb9'"),
    ({'bandits': ('ucb1:beta/emitted',)}, r"got 'ucb1:beta/emitted'"),
    ({'others': (('code', 2),)}, 'different names, got code 2, math 2, code 2'),
    (
      {'arms': (('code', 2), ('code', 3))},
      'router needs arms named after diff',
    ),
    ({'data_dir': ''}, 'no prompts of its own'),
  ],
)
def test_bandits_refuses_bad_values(tmp_path, specialists, changes, message):
  with pytest.raises(ValueError, match=message):
    _run(_DRAFTERS, specialists['family'], specialists | changes, tmp_path)


def test_a_router_needs_train_files(tmp_path, folder):
  changes = _BANDITS | {'router': True}
  with pytest.raises(ValueError, match='router needs data_dir'):
    _run(_DRAFTERS, folder, changes, tmp_path)


def test_entries_of_bandits(monkeypatch, folder):
  """A reward that is handed over comes before that behind the slash."""
  assert arms.parse('ucb1') == ('ucb1', {}, '', 'lazy', 0)
  assert arms.parse('hedge').catch_up == 'always'
  entry = 'ucb1:beta=0.1/block_divergence'
  choice = 'ucb1', {'beta': 0.1}, 'block_divergence'
  assert arms.parse(entry) == (*choice, 'lazy', 0)
  assert arms.parse(f'{entry}@window+8') == (*choice, 'window', 8)
  monkeypatch.setitem(rewards.REWARDS, 'block_divergence', lambda: 'its own')
  monkeypatch.setattr(decoding, 'Decoder', lambda *args, **options: options)
  family, sampling = families.load(str(folder)), sampling_lib.Sampling(0.0)
  build = lambda *args, **options: arms.decoder(
    family, arms.build(family, _ARMS, sampling), *args, sampling, **options
  )
  assert build(entry)['reward'] == 'its own'
  assert build(entry, reward='other')['reward'] == 'other'
  assert 'reward' not in build('ucb1')


@pytest.mark.parametrize(
  ('temperature', 'expected'),
  [(0.0, ['greedy', 'greedy']), (1.0, ['maximal', 'ensemble'])],
)
def test_an_ensemble_has_its_members_parameters(
  specialists, monkeypatch, temperature, expected
):
  """And a verifier that knows that siblings have distributions of their own."""
  names = []
  monkeypatch.setattr(verifiers, 'resolve', names.append)
  family = families.load(specialists['family'])
  entries = [('math', 2), (('math', 'prompt_lookup', 'code'), 2)]
  sampling = sampling_lib.Sampling(temperature)
  (_, own), (arm, params) = arms.build(family, entries, sampling)
  assert names == expected
  assert own is family.drafters['math'].params is params[0]
  assert params[1] is None and params[2] is family.drafters['code'].params
  assert arms.Spec(*entries[1], 3).name == 'draft-all 3x2'
  assert arm.drafter.topology.depth == 2


def test_lessons_go_on_from_turn_to_turn(monkeypatch):
  """From job to job they start anew, or not."""
  calls, number = [], itertools.count(1)

  def decode(decoder, prompts, max_new_tokens, lessons, **options):
    calls.append((prompts[0], lessons, *options['request_ids']))
    said = next(number)
    output = types.SimpleNamespace(
      tokens=[90 + said] * 2,
      rounds=said,
      num_catch_up_tokens=1,
      pulls=np.eye(2)[said % 2],
    )
    return [output], f'lesson {said}', 0.5

  monkeypatch.setattr(looped, 'decode', decode)
  monkeypatch.setattr(looped, 'warm_up', lambda *args: None)
  jobs = [prompt_sets.Job('a', [[1], [2, 3]]), prompt_sets.Job('b', [[4]])]
  config = types.SimpleNamespace(max_new_tokens=2, carry_over=False, seed=0)
  line = bandits._decode_all(config, None, jobs)
  assert calls == [
    ([1], None, 0),
    ([2, 3], 'lesson 1', 0),
    ([4], None, 1),
  ]
  assert line == {
    'domains': ['a', 'b'],
    'emitted': [4, 2],
    'rounds': [3, 3],
    'num_catch_up_tokens': [2, 1],
    'pulls': [[1, 1], [0, 1]],
    'seconds': [1.0, 0.5],
  }
  config.carry_over = True
  bandits._decode_all(config, None, jobs)
  assert [lessons for _, lessons, _ in calls[3:]] == [
    None,
    'lesson 4',
    'lesson 5',
  ]


@pytest.fixture
def simulated(monkeypatch):
  """Decodes in no time: of 12 tokens, a drafter's own domain takes 4 rounds.

  Returns the ways and labels that were decoded.
  """
  decoded = []

  def decode_all(config, way, jobs):
    decoded.append((way, {job.label for job in jobs}))
    own = [4 if way.split()[0] in job.label else 6 for job in jobs]
    rounds = [12] * len(jobs) if way == 'none' else own
    line = {
      name: [1] * len(jobs) for name in ('num_catch_up_tokens', 'seconds')
    }
    return line | {
      'domains': [job.label for job in jobs],
      'emitted': [12] * len(jobs),
      'rounds': rounds,
      'pulls': [[each] for each in rounds],
    }

  monkeypatch.setattr(bandits, '_decoders', lambda *args: lambda way: way)
  monkeypatch.setattr(bandits, '_decode_all', decode_all)
  return decoded


def test_prompts_left_to_one_arm(tmp_path, specialists, simulated, monkeypatch):
  """By hand: a router that takes all for math, and an oracle that does not."""
  learnt, routed = [], []

  def fit(prompts, labels, *args, **options):
    learnt.append((len(prompts), list(labels), args))

  def route(router, prompts):
    routed.append([family.tokenizer.decode(prompt) for prompt in prompts])
    return np.ones(len(prompts), int)

  monkeypatch.setattr(routing, 'fit', fit)
  monkeypatch.setattr(routing, 'route', route)
  family = families.load(specialists['family'])
  sets = {
    'both': {'domains': ('code', 'math')},
    'pairs': {'domains': ('code', 'talk'), 'turns': 2},
  }
  changes = specialists | {'sets': sets}
  rows = _run(_DRAFTERS, changes['family'], changes, tmp_path)
  assert learnt == [(4, [0, 0, 1, 1], (2, family.tokenizer.vocab_size))]
  pairs = _build(specialists, sets=sets)['pairs']
  assert routed[1] == [first for _, (first, _) in pairs]
  rows = {(row['domain'], row['way']): row for row in rows}
  efficiencies = lambda domain: [
    rows[domain, way]['block_efficiency']
    for way in ('code 2', 'math 2', 'oracle', 'router')
  ]
  assert efficiencies('code') == [3, 2, 3, 2]
  assert efficiencies('math') == [2, 3, 3, 3]
  assert efficiencies('code + talk') == [3, 2, 3, 2]
  shares = [rows['code', way]['pulls'] for way in ('oracle', 'router')]
  assert shares == ['1.00 0.00', '0.00 1.00']
  accuracies = {
    domain: row['accuracy']
    for (domain, way), row in rows.items()
    if way == 'router' and 'accuracy' in row
  }
  assert accuracies == {'code': 0.0, 'math': 1.0}
  # Others are no choice of the oracle's, and no arm of the bandits.
  assert rows['code', 'oracle']['best_arm'] == 'code 2'
  named = {row['way']: row['arms'] for row in _logged(tmp_path)}
  assert named == {
    'none': '',
    'code 2': '',
    'math 2': '',
    'prompt_lookup 2': '',
    'draft-all 2': 'code, math',
    'ucb1:beta=0.1/block_divergence': 'code 2, math 2',
    'ucb1': 'code 2, math 2',
  }


def test_of_equal_arms_the_oracle_takes_the_first():
  """The fewest rounds for a token, as what is emitted can differ."""
  lines = [
    {'rounds': [2, 3, 5], 'emitted': [4, 9, 9]},
    {'rounds': [3, 2, 5], 'emitted': [6, 4, 10]},
  ]
  assert bandits._best(lines).tolist() == [0, 0, 1]


def test_only_what_a_new_field_concerns_is_decoded_again(
  tmp_path, specialists, simulated
):
  ways = ['none', 'code 2', 'math 2', 'prompt_lookup 2', 'draft-all 2']
  ways += list(_SPECIALISTS['bandits'])
  code, maths = {'domains': ('code',)}, {'domains': ('math',)}

  def again(**changes):
    simulated.clear()
    changes = specialists | changes
    _run(_DRAFTERS, changes['family'], changes, tmp_path)
    return list(simulated)

  sets = {'a': code, 'b': maths}
  every = again(sets=sets)
  assert every == [(way, {d}) for way in ways for d in ('code', 'math')]
  # Defaults can be left out, and the router decodes nothing.
  stated = {'a': code | {'turns': 1}, 'b': maths}
  assert not again(sets=stated, router=False)
  other = {'a': code, 'b': maths | {'rephrase': True}}
  assert again(sets=other) == [(way, {'math'}) for way in ways]
  # The bandit that has a reward of its own does not care for the other.
  assert again(sets={'a': code}, reward='emitted') == [('ucb1', {'code'})]
  others = (('prompt_lookup', 2), (('math', 'code'), 2))
  assert again(sets={'a': code}, others=others) == [('draft-all 2', {'code'})]


def test_specialists_decode_all_sets_in_all_ways(
  tmp_path, specialists, monkeypatch
):
  """For real: a rephrased set and pairs; greedy, all ways say the same."""
  asked, named_reward = [], costs.named_reward
  monkeypatch.setattr(
    costs,
    'named_reward',
    lambda config, name, *args: (
      asked.append(name) or named_reward(config, name, *args)
    ),
  )
  sets = {name: _SETS[name] for name in ('rephrased', 'pairs')}
  changes = specialists | {'sets': sets, 'prompts_per_domain': 2}
  changes['others'] = _SPECIALISTS['others'][1:]
  rows = _run(_DRAFTERS, changes['family'], changes, tmp_path)
  assert {row['domain'] for row in rows} == {'all', 'math', 'code + talk_de'}
  assert len(rows) == 2 * 2 * 8
  logged = {(row['prompts'], row['way']): row for row in _logged(tmp_path)}
  for (label, way), line in logged.items():
    assert line['emitted'] == logged[label, 'none']['rounds']
    assert max(line['emitted']) <= (8 if label == 'pairs' else 4)
    if way != 'none':
      assert min(map(sum, line['pulls'])) > 0
  assert asked == ['block_divergence', 'accepted_fraction']
  shares = {row['way']: len(row['pulls'].split()) for row in rows}
  assert [shares[way] for way in ('draft-all 2', 'ucb1', 'router')] == [1, 2, 2]
  path = tmp_path / 'block_efficiency.png'
  assert matplotlib.image.imread(path).std() > 0


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
  for part in ('_rounds', '_features', '_speed_ups'):
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
  np.testing.assert_allclose(reward(info), [1, 0.5, 1], rtol=1e-6)
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
  # room for a round behind the longest row, the drafter for a chunk of 16.
  entry = 2 * 2 * 4 * toys.TINY['num_kv_heads'] * toys.TINY['head_dim']
  target = lambda depth: (32 + depth + 1) * entry + 2 * 4
  drafter = (32 + 16) * entry + 2 * 4
  assert plain['caches'] == target(0)
  assert lookup['caches'] == target(2)
  for row in (small, drafters, shared):
    assert row['caches'] == target(2) + drafter
  counts = 2 * (4 + 4 + 4)  # Pulls, and rewards in two parts.
  bandits = [row['bandit'] for row in rows.values()]
  assert bandits == [4, 4, 4, counts, counts]  # The arm that is fixed.
  for row in rows.values():
    held = row['parameters'] + row['caches'] + row['bandit']
    # More by token buffers, counters and intermediate values: of a round, the
    # probabilities at 2 x 5 positions or fewer of 4096 tokens, a few times.
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
