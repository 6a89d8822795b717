"""The router, against another minimizer and by hand."""

import jax
import numpy as np
import pytest
from scipy import optimize
from scipy import special

from experiments.metasd import routing
import specjax
from specjax.testing import toys
from tests import arms

VOCAB = 60


def _labelled(count, domain_share, seed):
  """Draws prompts of 3 domains, whose tokens are the domain's 10 or any."""
  draw = np.random.default_rng(seed)
  labels = draw.integers(0, 3, count)
  prompts = []
  for label in labels:
    tokens = draw.integers(0, VOCAB, draw.integers(5, 40))
    is_domain_token = draw.random(len(tokens)) < domain_share
    prompts.append(
      np.where(is_domain_token, 10 * label + tokens % 10, tokens).tolist()
    )
  return prompts, labels


def _accuracy(router, prompts, labels):
  return np.mean(routing.route(router, prompts) == labels)


@pytest.mark.parametrize(
  'domain_share, low, high', [(0.5, 0.97, 1.0), (0.0, 0.25, 0.41)]
)
def test_prompts_not_seen_are_routed_by_what_tells_them_apart(
  domain_share, low, high
):
  """Bounds the accuracy on 600 prompts by 4 standard errors; chance is 1/3."""
  router = routing.fit(*_labelled(300, domain_share, 0), 3, VOCAB)
  assert low <= _accuracy(router, *_labelled(600, domain_share, 1)) <= high


@pytest.mark.parametrize('l2', [0.01, 0.1])
def test_the_minimum_is_the_one_another_solver_finds(l2):
  """Minimizes another form of the loss in float64; the bias has no penalty."""
  prompts, labels = _labelled(80, 0.3, 2)
  labels[:40] = 0  # So that the bias matters.
  features = np.zeros((80, VOCAB))
  for row, prompt in zip(features, prompts):
    row[:] = np.log(1 + np.bincount(prompt, minlength=VOCAB))
    row /= np.sqrt(np.sum(row**2))

  def loss(flat):
    weights, bias = flat[3:].reshape(VOCAB, 3), flat[:3]
    scores = features @ weights + bias
    losses = special.logsumexp(scores, axis=1) - scores[np.arange(80), labels]
    errors = (special.softmax(scores, axis=1) - np.eye(3)[labels]) / 80
    slope = features.T @ errors + l2 * weights
    value = losses.mean() + l2 / 2 * np.sum(weights**2)
    return value, np.append(errors.sum(axis=0), slope)

  expected = optimize.minimize(
    loss, np.zeros(3 * VOCAB + 3), jac=True, options={'gtol': 1e-9}
  ).x
  router = routing.fit(prompts, labels, 3, VOCAB, l2=l2)
  np.testing.assert_allclose(router.bias, expected[:3], atol=2e-3)
  np.testing.assert_allclose(router.weights.ravel(), expected[3:], atol=2e-3)


def test_a_prompt_counts_by_the_logs_of_its_counts():
  """Checks counts 3 and 1: log features 2 to 1, scores 1 / sqrt(5) apart."""
  prompts = [[0, 1, 0, 0]]
  for bias, arm in ((0.44, 0), (0.46, 1)):
    router = routing.Router(np.eye(2), np.array([0, bias]))
    routed_arms = routing.route(router, prompts)
    assert routed_arms.dtype == np.int32 and routed_arms.tolist() == [arm]
  assert routing.route(router, []).shape == (0,)


def test_a_decoder_plays_the_routed_arms():
  model = toys.markov(0, toys.VOCAB)
  chains = [arms.chain(length, draft=model) for length in (1, 2, 3)]
  decoder = arms.decoder(*chains, bandit='fixed', target=model, per_row=True)
  prompts = [[7, 7], [1, 2], [20], [2]]
  weights = np.zeros((toys.VOCAB, 3))
  weights[[7, 1, 2, 20], [2, 0, 0, 1]] = 1
  arm = routing.route(routing.Router(weights, np.zeros(3)), prompts)
  start = decoder.init(prompts, 20, bandit_state=arm)
  _, infos = specjax.trace(decoder.round_fn, decoder.params, start, 4)
  np.testing.assert_array_equal(jax.device_get(infos.arm), [[2, 0, 1, 0]] * 4)


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'prompts': [[0], [1]]}, 'the same length, got 2 and 3'),
    ({'prompts': [], 'labels': []}, r'all of 0, ..., 1, got \[\]'),
    ({'prompts': [[0], [1], []]}, r'prompts\[2\] must not be empty'),
    ({'labels': [0, 0, 0]}, r'all of 0, ..., 1, got \[0\]'),
    ({'labels': [0, 1, 2]}, r'labels must .*, got \[0, 1, 2\]'),
    ({'labels': [0, 1, -1]}, r'labels must .*, got \[-1, 0, 1\]'),
    ({'labels': [0, 1, 0.5]}, r'labels must .*, got \[0.0, 0.5, 1.0\]'),
    (
      {'prompts': [[0], [1, 4], [2]]},
      r'prompts\[1\] .* \[0, 3\], got \[1, 4\]',
    ),
    ({'prompts': [[0], [-1], [2]]}, r'prompts\[1\] .* got \[-1\]'),
  ],
)
def test_bad_arguments_are_named(changes, message):
  arguments = {
    'prompts': [[0], [1], [2]],
    'labels': [0, 1, 0],
    'num_labels': 2,
    'vocab_size': 4,
  }
  with pytest.raises(ValueError, match=message):
    routing.fit(**arguments | changes)


def test_a_token_that_the_router_does_not_know_raises():
  router = routing.Router(np.zeros((4, 2)), np.zeros(2))
  with pytest.raises(ValueError, match=r'prompts\[1\] .* \[0, 3\]'):
    routing.route(router, [[0], [4]])
