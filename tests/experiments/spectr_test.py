"""SpecTr's experiments: their rows, and that they measure what they say.

Times are checked for their bookkeeping alone.
"""

import jax
import numpy as np
import pytest

from experiments import compare
from experiments import main
from experiments.common import measure
from experiments.common import methods
from experiments.spectr import cost
from experiments.spectr import latency
import specjax
from specjax import couplings
from specjax import families
from specjax import trees
from specjax.models import config as config_lib
from specjax.models import flax_modules
from tests import arms
from tests.experiments import toy

_ACCEPTANCE = {
  'max_drafts': 3,
  'bernoulli_targets': (0.1, 0.75, 1.0),
  'uniform_targets': (60, 40),
  'zipf_size': 120,
  'zipf_spreads': (1.0,),
}
_COST = {
  'num_drafts': 2,
  'vocab_sizes': (300, 600),
  'values_per_repeat': 1200,
  'methods': ('small:2x2/kseq',),
  'batch_size': 2,
  'rounds': 2,
  'repeats': 2,
}
_LATENCY = {
  'model_names': ('target', 'small'),
  'lengths': (2, 3),
  'batch_sizes': (1, 2),
  'prefix_length': 5,
  'repeats': 3,
}
# Draft Ber(0.25); acceptance with 1, 2 and 3 drafts.
_BERNOULLI = {
  'Ber(0.1)': {
    'optimum': [0.85, 1, 1],
    'kseq': [0.85, 0.973072, 0.995406],
    'multiround': [0.85, 0.9625, 0.990625],
  },
  'Ber(0.75)': {
    'optimum': [0.5, 0.6875, 0.828125],
    'kseq': [0.5, 0.648268, 0.754539],
    'multiround': [0.5, 0.625, 0.71875],
  },
  'Ber(1.0)': dict.fromkeys(
    ('optimum', 'kseq', 'multiround'), [0.25, 0.4375, 0.578125]
  ),
}


def _config(name, changes, family=None):
  return toy.config(f'spectr/{name}', family, changes)


# Acceptance by the number of drafts.


@pytest.fixture(scope='module', name='acceptance_run')
def _acceptance_run(tmp_path_factory):
  """Returns the workdir and the rows of a run."""
  workdir = tmp_path_factory.mktemp('acceptance')
  return workdir, toy.run(_config('acceptance', _ACCEPTANCE), workdir)


@pytest.fixture(scope='module', name='pairs')
def _pairs(acceptance_run):
  """Rows by pair."""
  workdir, rows = acceptance_run
  pairs = {}
  for row in rows:
    pairs.setdefault(row['pair'], []).append(row)
    assert row['k'] == len(pairs[row['pair']])
  assert len(pairs) == 6
  images = sorted(path.stem for path in workdir.glob('*.png'))
  assert images == ['bernoulli', 'uniform', 'zipf']
  return pairs


def _column(rows, column):
  return np.array([row[column] for row in rows])


@pytest.mark.parametrize('target', _BERNOULLI)
def test_acceptance_of_bernoulli_pairs(pairs, target):
  """Compares Figures 4 and 6 with values computed by hand."""
  rows = pairs[f'draft Ber(0.25), target {target}']
  for rule, values in _BERNOULLI[target].items():
    np.testing.assert_allclose(_column(rows, rule), values, atol=2e-6)
  for optimal_rule in ('otm', 'paper'):
    np.testing.assert_allclose(
      _column(rows, optimal_rule), _column(rows, 'optimum'), atol=2e-6
    )


@pytest.mark.parametrize('target', _BERNOULLI)
def test_two_distinct_drafts_of_two_tokens_are_both(pairs, target):
  """Accepts one of two distinct drafts; replacement does not matter for one."""
  rows = pairs[f'draft Ber(0.25), target {target}']
  for rule in ('optimum', 'kseq', 'otm'):
    acceptances = _column(rows, f'distinct_{rule}')
    assert acceptances[0] == pytest.approx(_column(rows, rule)[0], abs=1e-6)
    np.testing.assert_allclose(acceptances[1:], 1, atol=1e-6)


@pytest.mark.parametrize('ratio', [2, 3])
def test_acceptance_of_uniform_pairs(pairs, ratio):
  """Figure 5: every rule reaches the closed form."""
  rows = pairs[f'draft U(120), target U({120 // ratio})']
  expected = 1 - (1 - 1 / ratio) ** np.arange(1, 4)
  for rule in ('optimum', 'otm', 'kseq', 'multiround', 'paper'):
    np.testing.assert_allclose(_column(rows, rule), expected, atol=1e-5)


def test_acceptance_lies_between_its_bounds(pairs):
  """Bounds rules by the optimum, which all of them reach with one draft."""
  factors = 1 - (1 - 1 / np.arange(1, 4)) ** np.arange(1, 4)
  for rows in pairs.values():
    optimum = _column(rows, 'optimum')
    assert (np.diff(optimum) > -1e-6).all()
    for rule in ('otm', 'kseq', 'multiround'):
      acceptances = _column(rows, rule)
      assert (acceptances <= optimum + 1e-5).all()
      assert acceptances[0] == pytest.approx(optimum[0], abs=1e-5)
      assert acceptances[2] > acceptances[0]
    # Theorem 1.
    assert (_column(rows, 'kseq') >= factors * optimum - 1e-5).all()
    if 'lower_bound' in rows[0]:
      lower, upper = _column(rows, 'lower_bound'), _column(rows, 'upper_bound')
      assert (lower <= optimum + 1e-5).all()
      np.testing.assert_allclose(lower, factors * upper, atol=1e-6)
    else:
      upper = _column(rows, 'union_bound')
    assert (optimum <= upper + 1e-5).all()


def test_acceptance_goes_on_where_it_stopped(acceptance_run, tmp_path):
  workdir, rows = acceptance_run
  torn_dir = toy.torn_workdir(workdir, tmp_path / 'again', 2)
  assert toy.run(_config('acceptance', _ACCEPTANCE), torn_dir) == rows
  assert toy.units(torn_dir) == toy.units(workdir)


# Costs.


def test_cost(tmp_path, family, monkeypatch):
  """Checks a row for each coupling and size, and one for each verifier.

  The coupling that leaves the device is not timed.
  """
  names = 'kseq', 'maximal'
  rules = {name: couplings.COUPLINGS[name] for name in (*names, 'otm_table')}
  monkeypatch.setattr(couplings, 'COUPLINGS', rules)
  config = _config('cost', _COST, family)
  rows = toy.run(config, tmp_path / 'run')
  coupling_rows = [row for row in rows if row['part'] == 'coupling']
  assert [(row['vocab_size'], row['rule']) for row in coupling_rows] == [
    (size, name) for size in (300, 600) for name in ('pass', *names)
  ]
  passes = [row for row in coupling_rows if row['rule'] == 'pass']
  for row in coupling_rows:
    one_pass = passes[row['vocab_size'] == 600]
    assert row['ratio'] == pytest.approx(row['ms'] / one_pass['ms'])
    assert row['ms'] > 0
  (verifier_row,) = rows[len(coupling_rows) :]
  assert verifier_row['method'] == 'small:2x2/kseq'
  assert 1 <= verifier_row['block_efficiency'] <= 3
  share = verifier_row['verify_ms'] / verifier_row['round_ms']
  assert verifier_row['share'] == pytest.approx(share)
  # Logged rows keep their times.
  torn_dir = toy.torn_workdir(tmp_path / 'run', tmp_path / 'again', 2)
  assert toy.run(config, torn_dir)[: len(coupling_rows)] == coupling_rows
  assert len(toy.units(torn_dir)) == 3


def test_a_loop_makes_the_picks_of_single_calls():
  """Compares a loop over different instances with single calls."""
  instances = cost.make_instances(400, 3, 1.0, 0, 20)
  keys, candidates, *pair = instances
  for name in sorted(set(specjax.COUPLINGS) - {'otm_table'}):
    rule = jax.jit(specjax.COUPLINGS[name]())
    picks = [
      int(rule(key, tokens, np.ones(3, bool), *pair)[0])
      for key, tokens in zip(keys, candidates)
    ]
    assert cost.loop(rule, *instances)().tolist() == picks, name
    assert len(set(picks)) > 5 or name != 'otm'


def test_candidates_are_drawn_from_the_draft():
  """Counts token 0; an error of 0.06 fails with probability 0.999."""
  _, candidates, draft, _ = cost.make_instances(4, 3, 0.0, 1, 1000)
  probability = float(draft[0])
  assert probability == pytest.approx(12 / 25)  # 1 / (1 + 1/2 + 1/3 + 1/4)
  assert abs(float((candidates == 0).mean()) - probability) < 0.03


def test_calls_of_a_loop_wait_for_each_other():
  """Counts calls; without a data dependency, XLA would merge them."""
  calls = []

  def on_host(probs):
    calls.append(probs)
    return np.float32(probs.sum())

  def rule(key, candidates, active, draft, target):
    return jax.pure_callback(on_host, jax.typeof(draft[0]), draft), True

  cost.loop(rule, *cost.make_instances(4, 1, 1.0, 0, 6))()
  assert len(calls) == 6


def test_recorded_rounds_are_those_of_the_decode():
  """Verifies the recorded inputs again and compares the emitted tokens."""
  arm = arms.chains(3, 2, verifier='kseq')
  decoder = arms.decoder(arm)
  prompts = [[1, 2, 3], [4]]
  start = decoder.init(prompts, 20)
  verifier_inputs, state = cost.record(decoder, start, 4)
  emitted = [[], []]
  verify = jax.jit(jax.vmap(arm[0].verifier))
  for i in range(4):
    outcome = verify(*jax.tree.map(lambda leaf, i=i: leaf[i], verifier_inputs))
    for row, tokens, num in zip(emitted, outcome.tokens, outcome.num_accepted):
      row += tokens[: num + 1].tolist()
  assert len(emitted[0]) > 4  # Something was accepted.
  for prompt, row, tokens in zip(prompts, emitted, state.tokens):
    first = len(prompt)
    assert tokens[first : first + len(row)].tolist() == row
  np.testing.assert_array_equal(
    state.lengths - start.lengths, [len(row) for row in emitted]
  )


# Latency.


def test_latency(tmp_path, family):
  rows = toy.run(_config('latency', _LATENCY, family), tmp_path)
  assert [(row['model'], row['length'], row['batch_size']) for row in rows] == [
    (name, length, size)
    for name in ('target', 'small')
    for length in (2, 3)
    for size in (1, 2)
  ]
  assert rows[0]['relative'] == 1
  for row in rows:
    for statistic in ('', 'deviation'):
      absolute, relative = (
        f'{statistic}_ms'.strip('_'),
        f'relative_{statistic}'.strip('_'),
      )
      assert row[relative] == pytest.approx(row[absolute] / rows[0]['ms'])
      assert row[absolute] > 0
    error = row['relative_deviation'] / 3**0.5
    assert row['relative_error'] == pytest.approx(error)


def test_timed_calls_score_behind_the_prefix(family):
  """Compares the logits with one call on the prefix and the new tokens."""
  model = families.load(str(family)).drafters['small']
  logits = latency.call(model, 3, 2, 5, seed=0)()
  tokens = np.random.default_rng(0).integers(
    model.config.vocab_size, size=(2, 8), dtype=np.int32
  )
  extend = jax.jit(model.model.extend)
  full_logits = extend(model.params, None, tokens).logits
  np.testing.assert_allclose(logits, full_logits[:, 5:], atol=1e-3)


# What they share.


def test_timed_functions_take_turns_there_and_back_after_a_warm_up():
  calls = []
  functions = [lambda name=name: calls.append(name) for name in 'ab']
  assert measure.medians(functions, 2).shape == (2,)
  assert calls == ['a', 'b', 'a', 'b', 'b', 'a']


@pytest.mark.parametrize(
  ('name', 'changes', 'message'),
  [
    ('acceptance', {'max_drafts': 0}, 'max_drafts'),
    ('acceptance', {'bernoulli_targets': (0.5, 1.5)}, r'\[0.*1\], got.*1.5'),
    ('acceptance', {'uniform_targets': (121,)}, r'lie in \[1, 120\]'),
    ('acceptance', {'zipf_spreads': (-1.0,)}, 'zipf_spreads'),
    ('cost', {'repeats': 0}, 'repeats'),
    ('cost', {'spread': -1.0}, 'spread'),
    ('cost', {'batch_size': 0}, 'batch_size'),
    (
      'cost',
      {'methods': ('none',)},
      r'methods\[0\] must be one arm that drafts',
    ),
    ('latency', {'lengths': ()}, 'lengths'),
    ('latency', {'batch_sizes': (1, 0)}, 'batch_sizes'),
    ('latency', {'model_names': ('tiny',)}, "Unknown model 'tiny'"),
  ],
)
def test_bad_values_are_refused_before_anything_is_timed(
  tmp_path, name, changes, message
):
  with pytest.raises(ValueError, match=message):
    main.run(_config(name, changes), tmp_path / 'run')
  assert not list(tmp_path.iterdir())


# Several drafts a round.


@pytest.mark.parametrize('name', ['decode', 'prefix_trees', 'speed'])
def test_columns_say_what_is_drafted(name):
  config = _config(name, {})
  parsed_methods = methods.parse_all(config, ('small', 'medium', 'large'))
  for method in parsed_methods:
    columns, (arm,) = method.columns, method.arms
    topology = getattr(trees, arm.tree.name)(*arm.tree.args)
    is_shared = method.sampling.shared_noise
    verifier = 'shared noise' if is_shared else str(arm.verifier)
    assert columns['verifier'] == verifier
    if name == 'prefix_trees':
      assert columns['nodes'] == topology.num_nodes
      if 'prefix' in columns['shape']:
        assert len(topology.leaves) == 8 and topology.depth == 4
    else:
      drafts, length = columns['drafts'], columns['length']
      assert topology == trees.chains(drafts, length)
      drafter = columns.get('drafter', 'medium')
      assert str(arm).split(':')[0] == drafter


def test_drafts_are_drawn_as_lines_over_their_number():
  """Draws a panel for each drafter, and a line for each length and verifier."""
  rows = [
    {
      'prompts': 'all',
      'domain': 'all',
      'method': f'{drafter} {length} {drafts}',
    }
    | {'drafter': drafter, 'length': length, 'verifier': 'otm'}
    | {'drafts': drafts, 'decoded': 3, 'block_efficiency': 1.0 + drafts / 4}
    for drafter in ('small', 'large')
    for length in (4, 8)
    for drafts in (1, 2, 4)
  ]
  figures = compare.figures(rows)
  assert list(figures) == ['block_efficiency']
  panels = figures['block_efficiency'].axes
  assert [axes.get_title() for axes in panels] == [
    'drafter small',
    'drafter large',
  ]
  for axes in panels:
    assert axes.get_xlabel() == 'drafts'
    for container in axes.containers:
      assert container.lines[0].get_xdata().tolist() == [1, 2, 4]
    labels = [container.get_label() for container in axes.containers]
    assert labels == [f'length {n}, verifier otm' for n in (4, 8)]


def test_drafters_of_the_97m_config_are_halves_and_doubles():
  models = _config('lm1b_97m', {}).models.to_dict()
  medium = models['medium']
  for name, factor in (('small', 1 / 2), ('large', 2)):
    for field in ('num_layers', 'd_model', 'd_ff', 'num_heads'):
      assert models[name][field] == factor * medium[field], (name, field)
  sizes = {
    name: flax_modules.num_params(
      config_lib.from_dict({'vocab_size': 16384, **fields})
    )
    for name, fields in models.items()
  }
  expected = {
    'target': 97.5e6,
    'large': 20.5e6,
    'medium': 5.7e6,
    'small': 2.3e6,
  }
  assert sizes == pytest.approx(expected, rel=0.01)
