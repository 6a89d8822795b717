"""The type of imported parameters; what they say is tested with the models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import huggingface
from specjax.testing import toys


@pytest.fixture(scope='module', name='stored')
def _stored():
  """A config, and arrays of HuggingFace in bfloat16."""
  config = config_lib.TransformerConfig(vocab_size=8, **toys.TINY)
  params = adapters.init_params(jax.random.key(0), config)
  arrays = huggingface.export_params(config, 'llama', params)
  return config, {k: v.astype(jnp.bfloat16) for k, v in arrays.items()}


def _types(params):
  return {leaf.dtype for leaf in jax.tree.leaves(params)}


def test_parameters_become_float32_or_what_is_asked_for(stored):
  config, arrays = stored
  wide = huggingface.import_params(config, 'llama', arrays)
  narrow = huggingface.import_params(
    config, 'llama', arrays, dtype=jnp.bfloat16
  )
  assert _types(wide) == {np.dtype('float32')}
  assert _types(narrow) == {jnp.dtype('bfloat16')}
  assert sum(leaf.nbytes for leaf in jax.tree.leaves(wide)) == 2 * sum(
    leaf.nbytes for leaf in jax.tree.leaves(narrow)
  )
  # Nothing is lost on the way, and models take either.
  jax.tree.map(
    lambda x, y: np.testing.assert_array_equal(x, y.astype(x.dtype)),
    wide,
    narrow,
  )
  model = adapters.transformer(config)
  tokens = np.arange(8)[None]
  logits = [model.extend(p, None, tokens).logits for p in (wide, narrow)]
  np.testing.assert_allclose(*logits, rtol=1e-5, atol=1e-6)
