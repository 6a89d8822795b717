"""The adapter's own work: what it does around the module."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.contrib import encoder_decoder_config
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.models import heads
from tests import tiers


@pytest.mark.parametrize(
  ('d_model', 'd_ff', 'tie_embeddings'),
  tiers.cases(
    [(64, 64, False), (64, 64, True), (66, 63, False), (66, 63, True)],
    (64, 64, True),
  ),
)
def test_one_token_calls_equal_one_call(d_model, d_ff, tie_embeddings):
  """Kernels whose products of one row are sums of parts, and others."""
  vocab_size = 50
  config = config_lib.TransformerConfig(
    vocab_size=vocab_size,
    num_layers=2,
    d_model=d_model,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    d_ff=d_ff,
    sliding_window=3,
    local_layers=(True, False),
    tie_embeddings=tie_embeddings,
  )
  model = adapters.Transformer(config)
  params = flax_modules.init_params(jax.random.key(0), config)
  tokens = jax.random.randint(jax.random.key(1), (1, 6), 0, vocab_size)
  cache = model.init_cache(params, 1, 16)
  extend = jax.jit(model.extend)
  full_output = extend(params, cache, tokens)
  pending = None
  for t in range(6):
    step = extend(params, cache, tokens[:, t : t + 1], pending_kv=pending)
    pending = step.pending_kv
    assert step.logits.shape == (1, 1, vocab_size)
    np.testing.assert_allclose(
      step.logits[:, 0], full_output.logits[:, t], rtol=1e-4, atol=1e-5
    )
  jax.tree.map(
    lambda actual, expected: np.testing.assert_allclose(
      actual, expected, atol=1e-5
    ),
    pending,
    full_output.pending_kv,
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
  assert flax_modules.num_params(config) > 2**40
  assert adapters.language_model(config).vocab_size == 1 << 24


def test_models_of_equal_configs_are_traced_once(monkeypatch):
  """What is kept of a config is not what callers may change."""
  make = functools.partial(config_lib.TransformerConfig, 7, 1, 8, 1, 1, 8, 8)
  flax_modules.abstract_params(make()).clear()
  params = flax_modules.init_params(jax.random.key(0), make())
  flax_modules.merge(make(), params)
  monkeypatch.setattr(flax_modules, '_MODULES', {})  # None can be traced.
  assert 'embedding' in flax_modules.abstract_params(make())
  flax_modules.merge(make(), params, 'float32')
  with pytest.raises(KeyError):
    flax_modules.merge(make(), params, 'bfloat16')


_WIDE = config_lib.TransformerConfig(
  vocab_size=32,
  num_layers=1,
  d_model=256,
  num_heads=4,
  num_kv_heads=2,
  head_dim=16,
  d_ff=4096,
)


def _one_token(dtype):
  """A call of one token, traced."""
  model = adapters.Transformer(_WIDE, dtype)
  params = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype),
    flax_modules.abstract_params(_WIDE),
  )
  shapes = params, jax.ShapeDtypeStruct((1, 1), int)
  return jax.jit(lambda p, x: model.extend(p, None, x).logits).trace(*shapes)


def test_products_of_one_row_are_split_in_programs_for_a_cpu_alone():
  traced = _one_token(jnp.float32)
  for platform in 'cpu', 'tpu', 'cuda':
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert ('tensor<4x64x4096xf32>' in text) == (platform == 'cpu')


def test_bfloat16_kernels_are_not_copied_to_float32():
  compiled = _one_token(jnp.bfloat16).lower().compile()
  in_float32 = 4 * _WIDE.d_model * _WIDE.d_ff
  assert compiled.memory_analysis().temp_size_in_bytes < in_float32


def test_names_of_parameters_are_text():
  """`jax.export` writes no others."""
  target = config_lib.TransformerConfig(11, 2, 8, 2, 1, 4, 12)
  configs: list[flax_modules.AnyConfig] = [
    target,
    encoder_decoder_config.EncoderDecoderConfig(
      11, 1, 1, 8, 2, 4, 12, start_id=0
    ),
    heads.configure('eagle', target),
    heads.configure('eagle3', target, norm_taps=True),
    heads.configure('medusa', target, own_heads=True),
    heads.configure('dflash', target, num_layers=2, markov_rank=2),
  ]
  for config in configs:
    params = flax_modules.abstract_params(config)
    paths, _ = jax.tree_util.tree_flatten_with_path(params)
    assert all(isinstance(key.key, str) for path, _ in paths for key in path)
