"""SpecTr's experiments, tiny: their rows, and that they measure what they say.

Times are checked for their bookkeeping alone.
"""

import pathlib
import shutil

import jax
import numpy as np
import pytest

from experiments import compare
from experiments import main
from experiments.common import configs
from experiments.common import log
from experiments.common import measure
from experiments.common import paper
from experiments.common import results
from experiments.common import ways
from experiments.spectr import acceptance
from experiments.spectr import cost
from experiments.spectr import latency
import specjax
from specjax import drafters
from specjax import families
from specjax import trees
from specjax import verifiers
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.testing import toys

_CONFIGS = pathlib.Path(__file__).parents[2] / 'configs' / 'spectr'
_ACCEPTANCE = {
  'max_drafts': 4,
  'bernoulli_targets': (0.1, 0.75, 1.0),
  'uniform_targets': (60, 40),
  'zipf_size': 600,
  'zipf_spreads': (1.0,),
}
_COST = {
  'num_drafts': 2,
  'vocab_sizes': (300, 600),
  'values_per_repeat': 1200,
  'ways': ('medium:2x2/kseq', 'small:2x2/batch'),
  'rounds': 2,
  'repeats': 2,
}
_LATENCY = {
  'model_names': (),
  'lengths': (2, 3),
  'batch_sizes': (1, 2),
  'prefix_length': 5,
  'repeats': 3,
}
# Draft Ber(0.25); acceptance with 1, 2, 3 and 4 drafts.
_BERNOULLI = {
  'Ber(0.1)': {
    'optimum': [0.85, 1, 1, 1],
    'kseq': [0.85, 0.973072, 0.995406, 0.999230],
    'multiround': [0.85, 0.9625, 0.990625, 0.997656],
  },
  'Ber(0.75)': {
    'optimum': [0.5, 0.6875, 0.828125, 0.933594],
    'kseq': [0.5, 0.648268, 0.754539, 0.829887],
    'multiround': [0.5, 0.625, 0.71875, 0.789062],
  },
  'Ber(1.0)': dict.fromkeys(
    ('optimum', 'kseq', 'multiround'), [0.25, 0.4375, 0.578125, 0.683594]
  ),
}


@pytest.fixture(scope='module')
def family(tmp_path_factory):
  """A folder with the shipped tokenizer and prompts, and tiny models."""
  folder = tmp_path_factory.mktemp('family')
  shipped = pathlib.Path(families.__file__).parent
  shutil.copy(shipped / 'prompts.jsonl', folder)
  toys.write_family(folder, {'medium': 0.5, 'small': 1.0}, scale=1.0)
  return str(folder)


def _load(name):
  return configs.load(str(_CONFIGS / f'{name}.py'))


def _run(name, changes, workdir):
  config = _load(name)
  config.update(changes)
  main.run(config, workdir)
  return results.read(workdir)['rows']


# Acceptance by the number of drafts.


@pytest.fixture(scope='module', name='pairs')
def _pairs(tmp_path_factory):
  """Rows by pair."""
  pairs = {}
  workdir = tmp_path_factory.mktemp('acceptance')
  for row in _run('acceptance', _ACCEPTANCE, workdir):
    pairs.setdefault(row['pair'], []).append(row)
    assert row['k'] == len(pairs[row['pair']])
  assert len(pairs) == 6
  images = sorted(path.stem for path in workdir.glob('*.png'))
  assert images == ['bernoulli', 'uniform', 'zipf']
  return pairs


def _of(rows, column):
  return np.array([row[column] for row in rows])


@pytest.mark.slow
@pytest.mark.parametrize('target', _BERNOULLI)
def test_acceptance_of_bernoulli_pairs(pairs, target):
  """Figures 4 and 6, by values computed by hand."""
  rows = pairs[f'draft Ber(0.25), target {target}']
  for rule, values in _BERNOULLI[target].items():
    np.testing.assert_allclose(_of(rows, rule), values, atol=2e-6)
  for same in ('otm', 'paper'):
    np.testing.assert_allclose(_of(rows, same), _of(rows, 'optimum'), atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize('target', _BERNOULLI)
def test_two_distinct_drafts_of_two_tokens_are_both(pairs, target):
  """One of them is kept; one draft alone is as one with replacement."""
  rows = pairs[f'draft Ber(0.25), target {target}']
  for rule in ('optimum', 'kseq', 'otm'):
    own = _of(rows, f'distinct_{rule}')
    assert own[0] == pytest.approx(_of(rows, rule)[0], abs=1e-6)
    np.testing.assert_allclose(own[1:], 1, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('ratio', [2, 3])
def test_acceptance_of_uniform_pairs(pairs, ratio):
  """Figure 5: every rule reaches the closed form."""
  rows = pairs[f'draft U(120), target U({120 // ratio})']
  expected = 1 - (1 - 1 / ratio) ** np.arange(1, 5)
  for rule in ('optimum', 'otm', 'kseq', 'multiround', 'paper'):
    np.testing.assert_allclose(_of(rows, rule), expected, atol=1e-5)


@pytest.mark.slow
def test_acceptance_lies_between_its_bounds(pairs):
  """One draft leaves no choice; no rule beats the optimum."""
  factors = 1 - (1 - 1 / np.arange(1, 5)) ** np.arange(1, 5)
  for rows in pairs.values():
    best = _of(rows, 'optimum')
    assert (np.diff(best) > -1e-6).all()
    for rule in ('otm', 'kseq', 'multiround'):
      own = _of(rows, rule)
      assert (own <= best + 1e-5).all()
      assert own[0] == pytest.approx(best[0], abs=1e-5)
      assert own[2] > own[0]
    # Theorem 1.
    assert (_of(rows, 'kseq') >= factors * best - 1e-5).all()
    if 'lower_bound' in rows[0]:
      lower, upper = _of(rows, 'lower_bound'), _of(rows, 'upper_bound')
      assert (lower <= best + 1e-5).all()
      np.testing.assert_allclose(lower, factors * upper, atol=1e-6)
    else:
      upper = _of(rows, 'union_bound')
    assert (best <= upper + 1e-5).all()


# Costs.


@pytest.mark.slow
def test_cost(tmp_path, family):
  """A row for each coupling and size, then one for each verifier."""
  rows = _run('cost', _COST | {'family': family}, tmp_path)
  of_couplings = [row for row in rows if row['part'] == 'coupling']
  names = ['pass', *sorted(set(specjax.COUPLINGS) - {'otm_table'})]
  assert [(row['vocab_size'], row['rule']) for row in of_couplings] == [
    (size, name) for size in (300, 600) for name in names
  ]
  passes = [row for row in of_couplings if row['rule'] == 'pass']
  for row in of_couplings:
    one_pass = passes[row['vocab_size'] == 600]
    assert row['ratio'] == pytest.approx(row['ms'] / one_pass['ms'])
    assert row['ms'] > 0
  verified = rows[len(of_couplings) :]
  assert [row['way'] for row in verified] == list(_COST['ways'])
  for row in verified:
    assert 1 <= row['block_efficiency'] <= 3
    assert row['share'] == pytest.approx(row['verify_ms'] / row['round_ms'])


@pytest.mark.slow
def test_a_loop_makes_the_picks_of_single_calls():
  """Of all couplings; the instances differ, or one would stand for all."""
  instances = cost.make_instances(400, 3, 1.0, 0, 20)
  keys, candidates, *pair = instances
  for name in sorted(set(specjax.COUPLINGS) - {'otm_table'}):
    rule = jax.jit(specjax.COUPLINGS[name])
    picks = [
      int(rule(key, each, np.ones(3, bool), *pair)[0])
      for key, each in zip(keys, candidates)
    ]
    assert cost.loop(rule, *instances)().tolist() == picks, name
    assert len(set(picks)) > 5 or name != 'otm'


def test_candidates_are_drawn_from_the_draft():
  """3000 draws; a chance of token 0 that is off by 0.06 fails with 0.999."""
  _, candidates, draft, _ = cost.make_instances(4, 3, 0.0, 1, 1000)
  chance = float(draft[0])
  assert chance == pytest.approx(12 / 25)  # 1 / (1 + 1/2 + 1/3 + 1/4)
  assert abs(float((candidates == 0).mean()) - chance) < 0.03


def test_calls_of_a_loop_wait_for_each_other():
  """Did their drafts not depend on the last call, one would be made for all."""
  seen = []

  def on_host(probs):
    seen.append(probs)
    return np.float32(probs.sum())

  def rule(key, candidates, active, draft, target):
    return jax.pure_callback(on_host, jax.typeof(draft[0]), draft), True

  cost.loop(rule, *cost.make_instances(4, 1, 1.0, 0, 6))()
  assert len(seen) == 6


@pytest.mark.slow
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
  scored, state = cost.record(decoder, start, 4)
  emitted = [[], []]
  verify = jax.jit(jax.vmap(verifier))
  for i in range(4):
    outcome = verify(*jax.tree.map(lambda each, i=i: each[i], scored))
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


@pytest.mark.slow
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
    error = row['relative_deviation'] / 3**0.5
    assert row['relative_error'] == pytest.approx(error)


@pytest.mark.slow
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


def test_timed_functions_take_turns_there_and_back_after_a_warm_up():
  turns = []
  functions = [lambda name=name: turns.append(name) for name in 'ab']
  assert measure.medians(functions, 2).shape == (2,)
  assert turns == ['a', 'b', 'a', 'b', 'b', 'a']


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'changes', 'place'),
  [
    ('acceptance', _ACCEPTANCE, (acceptance, '_rows')),
    ('cost', _COST | {'ways': ('small:2x2/batch',)}, (cost, '_verification')),
  ],
)
def test_a_killed_run_goes_on(
  tmp_path, monkeypatch, family, name, changes, place
):
  """What was logged stays as it is, times too, and is not computed again."""
  changes = changes | ({} if name == 'acceptance' else {'family': family})
  module, step = place
  compute = getattr(module, step)
  num_done = {'acceptance': 2, 'cost': 0}[name]
  finished = []

  def killed(*args, **options):
    if len(finished) == num_done:
      raise InterruptedError
    finished.append(args)
    return compute(*args, **options)

  monkeypatch.setattr(module, step, killed)
  with pytest.raises(InterruptedError):
    _run(name, changes, tmp_path)
  logged = (tmp_path / log.FILE).read_text()
  assert logged and not (tmp_path / results.FILE).exists()
  monkeypatch.setattr(module, step, compute)
  rows = _run(name, changes, tmp_path)
  final = (tmp_path / log.FILE).read_text()
  assert final.startswith(logged) and len(final) > len(logged)
  if name == 'acceptance':  # Without clocks.
    assert _run(name, changes, tmp_path / 'whole') == rows
  monkeypatch.setattr(module, step, killed)  # Nothing is left to compute.
  assert _run(name, changes, tmp_path) == rows
  assert (tmp_path / log.FILE).read_text() == final


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
    ('cost', {'ways': ('tiny:4',)}, r"ways\[0\].*Unknown drafter 'tiny'"),
    ('cost', {'ways': ('medium:4/tree',)}, r'ways\[0\].*Unknown verifier'),
    ('cost', {'ways': ('none',)}, r'ways\[0\] must be one arm that drafts'),
    ('latency', {'lengths': ()}, 'lengths'),
    ('latency', {'batch_sizes': (1, 0)}, 'batch_sizes'),
    ('latency', {'model_names': ('tiny',)}, "Unknown model 'tiny'"),
  ],
)
def test_bad_values_are_refused_before_anything_is_timed(
  tmp_path, name, changes, message
):
  with pytest.raises(ValueError, match=message):
    _run(name, changes, tmp_path / 'run')
  assert not list(tmp_path.iterdir())


# Several drafts a round.


@pytest.mark.parametrize('name', ['decode', 'prefix_trees', 'speed'])
def test_columns_say_what_is_drafted(name):
  config = _load(name)
  parsed = ways.parse_all(config, ('small', 'medium', 'large'))
  for way in parsed:
    columns, (arm,) = way.columns, way.arms
    topology = getattr(trees, arm.tree.name)(*arm.tree.args)
    assert columns['verifier'] == str(arm.verifier)
    if name == 'prefix_trees':
      assert columns['nodes'] == topology.num_nodes
      if 'prefix' in columns['shape']:
        assert len(topology.leaves) == 8 and topology.depth == 4
    else:
      drafts, length = columns['drafts'], columns['length']
      assert topology == trees.chains(drafts, length)
      drafter = columns.get('drafter', 'medium')
      assert str(arm).split(':')[0] == drafter


@pytest.mark.parametrize(
  ('name', 'num_rows', 'ratios'),
  [
    # Table 4: 2.56 / 1.86, ...; Table 1: 3.1 / 2.4 and 4.0 / 2.9.
    (
      'decode',
      24,
      [1.376, 1.403, 1.353, 1.403, 1.288, 1.330, 1.353, 1.403, 1.292, 1.379],
    ),
    ('speed', 4, [1.246, 1.365]),
    ('prefix_trees', 0, [1.0] * 9),
  ],
)
def test_the_papers_numbers_have_ways_beside_them(name, num_rows, ratios):
  config = _load(name)
  rows = [
    {'way': way.label, 'block_efficiency': 2.0, 'speed_up': 2.0} | way.columns
    for way in ways.parse_all(config, ('small', 'medium', 'large'))
  ]
  beside = paper.beside(rows, config.paper)
  assert sum('paper' in row for row in beside) == num_rows
  claims = paper.claims(rows, config.paper)
  theirs = [claim['paper'] for claim in claims if claim['paper'] is not None]
  np.testing.assert_allclose(theirs, ratios, atol=1e-3)


def test_the_papers_latencies_have_cases_beside_them():
  config = _load('latency')
  rows = [
    {'model': model, 'length': length, 'batch_size': size, 'relative': 1.0}
    for model in config.model_names
    for length in config.lengths
    for size in config.batch_sizes
  ]
  assert all('paper' in row for row in paper.beside(rows, config.paper))
  assert len(paper.claims(rows, config.paper)) == 2


def test_drafts_are_drawn_as_lines_over_their_number():
  """A panel for each drafter, a line for each length and verifier."""
  rows = [
    {'prompts': 'all', 'domain': 'all', 'way': f'{drafter} {length} {drafts}'}
    | {'drafter': drafter, 'length': length, 'verifier': 'otm'}
    | {'drafts': drafts, 'decoded': 3, 'block_efficiency': 1.0 + drafts / 4}
    for drafter in ('small', 'large')
    for length in (4, 8)
    for drafts in (1, 2, 4)
  ]
  made = compare.figures(rows)
  assert list(made) == ['block_efficiency']
  panels = made['block_efficiency'].axes
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
  models = _load('lm1b_97m').models.to_dict()
  medium = models['medium']
  for name, factor in (('small', 1 / 2), ('large', 2)):
    for field in ('num_layers', 'd_model', 'd_ff', 'num_heads'):
      assert models[name][field] == factor * medium[field], (name, field)
  sizes = {
    name: adapters.num_params(
      config_lib.from_dict({'vocab_size': 16384, **fields})
    )
    for name, fields in models.items()
  }
  wanted = {'target': 97.5e6, 'large': 20.5e6, 'medium': 5.7e6, 'small': 2.3e6}
  assert sizes == pytest.approx(wanted, rel=0.01)
