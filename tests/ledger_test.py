"""The bias ledger: exact costs of over-acceptance along texts, by hand."""

import jax
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import theory
from specjax.testing import toys

EPSILONS = (0.0, 0.02, 0.3, 1.0)
STARTS, LENGTHS = [1, 2, 3], [6, 2, 9]


def by_hand(draft, target, epsilon):
  """Returns the rejection and three biases at one position, in float64."""
  accept = np.minimum(1, (target + epsilon) / draft)
  rejection = 1 - (accept * draft).sum()
  excess = np.maximum(target - draft, 0)
  replacements = excess / excess.sum(), target, draft
  outputs = [
    accept * draft + rejection * replacement for replacement in replacements
  ]
  return rejection, [0.5 * np.abs(output - target).sum() for output in outputs]


def texts(vocab_size):
  rng = np.random.default_rng(40)
  return rng.integers(vocab_size, size=(3, 10), dtype=np.int32)


def ledger(pair, tokens, sampling=sampling_lib.Sampling()):
  (target, target_params), (draft, draft_params) = pair
  params = target_params, draft_params
  return theory.ledger(
    target, draft, params, STARTS, LENGTHS, tokens, EPSILONS, sampling
  )


def summed(target, draft, tokens):
  """Returns the sums for tables `[..., V]` over all positions of every row."""
  rejection, biases = np.zeros((3, 4)), np.zeros((3, 4, 3))
  for row, (start, length) in enumerate(zip(STARTS, LENGTHS)):
    for position in range(start - 1, length - 1):
      for i, epsilon in enumerate(EPSILONS):
        terms = by_hand(draft[row, position], target[row, position], epsilon)
        rejection[row, i] += terms[0]
        biases[row, i] += terms[1]
  return rejection, biases


def test_of_tables_that_change_from_place_to_place():
  pair = [toys.markov(seed, 5, 12) for seed in (0, 1)]
  tokens = texts(5)
  result = ledger(pair, tokens)
  rows = [
    np.asarray(table, np.float64)[np.arange(10)[None], tokens]
    for _, table in pair
  ]
  rejection, biases = summed(*rows, tokens)
  assert result.num_tokens.tolist() == [5, 0, 6]
  np.testing.assert_allclose(result.rejection, rejection, atol=1e-5)
  np.testing.assert_allclose(result.bias, biases, atol=1e-5)
  # At epsilon 0 only the residual is lossless; if all are kept, none differs.
  assert not result.bias[:, 0, 0].round(5).any()
  assert (result.bias[[0, 2], 0, 1:] > 0.1).all()
  np.testing.assert_allclose(np.ptp(result.bias[:, -1], axis=1), 0, atol=1e-5)


@pytest.mark.parametrize('replacement', [1, 2])
def test_the_residual_costs_least(replacement):
  """Checks every epsilon; rejection and its bias sum to the distance."""
  pair = [toys.markov(seed, 5) for seed in (2, 3)]
  result = ledger(pair, texts(5))
  residual_bias, other_bias = result.bias[..., 0], result.bias[..., replacement]
  assert (other_bias[:, :2] >= residual_bias[:, :2]).all()
  assert (other_bias[[0, 2], 1] > residual_bias[[0, 2], 1] + 0.01).all()
  np.testing.assert_allclose(
    result.rejection + residual_bias,
    np.repeat(result.rejection[:, :1], 4, axis=1),
    atol=1e-5,
  )


def test_of_transformers_and_junk_behind_the_texts():
  """Checks that buffer contents past a text change nothing."""
  pair = toys.transformer(), toys.transformer(1, num_layers=1)
  sampling = sampling_lib.Sampling(temperature=0.8, top_k=20)
  tokens = texts(toys.VOCAB)
  probs = []
  for model, params in pair:
    logits = jax.jit(model.extend)(params, None, tokens).logits
    read = jax.jit(sampling_lib.probabilities, static_argnums=1)(
      logits, sampling
    )
    probs.append(np.asarray(read, np.float64))
  with np.errstate(divide='ignore', invalid='ignore'):
    probs[1] = np.maximum(probs[1], 1e-30)  # Tokens that are never drafted.
    rejection, biases = summed(*probs, tokens)
  result = ledger(pair, tokens, sampling)
  np.testing.assert_allclose(result.rejection, rejection, atol=1e-4)
  np.testing.assert_allclose(result.bias, biases, atol=1e-4)
  for row, length in enumerate(LENGTHS):
    tokens[row, length:] = 0
  cleared_result = ledger(pair, tokens, sampling)
  np.testing.assert_allclose(cleared_result.bias, result.bias, atol=1e-5)


def test_a_negative_epsilon_is_refused():
  with pytest.raises(ValueError, match=r'epsilons must be >= 0, got \(-0.1,'):
    theory.ledger(None, None, (), [1], [2], [[0, 0]], (-0.1, 0.2))
