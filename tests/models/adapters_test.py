"""The adapter's own work: what it does around the module."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import base
from specjax import models
from specjax import sampling
from specjax import trees
from specjax import verifiers
from specjax.contrib import encoder_decoder_config
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.models import heads
from specjax.models import wrappers
from specjax.testing import rounds
from tests import tiers
from tests.verifiers import exact


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


class _Resized(exact.Case):
  """A draft model of other tokens than the target's three."""

  def __init__(self, size, **options):
    super().__init__(**options)
    object.__setattr__(self, 'size', size)

  @functools.cached_property
  def table(self):
    """`[V, V]` float32, the draft's probabilities after each token."""
    drafts = jnp.asarray(rounds.tables(self.size)[0])
    model = wrappers.resize_vocabulary(
      models.Markov(self.size), self.vocab_size
    )
    assert model.vocab_size == self.vocab_size
    tokens = jnp.arange(self.vocab_size)[None]
    logits = model.extend(drafts, model.init_cache(drafts, 1, 9), tokens).logits
    return sampling.probabilities(logits[0], sampling.Sampling())

  @functools.cached_property
  def draft(self):
    return rounds.normalize(np.asarray(self.table))

  def tree(self, tokens, valid=None):
    parent_tokens = jnp.append(tokens, rounds.ROOT)[
      np.array(self.topology.parents)
    ]
    valid = jnp.asarray(self.is_valid) if valid is None else valid
    return base.DraftTree(
      tokens, self.topology, valid, self.table[parent_tokens]
    )


@pytest.mark.parametrize('num_tokens', [1, 2])
@pytest.mark.parametrize('size', [2, 3, 5])
def test_a_drafter_of_another_vocabulary_leaves_the_target_exact(
  size, num_tokens
):
  """All drafts are enumerated, and the uniforms integrated."""
  case = _Resized(size, topology=trees.chain(num_tokens))
  np.testing.assert_allclose(case.draft.sum(1), 1)
  if size < 3:
    assert (case.draft[:, size:] == 0).all()  # Never drafted,
    np.testing.assert_array_equal(case.draft[size], case.draft[size - 1])
  else:
    draft = rounds.normalize(rounds.tables(size)[0][:3, :3])
    np.testing.assert_allclose(case.draft, draft, rtol=1e-5)
  result = exact.integrate(
    case, verifiers.resolve('maximal'), *exact.walk_cells(case)
  )
  np.testing.assert_allclose(result.probs, case.expected, atol=1e-5)


def test_a_vocabulary_of_the_same_size_is_the_same_model():
  model = models.Markov(3)
  assert wrappers.resize_vocabulary(model, 3) is model
  resized = wrappers.resize_vocabulary(model, 5)
  assert wrappers.resize_vocabulary(model, 5) == resized != model


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
