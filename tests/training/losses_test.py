import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import models
from specjax.data import packing
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.training import losses

_CONFIG = config_lib.TransformerConfig(
  vocab_size=11,
  num_layers=1,
  d_model=8,
  num_heads=2,
  num_kv_heads=1,
  head_dim=4,
  d_ff=12,
)
_SEQUENCES = [([3, 1, 4, 1], 1), ([9, 2, 6, 5], 2), ([5, 3, 5, 8, 9, 7, 9], 3)]


@pytest.fixture(scope='module', name='transformer')
def _transformer():
  """A model with weights large enough that its logits differ by several."""
  params = adapters.init_params(jax.random.key(0), _CONFIG)
  params = jax.tree.map(
    lambda x: 12 * x if x.ndim > 1 else x, jax.device_get(params)
  )
  return adapters.Transformer(_CONFIG), params


_logits_of = jax.jit(adapters.packed_logits, static_argnums=0)
_KEY = jax.random.key(0)
_MARKOV = functools.partial(adapters.packed_logits, models.Markov(7))
_CROSS_ENTROPY = jax.jit(losses.cross_entropy(_MARKOV))
_DISTILLATION = jax.jit(losses.distillation(_MARKOV, _MARKOV))


def _packed():
  """Rows of 12: some hold two examples, all end with padding."""
  batch = packing.pack(_SEQUENCES, row_length=12, seed=0)
  assert len(batch.tokens) == 2 and (batch.segments[:, -1] == -1).all()
  return batch


def _table(seed, vocab_size=7):
  """A strictly positive table of transition probabilities."""
  draw = np.random.default_rng(seed)
  return draw.dirichlet(np.ones(vocab_size), vocab_size).astype(np.float32)


def _markov_batch():
  draw = np.random.default_rng(1)
  sequences = [
    (draw.integers(0, 7, length).tolist(), start)
    for length, start in [(5, 1), (8, 3), (3, 2), (6, 5)]
  ]
  return packing.pack(sequences, row_length=12, seed=0)


def _log_softmax(logits):
  logits = np.asarray(logits, np.float64)
  logits = logits - logits.max(-1, keepdims=True)
  return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def _predicted(batch):
  """Yields `(token, next token)` at every weighted place."""
  for row, t in np.argwhere(batch.weights):
    yield batch.tokens[row, t], batch.tokens[row, t + 1]


def test_token_losses_equal_the_formula_also_for_large_logits():
  draw = np.random.default_rng(0)
  logits = draw.normal(size=(2, 6, 5)) * np.array([1, 1000])[:, None, None]
  tokens = draw.integers(0, 5, (2, 6)).astype(np.int32)
  got = jax.jit(losses.token_losses)(np.float32(logits), tokens)
  expected = -np.take_along_axis(
    _log_softmax(logits)[:, :-1], tokens[:, 1:, None], axis=-1
  )
  np.testing.assert_allclose(
    got[:, :-1], expected[..., 0], rtol=1e-5, atol=1e-3
  )
  np.testing.assert_array_equal(got[:, -1], 0)


def test_a_packed_example_has_the_losses_that_it_has_alone(transformer):
  """The oracle scores each as a plain chain, without mask or padding."""
  model, params = transformer
  chain = jax.jit(lambda tokens: model.extend(params, None, tokens).logits)
  losses_of_examples = []
  for tokens, start in _SEQUENCES:
    log_probs = _log_softmax(chain(jnp.asarray([tokens]))[0])
    losses_of_examples += [
      -log_probs[t - 1, tokens[t]] for t in range(start, len(tokens))
    ]
  assert np.ptp(losses_of_examples) > 1
  batch = _packed()
  logits = _logits_of(model, params, batch)
  packed = jax.jit(losses.token_losses)(logits, batch.tokens)
  packed = np.asarray(packed)[batch.weights > 0]
  np.testing.assert_allclose(
    np.sort(packed), np.sort(losses_of_examples), rtol=1e-5, atol=1e-5
  )


def test_segments_do_not_see_each_other(transformer):
  """Another example in its place leaves the neighbours' logits bit for bit."""
  model, params = transformer
  batch = _packed()
  logits = _logits_of(model, params, batch)
  for row, segment in ((0, 0), (0, 1), (1, 0), (1, 1)):
    inside = batch.segments == segment
    inside[1 - row] = False
    tokens = np.where(inside, (batch.tokens + 1) % 11, batch.tokens)
    other = _logits_of(model, params, batch._replace(tokens=tokens))
    moved = (np.asarray(logits) != np.asarray(other)).any(-1)
    np.testing.assert_array_equal(moved, inside)


def test_cross_entropy_is_the_mean_over_predicted_tokens():
  table, batch = _table(0), _markov_batch()
  loss, _ = _CROSS_ENTROPY(table, None, batch, _KEY)
  expected = np.mean([-np.log(table[x, y]) for x, y in _predicted(batch)])
  np.testing.assert_allclose(loss, expected, rtol=1e-6)


def test_distillation_equals_the_formulas():
  """KL(target || draft), which is not KL(draft || target)."""
  target, draft, batch = _table(0), _table(1), _markov_batch()
  loss, metrics = _DISTILLATION(draft, target, batch, _KEY)
  divergence = (target * np.log(target / draft)).sum(-1)
  reverse = (draft * np.log(draft / target)).sum(-1)
  overlap = np.minimum(target, draft).sum(-1)
  mean = lambda values: np.mean([values[x] for x, _ in _predicted(batch)])
  np.testing.assert_allclose(loss, mean(divergence), rtol=1e-5)
  assert abs(loss - mean(reverse)) > 0.01
  assert metrics['loss'] == loss
  np.testing.assert_allclose(metrics['acceptance'], mean(overlap), rtol=1e-5)


def test_a_draft_equal_to_its_target_diverges_nowhere():
  loss, metrics = _DISTILLATION(_table(0), _table(0), _markov_batch(), _KEY)
  assert loss == 0
  np.testing.assert_allclose(metrics['acceptance'], 1, rtol=1e-6)


def test_the_target_is_not_trained():
  target, draft, batch = _table(0), _table(1), _markov_batch()
  gradient = jax.grad(_DISTILLATION, argnums=(0, 1), has_aux=True)
  gradients, _ = jax.jit(gradient)(draft, target, batch, _KEY)
  assert np.abs(gradients[0]).max() > 0.01
  np.testing.assert_array_equal(gradients[1], 0)


def test_a_batch_without_predicted_tokens_has_no_loss():
  """Such as a row that holds nothing but a prompt that was cut off."""
  batch = _markov_batch()
  batch = batch._replace(weights=np.zeros_like(batch.weights))
  assert _CROSS_ENTROPY(_table(0), None, batch, _KEY)[0] == 0
  assert _DISTILLATION(_table(0), _table(1), batch, _KEY)[0] == 0
