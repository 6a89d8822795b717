"""Transposed copies of kernels, with which CPUs multiply a few rows."""

import dataclasses
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import drafters as drafters_lib
from specjax import trees
from specjax.compilation import programs
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.models import fusion
from specjax.models import heads
from specjax.models import transposes
from tests import arms
from tests import tiers

# Some of its kernels are large enough for copies, and others are not.
_CONFIG = config_lib.TransformerConfig(
  vocab_size=48,
  num_layers=2,
  d_model=256,
  num_heads=4,
  num_kv_heads=1,
  head_dim=64,
  d_ff=512,
  mlp_bias=True,
  tie_embeddings=False,
)
_MODEL = adapters.Transformer(_CONFIG)


@pytest.fixture(scope='module', name='params')
def _params():
  params = flax_modules.init_params(jax.random.key(0), _CONFIG)
  # Biases begin with zeros.
  return jax.tree.map(lambda leaf: leaf + 0.01, params)


def _extend(params, tokens):
  return _MODEL.extend(params, None, tokens).logits


def _copies(params):
  return [path[-1] for path in sorted(transposes.paths(params))]


@pytest.mark.parametrize(
  'num_rows', tiers.cases([2, 3, 4, 5, 7, 8, 9, 16, 31, 32], 3, 5)
)
@pytest.mark.parametrize(
  'num_inputs, num_outputs',
  [
    pytest.param(300, 500, id='short sums'),
    pytest.param(300, 501, id='an odd number of outputs'),
    pytest.param(1100, 130, id='long sums'),
  ],
)
def test_a_product_of_a_few_rows_is_the_product(
  num_rows, num_inputs, num_outputs
):
  rng = np.random.default_rng(num_rows)
  x, kernel = (
    rng.normal(size=shape).astype(np.float32)
    for shape in ((num_rows, num_inputs), (num_inputs, num_outputs))
  )
  assert transposes.is_faster(num_rows, kernel)
  product = jax.jit(transposes.multiply)(x, kernel.T)
  np.testing.assert_allclose(product, x @ kernel, rtol=1e-3, atol=1e-3)


def test_one_row_and_many_rows_and_small_kernels_have_none():
  large = jax.ShapeDtypeStruct((300, 500), jnp.float32)
  assert transposes.is_faster(32, large)
  assert not transposes.is_faster(1, large)
  assert not transposes.is_faster(33, large)
  assert not transposes.is_faster(8, large.update(dtype=jnp.bfloat16))
  assert not transposes.is_faster(8, large.update(shape=(30, 500)))


def test_large_kernels_get_copies_and_others_do_not(params):
  added = transposes.add(params)
  assert _copies(added) == ['down', 'gate', 'up'] * 2
  layer = added['layers']['1']['feed_forward']['up']
  np.testing.assert_array_equal(layer['transposed'], layer['kernel'].T)
  assert _copies(params) == []  # The argument is not modified.
  same = transposes.remove(added)
  assert jax.tree.structure(same) == jax.tree.structure(params)
  assert transposes.add(same['final_norm']) is same['final_norm']
  assert programs.weight_bytes(added) == programs.weight_bytes(params)
  halved = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
  assert _copies(transposes.add(halved)) == []


def test_a_model_with_copies_computes_the_same(params):
  tokens = np.random.default_rng(1).integers(48, size=(2, 3))
  added = transposes.add(params)
  logits, expected = (jax.jit(_extend)(p, tokens) for p in (added, params))
  np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
  wrong = jax.tree.map(lambda leaf: leaf, added)
  wrong['layers']['0']['feed_forward']['up']['transposed'] *= 2
  assert np.abs(jax.jit(_extend)(wrong, tokens) - expected).max() > 1e-3
  # One token is multiplied by the kernels themselves.
  one, expected = (jax.jit(_extend)(p, tokens[:1, :1]) for p in (wrong, params))
  np.testing.assert_array_equal(one, expected)


def test_decoders_share_copies_which_their_kernels_outlive():
  params = flax_modules.init_params(jax.random.key(1), _CONFIG)
  before = len(transposes._copies)
  first, second = (
    specjax.speculative(_MODEL, params, None).params for _ in range(2)
  )
  up = lambda p: p.target['layers']['0']['feed_forward']['up']
  assert up(first)['transposed'] is up(second)['transposed']
  drafter = drafters_lib.Autoregressive(_MODEL, trees.chain(1))
  twice = [arms.arm(drafter, params, 'maximal')] * 2
  drafters = specjax.Decoder(_MODEL, params, twice).params.drafters
  assert drafters[0] is drafters[1]
  assert len(transposes._copies) == before + 6
  del first, second, params, twice, drafters
  gc.collect()
  assert len(transposes._copies) == before


def test_a_head_shares_the_copies_of_its_target(params):
  config = heads.configure('eagle', _CONFIG)
  head_params = heads.begin(jax.random.key(2), config, _CONFIG, params)
  decoder = specjax.speculative(
    _MODEL,
    params,
    heads.head(config),
    head_params,
    tree=trees.chain(3),
    sampling=arms.GREEDY,
    max_length=64,
  )
  assert _copies(decoder.params.drafters[0]) == ['join', 'down', 'gate', 'up']
  plain = specjax.speculative(
    _MODEL, params, None, sampling=arms.GREEDY, max_length=64
  )
  prompts = [[1, 2, 3, 4, 5]]
  results = [d.decode(prompts, 20) for d in (decoder, plain)]
  assert arms.tokens(results[0]) == arms.tokens(results[1])


def test_a_tied_output_head_needs_no_copy():
  config = dataclasses.replace(_CONFIG, vocab_size=512, tie_embeddings=True)
  params = flax_modules.init_params(jax.random.key(3), config)
  model = adapters.Transformer(config)
  tokens = np.arange(6)[None]
  extend = lambda tokens: model.extend(params, None, tokens)
  output = jax.jit(extend)(tokens)
  table = np.asarray(params['embedding']['embedding'])
  np.testing.assert_allclose(
    output.logits, output.features[-1] @ table.T, rtol=1e-4, atol=1e-5
  )


def test_fused_kernels_get_copies(params):
  """Not on a device that exists, but the names must not clash."""
  fused = fusion.fuse(_CONFIG, jax.tree.map(jnp.copy, params))
  added = transposes.add(fused)
  tokens = np.arange(5)[None]
  np.testing.assert_allclose(
    _extend(added, tokens), _extend(params, tokens), rtol=1e-4, atol=1e-4
  )
