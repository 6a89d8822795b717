"""SpecTr's experiments, tiny: their rows, and that they measure what they say.

Times are checked for their bookkeeping alone.
"""

import json
import pathlib
import shutil

import jax
import matplotlib.image
import ml_collections
import numpy as np
import pytest

from experiments import couplings
from experiments import latency
from experiments import results
import specjax
from specjax import drafters
from specjax import families
from specjax import trees
from specjax import verifiers
from tests import experiments_test
from tests import toys

pytestmark = pytest.mark.slow

_ACCEPTANCE = {
  'max_drafts': 3,
  'bernoulli_targets': (0.1, 0.75),
  'uniform_targets': (60, 40),
  'zipf_size': 600,
  'zipf_spreads': (1.0,),
}
_COST = {
  'num_drafts': 2,
  'vocab_sizes': (300, 600),
  'values_per_repeat': 1200,
  'draft_length': 2,
  'verifiers': ('kseq', 'batch'),
  'rounds': 2,
  'repeats': 2,
}
_LATENCY = {
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
}


@pytest.fixture(scope='module')
def family(tmp_path_factory):
  """A folder with the shipped tokenizer and prompts, and tiny models."""
  folder = tmp_path_factory.mktemp('family')
  shipped = pathlib.Path(families.__file__).parent / 'mini'
  shutil.copy(shipped / 'prompts.jsonl', folder)
  toys.write_family(folder, {'medium': 0.5, 'small': 1.0}, scale=1.0)
  return str(folder)


def _run(name, changes, workdir):
  config = experiments_test._load(f'spectr/{name}.py')
  config.update(changes)
  return experiments_test._run(config, workdir)


# Acceptance by the number of drafts.


@pytest.fixture(scope='module')
def acceptance(tmp_path_factory):
  """The workdir, and `[3]` acceptance by pair and rule."""
  workdir = tmp_path_factory.mktemp('acceptance')
  curves = {}
  for row in _run('acceptance', _ACCEPTANCE, workdir):
    curve = curves.setdefault(row['pair'], {}).setdefault(row['rule'], [])
    curve.append(row['acceptance'])
    assert row['k'] == len(curve)
  return workdir, {
    pair: {rule: np.array(curve) for rule, curve in rules.items()}
    for pair, rules in curves.items()
  }


@pytest.mark.parametrize('target', _BERNOULLI)
def test_acceptance_of_bernoulli_pairs(acceptance, target):
  """Figures 4 and 6, by values computed by hand."""
  curves = acceptance[1][f'draft Ber(0.25), target {target}']
  for rule, values in _BERNOULLI[target].items():
    np.testing.assert_allclose(curves[rule], values, atol=2e-6)
  np.testing.assert_allclose(curves['otm'], curves['optimum'], atol=2e-6)


@pytest.mark.parametrize('ratio', [2, 3])
def test_acceptance_of_uniform_pairs(acceptance, ratio):
  """Figure 5: every rule reaches the closed form."""
  curves = acceptance[1][f'draft U(120), target U({120 // ratio})']
  expected = 1 - (1 - 1 / ratio) ** np.arange(1, 4)
  for rule in ('optimum', 'otm', 'kseq', 'multiround'):
    np.testing.assert_allclose(curves[rule], expected, atol=1e-5)


def test_acceptance_lies_between_its_bounds(acceptance):
  """One draft leaves no choice; no rule beats the optimum."""
  _, pairs = acceptance
  assert len(pairs) == 5
  for curves in pairs.values():
    best = curves['optimum']
    assert (np.diff(best) > -1e-6).all()
    for rule in ('otm', 'kseq', 'multiround'):
      assert (curves[rule] <= best + 1e-5).all()
      assert curves[rule][0] == pytest.approx(best[0], abs=1e-5)
      assert curves[rule][2] > curves[rule][0]
    upper = 'upper_bound' if 'lower_bound' in curves else 'union_bound'
    assert (best <= curves[upper] + 1e-5).all()
    if upper == 'upper_bound':
      factors = 1 - (1 - 1 / np.arange(1, 4)) ** np.arange(1, 4)
      assert (curves['lower_bound'] <= best + 1e-5).all()
      np.testing.assert_allclose(
        curves['lower_bound'], factors * curves['upper_bound'], atol=1e-6
      )


def test_acceptance_is_plotted_for_each_family_of_pairs(acceptance):
  workdir, _ = acceptance
  images = sorted(workdir.glob('*.png'))
  names = [path.stem for path in images]
  assert names == ['bernoulli', 'uniform', 'zipf']
  assert all(matplotlib.image.imread(path).std() > 0 for path in images)


# Costs.


def test_cost(tmp_path, family):
  """A row for each coupling and size, then one for each verifier."""
  rows = _run('cost', _COST | {'family': family}, tmp_path)
  cost = [row for row in rows if row['benchmark'] == 'coupling']
  names = ['pass', *sorted(set(specjax.COUPLINGS) - {'otm_table'})]
  assert [(row['vocab_size'], row['rule']) for row in cost] == [
    (size, name) for size in (300, 600) for name in names
  ]
  for row, one_pass in zip(cost, [cost[0]] * 6 + [cost[6]] * 6):
    for time, ratio in (('call_ms', 'ratio'), ('loop_ms', 'ratio_in_loop')):
      assert row[ratio] == pytest.approx(row[time] / one_pass[time])
      assert row[time] > 0
  verified = rows[len(cost) :]
  assert [row['rule'] for row in verified] == ['kseq', 'batch']
  for row in verified:
    assert 1 <= row['block_efficiency'] <= 3
    assert row['share'] == pytest.approx(row['verify_ms'] / row['round_ms'])
  assert {row['device'] for row in rows} == {results.device()}


def test_loop_and_calls_make_the_same_picks():
  """Of all couplings: what is timed in two ways is one computation."""
  config = ml_collections.ConfigDict({'num_drafts': 3, 'spread': 1, 'seed': 0})
  instances = couplings.make_instances(config, 400, 20)
  picks = {}
  for name in sorted(set(specjax.COUPLINGS) - {'otm_table'}):
    rule = specjax.COUPLINGS[name]
    picks[name] = np.array(couplings.calls(rule, instances)())
    in_loop = couplings.loop(rule, instances)()
    np.testing.assert_array_equal(in_loop, picks[name], err_msg=name)
  # The instances differ, or one of them would stand for all.
  assert len(set(picks['otm'])) > 5


def test_candidates_are_drawn_from_the_draft():
  """3000 draws; a chance of token 0 that is off by 0.06 fails with 0.999."""
  config = ml_collections.ConfigDict(
    {'num_drafts': 3, 'spread': 0.0, 'seed': 1}
  )
  instances = couplings.make_instances(config, 4, 1000)
  chance = float(instances.draft[0])
  assert chance == pytest.approx(12 / 25)  # 1 / (1 + 1/2 + 1/3 + 1/4)
  assert abs(float((instances.candidates == 0).mean()) - chance) < 0.03
  assert instances.active.all()


def test_calls_of_a_loop_wait_for_each_other():
  """Did their drafts not depend on the last call, one would be made for all."""
  config = ml_collections.ConfigDict({'num_drafts': 1, 'spread': 1, 'seed': 0})
  instances = couplings.make_instances(config, 4, 6)
  seen = []

  def on_host(probs):
    seen.append(probs)
    return np.float32(probs.sum())

  def rule(key, candidates, active, draft, target):
    return jax.pure_callback(on_host, jax.typeof(draft[0]), draft), True

  couplings.loop(rule, instances)()
  assert len(seen) == 6


@pytest.mark.parametrize('rule', ['kseq', 'batch'])
def test_recorded_rounds_are_those_of_the_decode(rule):
  """The verifier picks of what was recorded just what the round emitted."""
  model, params = toys.transformer()
  draft_model, draft_params = toys.transformer(1)
  sampling = specjax.Sampling(1.0)
  drafter = drafters.DRAFTERS['autoregressive'](
    draft_model, trees.chains(3, 2), sampling
  )
  verifier = verifiers.resolve(rule)
  decoder = specjax.Decoder(
    model,
    params,
    [(specjax.Arm(drafter, verifier), draft_params)],
    sampling=sampling,
    max_length=32,
  )
  prompts = [[1, 2, 3], [4]]
  start = decoder.init(prompts, 20)
  scored, state = couplings.record(
    couplings.make_score(decoder.round_fn),
    jax.jit(decoder.round_fn),
    decoder.params,
    start,
    4,
  )
  emitted = [[], []]
  verify = jax.jit(jax.vmap(verifier))
  for each in scored:
    outcome = verify(*each)
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
  rows = _run('latency', _LATENCY | {'family': family}, tmp_path)
  names = ['target', *families.load(family).drafters]
  assert [(r['model'], r['length'], r['batch_size']) for r in rows] == [
    (name, length, size)
    for name in names
    for length in (2, 3)
    for size in (1, 2)
  ]
  assert rows[0]['relative'] == 1
  for row in rows:
    for of in ('', 'deviation'):
      absolute, relative = f'{of}_ms'.strip('_'), f'relative_{of}'.strip('_')
      assert row[relative] == pytest.approx(row[absolute] / rows[0]['ms'])
      assert row[absolute] > 0


def test_timed_calls_score_behind_the_prefix(family):
  """As one call of prefix and new tokens together."""
  model = families.load(family).drafters['small']
  logits = latency.call(model, 3, 2, 5, seed=0)()
  tokens = np.random.default_rng(0).integers(
    model.config.vocab_size, size=(2, 8), dtype=np.int32
  )
  whole = model.functions.extend(model.params, None, tokens).logits
  np.testing.assert_allclose(logits, whole[:, 5:], atol=1e-3)


# What they share.


def test_timed_functions_take_turns_after_a_warm_up():
  turns = []
  functions = [lambda name=name: turns.append(name) for name in 'ab']
  assert results.seconds(2, functions, 'both').shape == (2, 2)
  assert turns == ['a', 'b'] * 3
  assert results.medians(2, functions, 'both').shape == (2,)


@pytest.mark.parametrize(
  ('name', 'changes', 'message'),
  [
    ('acceptance', {'max_drafts': 0}, 'max_drafts'),
    ('acceptance', {'bernoulli_targets': (0.5, 1.5)}, r'\[0, 1\], got 1.5'),
    ('acceptance', {'uniform_targets': (7,)}, 'uniform_draft=120, got 7'),
    ('acceptance', {'zipf_spreads': (-1.0,)}, 'zipf_spreads'),
    ('cost', {'repeats': 0}, 'repeats'),
    ('cost', {'spread': -1.0}, 'spread'),
    ('cost', {'batch_size': 10**6}, 'batch_size must be at most'),
    ('cost', {'drafter': 'tiny'}, 'Unknown drafter'),
    ('cost', {'verifiers': ('tree',)}, 'Unknown verifier'),
    ('latency', {'lengths': ()}, 'lengths'),
    ('latency', {'batch_sizes': (1, 0)}, 'batch_sizes'),
  ],
)
def test_bad_values_are_refused_before_anything_is_timed(
  tmp_path, monkeypatch, name, changes, message
):
  monkeypatch.setattr(results, 'start', lambda workdir: pytest.fail('started'))
  with pytest.raises(ValueError, match=message):
    _run(name, changes, tmp_path)


# Several drafts a round.


def test_multidraft_goes_on_where_it_stopped(tmp_path, family):
  changes = {
    'family': family,
    'drafters': ('small',),
    'draft_lengths': (2,),
    'chain_verifiers': ('block',),
    'num_drafts': (2,),
    'verifiers': ('otm',),
    'max_new_tokens': 4,
    'batch_size': 64,
    'num_seeds': 1,
  }
  rows = _run('decode', changes, tmp_path)
  assert [row['verifier'] for row in rows] == ['none', 'block', 'otm']
  assert rows[0]['block_efficiency'] == rows[0]['speed_up'] == 1
  assert matplotlib.image.imread(tmp_path / 'block_efficiency.png').std() > 0
  # Killed before the last row: only that one, and plain decoding, run again.
  path = tmp_path / 'metrics.jsonl'
  path.write_text(''.join(path.read_text().splitlines(keepends=True)[:2]))
  again = _run('decode', changes, tmp_path)
  lines = path.read_text().splitlines()
  measured = [json.loads(line)['verifier'] for line in lines[2:]]
  assert measured == ['none', 'otm'] and again[1] == rows[1]
