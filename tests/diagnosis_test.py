"""Diagnosis: runs agree with theory, and broken verifiers do not."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import base
from specjax import components
from specjax import decoding
from specjax import sampling as sampling_lib
from specjax import theory
from specjax import verifiers
from specjax.testing import toys

LENGTH, ROUNDS = 4, 40


def tables(kind):
  """Returns tables of a target, and of a draft halfway to another table."""
  table = toys.markov(0, 5, 9 if kind == 'changing' else None)[1]
  other_table = jnp.broadcast_to(toys.markov(1, 5)[1], table.shape)
  return table, 0.5 * (table + other_table)


@functools.cache
def decoder_of(kind, sampling=sampling_lib.Sampling(), **options):
  """Decoder, target and draft model; drafts of 4 tokens."""
  if kind == 'transformer':
    pair = toys.transformer(), toys.transformer(1, num_layers=1)
  else:
    model, _ = toys.markov(0, 5)
    pair = [(model, table) for table in tables(kind)]
  (target, target_params), (draft, draft_params) = pair
  decoder = decoding.speculative(
    target,
    target_params,
    draft,
    draft_params,
    draft_length=LENGTH,
    sampling=sampling,
    max_length=48,
    **options,
  )
  return decoder, target, draft


def diagnose(parts, prompts, limits, sampling=sampling_lib.Sampling(), seed=30):
  """Diagnoses a whole run of at most `ROUNDS`; also returns its results."""
  decoder, target, draft = parts
  state = decoder.init(prompts, limits, seed=seed)
  start = np.array(state.lengths)
  state, infos = decoding.trace(decoder.round_fn, decoder.params, state, ROUNDS)
  assert state.done.all()
  diagnosis = theory.diagnose(
    target, draft, decoder.params, start, state.tokens, infos, sampling
  )
  return diagnosis, decoder.results(prompts, state)


def prompts_of(num):
  return [[row % 5, *[1] * (row % 3)] for row in range(num)]


def standardized_deviations(diagnosis):
  """Returns each row's deviation, as if the row were a run."""
  return (diagnosis.num_rejections - diagnosis.predicted_rejections) / np.sqrt(
    diagnosis.variance
  )


@pytest.mark.parametrize(
  ('kind', 'sampling'),
  [
    pytest.param('stationary', sampling_lib.Sampling(), marks=pytest.mark.slow),
    ('changing', sampling_lib.Sampling(temperature=0.7, top_p=0.9)),
    pytest.param(
      'transformer',
      sampling_lib.Sampling(temperature=1.5, top_k=8),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_honest_runs_agree_with_theory(kind, sampling):
  """Diagnoses all rows together, and 200 rows as 200 small runs.

  The standard error of their mean is 0.07, so that a shift by half an error per
  row fails with probability 0.99. The error of the variance is about 0.1, so
  that a variance of 1.6 fails with a similar probability.
  """
  parts = decoder_of(kind, sampling)
  diagnosis, results = diagnose(parts, prompts_of(200), 40, sampling)
  assert abs(diagnosis.deviation) < 3 and not diagnosis.flagged
  low, high = diagnosis.interval
  assert low < diagnosis.num_rejections.sum() < high
  deviations = standardized_deviations(diagnosis)
  assert abs(deviations.mean()) < 0.25
  assert abs(deviations.var() - 1) < 0.35
  # Every accepted or rejected draft was tested.
  kept = [result.accepted.sum() for result in results]
  np.testing.assert_array_equal(
    diagnosis.num_tests - diagnosis.num_rejections, kept
  )


@components.component
class Timid(base.Coupling):
  """Lossless, but accepts with half the probability."""

  def __call__(self, key, candidates, active, draft, target):
    num_draw = sampling_lib.num_uniforms(target.shape[0])
    uniforms = jax.random.uniform(key, (1 + num_draw,))
    candidate = candidates[jnp.argmax(active)]
    bar = 2 * uniforms[0] * draft[candidate]
    keep = active.any() & (uniforms[0] < 0.5) & (bar < target[candidate])
    residual = target - 0.5 * jnp.minimum(draft, target)
    residual = jnp.where(active.any(), residual, target)
    residual_token = sampling_lib.draw(uniforms[1:], residual)
    return jnp.where(keep, candidate, residual_token), keep


@pytest.mark.parametrize(
  ('verifier', 'sign'),
  [
    pytest.param(verifiers.OverAcceptance(0.3), -1, marks=pytest.mark.slow),
    (verifiers.OverAcceptance(0.3, 'target'), -1),
    (verifiers.TreeWalk(Timid()), 1),
  ],
  ids=['over-acceptance', 'with target samples', 'timid'],
)
def test_broken_verifiers_are_flagged(verifier, sign):
  """Covers a verifier that only wastes drafts and samples correctly."""
  parts = decoder_of('stationary', verifier=verifier)
  diagnosis, _ = diagnose(parts, prompts_of(200), 40)
  assert diagnosis.flagged
  assert sign * diagnosis.deviation > 6


def test_a_diagnosis_for_another_sampling_is_flagged():
  """Diagnoses a correct run with a sampling that it did not use."""
  parts = decoder_of('stationary')
  diagnosis, _ = diagnose(
    parts, prompts_of(200), 40, sampling_lib.Sampling(0.5)
  )
  assert diagnosis.flagged


def test_cut_rounds_do_not_bias_the_diagnosis():
  """Runs 1000 rows of 1 to 6 tokens with a stop token that most rows reach.

  At least every third row ends with an accepted draft. If its last token
  counted as a correction, the run would be flagged.
  """
  parts = decoder_of('stationary', stop_tokens=(3,))
  limits = [1 + row % 6 for row in range(1000)]
  diagnosis, results = diagnose(parts, prompts_of(1000), limits)
  assert abs(diagnosis.deviation) < 3
  assert abs(standardized_deviations(diagnosis).mean()) < 0.15
  stopped = [result.tokens[-1] == 3 for result in results]
  assert 0.2 < np.mean(stopped) < 0.8
  emitted = np.array([len(result.tokens) for result in results])
  rounds = np.array([result.rounds for result in results])
  kept = np.array([result.accepted.sum() for result in results])
  np.testing.assert_array_equal(
    diagnosis.num_tests - diagnosis.num_rejections, kept
  )
  cut = emitted == kept + rounds - 1
  assert cut.mean() > 0.3
  assert (diagnosis.num_rejections[cut] <= rounds[cut] - 1).all()
  wrong = diagnosis._replace(
    num_rejections=rounds
  )  # As if each round ended by a rejection.
  assert wrong.flagged


@pytest.mark.parametrize('prompt', [[0], [2, 1], [4, 4, 4]])
def test_counts_are_those_of_the_stream(prompt):
  """Compares the tests and the distances of the models token by token."""
  decoder, *_ = parts = decoder_of('changing', stop_tokens=(3,))
  target, draft = (
    np.asarray(table, np.float64) for table in tables('changing')
  )
  diagnosis, (result,) = diagnose(parts, [prompt], 30, seed=31)
  text, distances, origins = list(prompt), [], []
  for piece in (p for ps in decoder.stream(prompt, 30, seed=31) for p in ps):
    origins.append(piece.origin)
    if piece.origin in ('accepted', 'corrected'):
      position = min(len(text) - 1, len(target) - 1)
      gap = target[position, text[-1]] - draft[position, text[-1]]
      distances.append(np.abs(gap).sum() / 2)
    text.append(piece.token)
  distances = np.array(distances)
  assert text[len(prompt) :] == result.tokens
  assert diagnosis.num_tests == [len(distances)]
  assert diagnosis.num_rejections == [origins.count('corrected')]
  np.testing.assert_allclose(
    diagnosis.predicted_rejections, [distances.sum()], rtol=1e-5
  )
  variance = (distances * (1 - distances)).sum()
  np.testing.assert_allclose(diagnosis.variance, [variance], rtol=1e-5)
  error = math.sqrt(variance)
  assert diagnosis.deviation == pytest.approx(
    (origins.count('corrected') - distances.sum()) / error, abs=1e-4
  )
  np.testing.assert_allclose(
    diagnosis.interval,
    [distances.sum() - 3 * error, distances.sum() + 3 * error],
    rtol=1e-4,
  )


def test_bonus_tokens_are_not_tested():
  """Uses equal models: all drafts pass, and each round adds a bonus token."""
  model, params = toys.markov(0, 5)
  decoder = decoding.speculative(
    model, params, model, params, draft_length=LENGTH, max_length=48
  )
  diagnosis, results = diagnose((decoder, model, model), prompts_of(200), 40)
  assert (diagnosis.num_tests == 32).all()
  assert not diagnosis.num_rejections.any()
  np.testing.assert_allclose(diagnosis.predicted_rejections, 0, atol=1e-5)
  assert [result.rounds for result in results] == [8] * 200
  assert not diagnosis.flagged


def test_without_variance_any_excess_is_flagged():
  """Uses greedy runs, whose rejections are predicted exactly."""
  sampling = sampling_lib.Sampling(0.0)
  parts = decoder_of('changing', sampling)
  diagnosis, _ = diagnose(parts, prompts_of(4), 30, sampling)
  np.testing.assert_array_equal(
    diagnosis.num_rejections, diagnosis.predicted_rejections
  )
  assert diagnosis.num_rejections.sum() and not diagnosis.variance.any()
  assert diagnosis.deviation == 0 and not diagnosis.flagged
  higher, lower = (
    diagnosis._replace(num_rejections=diagnosis.num_rejections + change)
    for change in (1, -1)
  )
  assert higher.flagged and lower.flagged


def test_several_arms_are_refused():
  decoder, target, draft = decoder_of('stationary')
  several = decoder.params._replace(drafters=decoder.params.drafters * 2)
  with pytest.raises(ValueError, match='a trace of one arm, got 2'):
    theory.diagnose(target, draft, several, None, None, None)
