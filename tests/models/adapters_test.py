"""The adapter's own work: what it does around the module."""

import jax
import numpy as np
import pytest

from specjax.models import adapters
from specjax.models import config as config_lib


@pytest.mark.slow
@pytest.mark.parametrize('vocab_size', [50, 80_000])
def test_one_token_calls_equal_one_call(vocab_size):
  """A model on either side of the size from which a lone token is widened."""
  config = config_lib.TransformerConfig(
    vocab_size=vocab_size,
    num_layers=2,
    d_model=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    d_ff=64,
    sliding_window=3,
    local_layers=(True, False),
  )
  wide = adapters._WIDENED.start <= adapters.num_params(config)
  assert wide == (vocab_size > 50)
  model = adapters.transformer(config)
  params = adapters.init_params(jax.random.key(0), config)
  tokens = jax.random.randint(jax.random.key(1), (1, 6), 0, vocab_size)
  cache = model.init_cache(params, 1, 16)
  whole = model.extend(params, cache, tokens)
  pending = None
  for t in range(6):
    step = model.extend(params, cache, tokens[:, t : t + 1], pending=pending)
    pending = step.pending
    assert step.logits.shape == (1, 1, vocab_size)
    np.testing.assert_allclose(
      step.logits[:, 0], whole.logits[:, t], rtol=1e-4, atol=1e-5
    )
  jax.tree.map(
    lambda one, other: np.testing.assert_allclose(one, other, atol=1e-5),
    pending,
    whole.pending,
  )


def test_building_a_model_computes_no_parameters():
  """Of the 10^12 that this one has, no machine could."""
  config = config_lib.TransformerConfig(
    vocab_size=1 << 24,
    num_layers=1,
    d_model=1 << 16,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    d_ff=64,
  )
  assert adapters.num_params(config) > 2**40
  assert adapters.language_model(config).vocab_size == 1 << 24


def test_a_lone_token_is_widened_in_programs_for_a_cpu_alone():
  config = config_lib.TransformerConfig(
    vocab_size=80_000,
    num_layers=1,
    d_model=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    d_ff=48,
  )
  assert adapters.num_params(config) in adapters._WIDENED
  model = adapters.transformer(config)
  shapes = adapters.abstract_params(config), jax.ShapeDtypeStruct((1, 1), int)
  traced = jax.jit(lambda p, x: model.extend(p, None, x).logits).trace(*shapes)
  for platform, rows in (('cpu', 2), ('tpu', 1), ('cuda', 1)):
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert f'tensor<1x{rows}x48xf32>' in text
    assert f'tensor<1x{3 - rows}x48xf32>' not in text
