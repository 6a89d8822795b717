"""Losses of rules on reference texts: formulas, lines, and one small run."""

import shutil

import jax
import matplotlib.image
import ml_collections
import numpy as np
import pytest

from experiments import main
from experiments.cascades import teacher_forced
from experiments.cascades import texts
from experiments.common import methods as methods_lib
import specjax
from specjax import families
from specjax import goals
from specjax import metrics
from specjax import verifiers
from specjax.data import examples as examples_lib
from specjax.testing import toys
from tests import goals_test
from tests.experiments import toy
from tests.verifiers import cactus_test

_VOCAB = 6
_RULES = ('bild', 2.0), ('chow', 0.5), ('diff', -0.1), ('opt', 0.2)
_RULES += ('opt_log', 0.1), ('token_v1', 0.1), ('token_v3', 0.3), ('lossy', 0.2)
_SHARE = 0.3  # Of lossy decoding with a fixed beta.
_DELTA, _EPSILON = 0.2, 0.05  # Of Cactus and of over-acceptance.
_TEXTS = (
  teacher_forced.Text([0, 1, 2, 3, 4, 5, 0, 2, 4, 1, 1, 3], 3),
  teacher_forced.Text([5, 4, 3], 1),
)


def _markov_setup(temperature):
  """Two Markov models; all rules, lossy decoding and lossless decoding."""
  config = ml_collections.ConfigDict(
    {'sampling': {'temperature': temperature}, 'methods': ('small:5',)}
  )
  target, small = (
    families.Model(None, *toys.markov(seed, _VOCAB)) for seed in (0, 1)
  )
  return teacher_forced.Setup(
    families.Family(None, target, {'small': small}, []),
    methods_lib.parse_all(config, ['small']),
    [
      *((goals.GOALS[name](alpha), None) for name, alpha in _RULES),
      (goals.Opt(-0.2), None),  # Shares the loop of the other threshold.
      (None, verifiers.Lossy(_SHARE)),
      (None, verifiers.Cactus(_DELTA)),
      (None, verifiers.OverAcceptance(_EPSILON)),
      (None, None),
    ],
    'small',
    5,
    {},
  )


def _expected_probs(target, draft, raw_target, raw_draft):
  """Yields the distributions `[T, V]` of the rules, by formulas in NumPy."""
  four = target, draft, raw_target, raw_draft
  for name, alpha in (*_RULES, ('opt', -0.2)):
    yield goals_test.formula(name, alpha, *four)[0]
  kept = np.minimum(draft, target / (1 - _SHARE))
  excess = np.maximum(target - draft, 0)
  rejected = 1 - kept.sum(1, keepdims=True)
  yield kept + rejected * excess / excess.sum(1, keepdims=True)
  yield np.stack(
    [cactus_test.token_probs(*rows, _DELTA) for rows in zip(draft, target)]
  )
  kept = np.minimum(draft, target + _EPSILON)
  rejected = 1 - kept.sum(1, keepdims=True)
  yield kept + rejected * excess / excess.sum(1, keepdims=True)
  yield target


@pytest.mark.parametrize('temperature', [1.0, 0.5])
def test_losses_of_markov_models_are_those_of_formulas(temperature):
  setup = _markov_setup(temperature)
  sums = teacher_forced.text_sums(setup, _TEXTS)
  assert sums['num_tokens'] == [9, 2]
  tables = [
    np.asarray(model.params, float) for model in setup.family.models.values()
  ]
  for (tokens, start), actual in zip(_TEXTS, sums['sums']):
    raw = [table[tokens[start - 1 : -1]] for table in tables]
    sampled = [probs ** (1 / temperature) for probs in raw]
    sampled = [probs / probs.sum(1, keepdims=True) for probs in sampled]
    for probs, row in zip(_expected_probs(*sampled, *raw), actual, strict=True):
      emitted = probs[range(len(probs)), tokens[start:]]
      rejections = np.maximum(probs - sampled[1], 0).sum()
      expected = (1 - emitted).sum(), -np.log(emitted).sum(), rejections
      np.testing.assert_allclose(row, expected, atol=1e-5)


def test_an_infinite_log_loss_is_none():
  setup = _markov_setup(0.0)
  # Over-acceptance is lossy even at temperature 0.
  is_one_hot = lambda rule: not isinstance(rule[1], verifiers.OverAcceptance)
  setup = setup._replace(rules=list(filter(is_one_hot, setup.rules)))
  sums = teacher_forced.text_sums(setup, _TEXTS)
  for row in np.array(sums['sums'], object).reshape(-1, 3):
    losses_01 = round(row[0], 5)
    assert losses_01 == int(losses_01)  # One-hots emit a token or do not.
    assert (row[1] is None) == (losses_01 > 0)


def _rows(points, num_tokens, means, num_resamples=200):
  """Returns rows from the mean loss and rejection of points, in each text."""
  sums = np.array(means, float) * np.array(num_tokens)[:, None, None]
  points = [
    {'method': label, 'alpha': alpha}
    for label, alpha in (('draft', 1.0), ('lossless', 0.0), *points)
  ]
  return teacher_forced.rows(
    points, np.array(num_tokens), sums, 1, num_resamples, seed=0
  )


def test_lines_by_hand():
  """Checks two equal texts with one draft: a round has 2 - rejection tokens.

  Lossy decoding's line has the points (0, 0.5), (0.1, 0.4) and (0.4, 0.2), and
  that of `good` crosses the target's loss of 0.2 at 0.15 rejections.
  """
  points = [('lossy', 0.3), ('fair', 0.1), ('good', 0.1), ('far', 0.1)]
  means = [
    *((0.5, 5.0, 0.0), (0.2, 2.0, 0.4), (0.4, 4.0, 0.1)),
    *((0.3, 4.0, 0.2), (0.1, 1.0, 0.2), (0.3, 3.0, 0.5)),
  ]
  rows = _rows(points, [10, 10], [means, means])
  by_label = {row['method']: row for row in rows if 'part' not in row}
  fair, far = by_label['fair'], by_label['far']
  assert fair['loss_01_over_lossy'] == pytest.approx(0.3 - 1 / 3)
  assert fair['log_loss_over_lossy'] == pytest.approx(4 - 10 / 3)
  assert fair['tokens_per_round'] == pytest.approx(1.8)
  assert far['loss_01_over_lossy'] is None
  assert far['loss_01_over_lossy_error'] is None
  assert 'loss_01_over_lossy' not in by_label['lossy']
  assert {row['tokens'] for row in rows} == {20}
  part = lambda name: {r['method']: r for r in rows if r.get('part') == name}
  equal, least = part('equal loss'), part('least loss')
  assert list(equal) == list(least) == ['lossy', 'fair', 'good', 'far']
  ratios = [row['ratio_to_lossy'] for row in equal.values()]
  assert ratios == pytest.approx([1, 1, 1.85 / 1.6, 1])
  assert equal['good']['rejection_rate'] == pytest.approx(0.15)
  assert least['good']['loss_01_over_target'] == pytest.approx(-0.1)
  assert least['good']['alpha'] == 0.1
  assert least['fair']['loss_01_over_target'] == 0
  errors = [
    value
    for row in rows
    for name, value in row.items()
    if name.endswith('_error') and value is not None
  ]
  assert np.allclose(errors, 0)


def test_errors_are_paired():
  """Compares them with those of ratios; 2,000 resamples have 2% of noise."""
  rng = np.random.default_rng(0)
  num_tokens = rng.integers(5, 50, 400)
  loss = rng.uniform(0.5, 0.9, 400)
  means = np.empty((400, 4, 3))
  for i, (shift, rejection) in enumerate(
    ((0.1, 0.0), (0.0, 0.4), (0.05, 0.2), (0.02, 0.2))
  ):
    means[:, i] = np.stack([loss + shift, loss, np.full(400, rejection)], 1)
  rows = _rows([('lossy', 0.3), ('rule', 0.1)], num_tokens, means, 2000)
  rule = rows[3]
  value, error = metrics.ratio(num_tokens * (loss + 0.02), num_tokens)
  assert rule['loss_01'] == pytest.approx(value)
  assert rule['loss_01_error'] == pytest.approx(error, rel=0.1)
  assert rule['loss_01_over_lossy'] == pytest.approx(-0.03)
  assert rule['loss_01_over_lossy_error'] == pytest.approx(0, abs=1e-9)


def test_a_point_with_an_infinite_loss_has_other_columns():
  means = [(0.5, 5.0, 0.0), (0.2, 2.0, 0.4), (0.4, np.nan, 0.1)]
  means += [(0.3, 4.0, 0.2)]
  rows = _rows([('lossy', 0.3), ('rule', 0.1)], [10, 10], [means, means])
  lossy, rule = rows[2:4]
  assert lossy['log_loss'] is lossy['log_loss_error'] is None
  assert rule['log_loss'] == 4 and rule['log_loss_over_lossy'] is None
  assert rule['loss_01_over_lossy'] == pytest.approx(0.3 - 1 / 3)


_METHODS = (
  {'arm': 'small:2~chow(1.0)', 'label': 'draft'},
  {'arm': 'small:2', 'label': 'lossless'},
  *(
    {'arm': arm.format(alpha), 'label': label, 'columns': {'alpha': alpha}}
    for label, arm in (
      ('lossy', 'small:2/lossy({})'),
      ('token_v3', 'small:2~token_v3({})'),
    )
    for alpha in (0.2, 0.6)
  ),
)
_RUN = {
  'methods': _METHODS,
  'domains': ('asks', 'math'),
  'texts_per_domain': 3,
  'max_length': toy.SIZES['max_length'],
  'num_resamples': 20,
}


def _config(family, changes):
  data = {'data_dir': str(family)}
  return toy.config('cascades/teacher_forced', family, data | _RUN | changes)


def test_a_run_resumes_and_agrees_with_whole_texts(family, tmp_path):
  config = _config(family, {})
  rows = toy.run(config, tmp_path)
  points = [row for row in rows if 'part' not in row]
  assert [row['method'] for row in points] == [m['label'] for m in _METHODS]
  losses = {'target': [], 'small': []}
  setup = teacher_forced.prepare(config)
  for text in [*setup.texts['asks'], *setup.texts['math']]:
    prompt, response = text.tokens[: text.start], text.tokens[text.start :]
    for name, values in losses.items():
      log_probs = toy.log_probs(setup.family.models[name], prompt, response)
      emitted = log_probs[range(len(response)), response]
      values += [1 - np.exp(emitted)]
  assert {row['texts'] for row in rows} == {6}
  for row, name in zip(points, ('small', 'target')):  # Draft and lossless.
    expected = np.concatenate(losses[name]).mean()
    assert row['loss_01'] == pytest.approx(expected, abs=1e-4)
  draft, lossless, *lines = points
  assert draft['rejection_rate'] == 0 and draft['tokens_per_round'] == 3
  assert all(
    row['rejection_rate'] < lossless['rejection_rate'] for row in lines[:2]
  )
  for name in ('loss_01', 'log_loss'):
    assert matplotlib.image.imread(tmp_path / f'{name}.png').std() > 0
  units = toy.units(tmp_path)
  assert len(units) == 2
  more = toy.run(_config(family, {'num_resamples': 40}), tmp_path)
  assert toy.units(tmp_path) == units
  for row, resumed_row in zip(points, more):
    assert resumed_row['loss_01'] == pytest.approx(row['loss_01'])


@pytest.mark.parametrize('name', ['eagle', 'eagle3'])
def test_a_head_predicts_a_token_from_what_precedes_it(family, tmp_path, name):
  """Compares with separate calls that do not receive later tokens."""
  folder = tmp_path / 'family'
  shutil.copytree(family, folder)
  toys.write_heads(folder, {name: name})
  loaded = families.load(folder / 'heads')
  head, target = loaded.drafters[name], loaded.target
  tokens, start = list(range(5, 17)), 4
  sampling = specjax.Sampling(0.5)
  probs = texts.head_probs(head, target, sampling, tokens, start)
  for t in range(start, len(tokens)):
    seen = np.array([tokens[:t]], np.int32)
    hidden_states = target.model.extend(target.params, None, seen).features
    fused = head.model.fuse(
      head.params, tuple(hidden_states[tap] for tap in head.model.taps)
    )
    outputs, _ = head.model.extend(
      head.params, None, seen[:, 1:], fused[:, :-1]
    )
    logits = head.model.predict(head.params, outputs[:, -1:])[0, 0]
    for actual, temperature in ((probs.raw, 1.0), (probs.processed, 0.5)):
      np.testing.assert_allclose(
        actual[t - start], jax.nn.softmax(logits / temperature), atol=1e-5
      )


def test_a_run_with_a_head(family, tmp_path):
  folder = tmp_path / 'family'
  shutil.copytree(family, folder)
  toys.write_heads(folder, {'eagle': 'eagle'})
  methods = [
    method | {'arm': method['arm'].replace('small', 'feature_head(eagle)')}
    for method in _METHODS
  ]
  config = toy.config(
    'cascades/teacher_forced',
    folder / 'heads',
    _RUN | {'data_dir': str(family), 'methods': tuple(methods)},
  )
  rows = toy.run(config, tmp_path / 'run')
  draft, lossless = rows[:2]
  assert draft['rejection_rate'] == 0 < lossless['rejection_rate'] < 1


def _replaced(arm):
  """Returns the methods of a run, the last of which has another arm."""
  return {'methods': (*_METHODS[:-1], _METHODS[-1] | {'arm': arm})}


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (_replaced('small:2~best(0.2)'), "Unknown goal 'best'. Known: bild, "),
    (_replaced('small:2~token_v3(2.0)'), 'alpha of TokenV3 must lie in'),
    (
      _replaced('small:2x2'),
      r'methods\[5\] must draft a chain .* got small:2x2',
    ),
    (_replaced('none'), r'methods\[5\] must draft a chain .* got none'),
    (
      _replaced('small:2/block'),
      'no verifier other than cactus, lossy, over_acceptance, got',
    ),
    (_replaced('small:3~opt(0.2)'), 'methods must share draft model, .* got 2'),
    (
      {'methods': _METHODS[1:]},
      "methods must include one with the label 'draft'",
    ),
    ({'num_resamples': 1}, 'num_resamples must be >= 2, got 1'),
    ({'texts_per_domain': 0}, 'texts_per_domain must be >= 1, got 0'),
    ({'domains': ('poems',)}, "Unknown domain 'poems'. Known: asks, "),
    ({'max_length': 2}, "max_length must leave room .* in 'asks', got 2"),
  ],
)
def test_the_config_is_checked_before_anything_is_measured(
  family, tmp_path, changes, message
):
  with pytest.raises(ValueError, match=message):
    main.run(_config(family, changes), tmp_path)
  assert not list(tmp_path.iterdir())


def test_missing_references_are_an_error(family, tmp_path):
  examples = [examples_lib.Example('talk', 'what is it?')]
  examples_lib.write(tmp_path / 'talk.eval.jsonl', examples)
  changes = {'data_dir': str(tmp_path), 'domains': ('talk',)}
  with pytest.raises(
    ValueError, match="examples with responses in data_dir, got none in 'talk'"
  ):
    teacher_forced.prepare(_config(family, changes))
