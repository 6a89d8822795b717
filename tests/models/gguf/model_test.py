"""Models of GGUF files, with transformers as the oracle."""

import dataclasses
import json
import random

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import models
from specjax.models import config as config_lib
from specjax.models.gguf import container
from tests import extras
from tests.models.gguf import files
from tests.models.huggingface import oracle

torch = extras.load('torch')
transformers = extras.load('transformers')
pytestmark = pytest.mark.oracles

_Q8_0 = gguf.GGMLQuantizationType.Q8_0
_KINDS = {
  'llama': (transformers.LlamaConfig, {'tie_word_embeddings': True}),
  'llama, biases': (
    transformers.LlamaConfig,
    {'attention_bias': True, 'tie_word_embeddings': False},
  ),
  'llama, stretched': (
    transformers.LlamaConfig,
    {
      'tie_word_embeddings': True,
      'rope_parameters': oracle.LLAMA3
      | {'rope_theta': 5e5, 'original_max_position_embeddings': 256},
    },
  ),
  'qwen2': (transformers.Qwen2Config, {'tie_word_embeddings': False}),
  'qwen3': (transformers.Qwen3Config, {'tie_word_embeddings': True}),
}


def _peer(kind, **options):
  """A tiny model of transformers."""
  torch.manual_seed(0)
  make, kind_options = _KINDS[kind]
  config = make(
    vocab_size=len(files.TOKENS) + 3,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    **{'rope_theta': 5e5} | kind_options | options,
  )
  model = transformers.AutoModelForCausalLM.from_config(config).eval()
  with torch.no_grad():
    for weight in model.parameters():
      weight.normal_(std=0.3)
  return model


def _file(tmp_path, kind='llama', changes=None, kinds=None):
  """A tiny model in a file, and its peer."""
  peer = _peer(kind)
  metadata, arrays = files.model(peer)
  path = tmp_path / 'model.gguf'
  files.write(path, arrays, metadata | (changes or {}), kinds)
  return path, peer


def _logits(checkpoint, tokens):
  extend = jax.jit(checkpoint.model.extend)
  return extend(checkpoint.params, None, jnp.asarray(tokens)).logits


@pytest.mark.parametrize('kind', _KINDS)
def test_logits_are_those_of_transformers(tmp_path, kind):
  path, peer = _file(tmp_path, kind)
  checkpoint = models.load(path)
  tokens = np.random.default_rng(0).integers(0, len(files.TOKENS), (2, 12))
  with torch.no_grad():
    expected = peer(torch.tensor(tokens)).logits.numpy()
  actual = _logits(checkpoint, tokens)
  np.testing.assert_allclose(actual, expected, atol=1e-4, rtol=1e-4)
  assert checkpoint.stop_tokens == checkpoint.tokenizer.stop_tokens == (2, 0)
  assert checkpoint.chat_template == files.TEMPLATE
  assert checkpoint.config.rope_theta == 5e5  # Not of 32 bits.
  assert checkpoint.config.norm_epsilon == 1e-5


def test_quantized_weights_are_those_that_the_package_decodes(tmp_path):
  _, arrays = files.model(_peer('llama'))
  kinds = {n: _Q8_0 for n, array in arrays.items() if array.ndim == 2}
  path, peer = _file(tmp_path, kinds=kinds)
  blurred = {
    name: array
    if name not in kinds
    else gguf.quants.dequantize(gguf.quants.quantize(array, _Q8_0), _Q8_0)
    for name, array in arrays.items()
  }
  files.write(tmp_path / 'plain.gguf', blurred, files.model(peer)[0])
  quantized, decoded = models.load(path), models.load(tmp_path / 'plain.gguf')
  jax.tree.map(np.testing.assert_array_equal, quantized.params, decoded.params)


@pytest.mark.parametrize('kind', ['F16', 'BF16'])
def test_the_type_is_kept_unless_another_is_asked_for(tmp_path, kind):
  _, arrays = files.model(_peer('llama'))
  kinds = {
    name: gguf.GGMLQuantizationType[kind]
    for name, array in arrays.items()
    if array.ndim == 2
  }
  path, _ = _file(tmp_path, kinds=kinds)
  dtype = {'F16': jnp.float16, 'BF16': jnp.bfloat16}[kind]
  params = models.load(path).params
  assert params['embedding']['embedding'].dtype == dtype
  assert params['final_norm']['scale'].dtype == jnp.float32
  converted = models.load(path, dtype=jnp.float32).params
  assert {leaf.dtype for leaf in jax.tree.leaves(converted)} == {
    jnp.dtype('f4')
  }


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'general.architecture': 'mamba'}, "'mamba'. Known: llama, qwen2, qwen3"),
    ({'llama.block_count': 3}, 'model.layers.2.input_layernorm.weight is miss'),
    ({'llama.block_count': 2**31}, '2147483648 layers'),
    ({'llama.block_count': None}, 'llama.block_count must be >= 1, got None'),
    ({'llama.embedding_length': 'a'}, "embedding_length must be >= 1, got 'a'"),
    ({'llama.attention.head_count': 0}, 'head_count must be >= 1, got 0'),
    ({'llama.feed_forward_length': 65}, 'has shape'),
    (
      {'llama.rope.dimension_count': 4},
      'dimension_count must be 8, a whole head',
    ),
    ({'llama.rope.freq_base': -1.0}, 'freq_base must be > 0, got -1.0'),
    ({'llama.rope.scaling.type': 'yarn'}, 'yarn'),
    ({'llama.expert_count': 8}, 'mixtures of experts are not'),
    ({'llama.attention.scale': 1.0}, 'attention.scale must be 0.35'),
    ({'tokenizer.ggml.model': 'llama'}, "got 'llama'"),
  ],
)
def test_what_is_not_supported_is_refused(tmp_path, changes, message):
  if 'llama.rope.scaling.type' in changes:
    changes = changes | {'llama.rope.scaling.factor': 2.0}
  path, _ = _file(tmp_path, changes=changes)
  with pytest.raises(ValueError, match=message) as caught:
    models.load(path)
  assert str(path) in str(caught.value)


def test_factors_of_frequencies_are_written_for_transformers(tmp_path):
  path, peer = _file(tmp_path, 'llama, stretched')
  checkpoint = models.load(path)
  models.save(checkpoint, tmp_path / 'saved')
  reloaded = models.load(tmp_path / 'saved')
  assert reloaded.config == checkpoint.config
  text = json.dumps(dataclasses.asdict(checkpoint.config))
  assert config_lib.from_dict(json.loads(text)) == checkpoint.config
  hf_model = transformers.AutoModelForCausalLM.from_pretrained(
    tmp_path / 'saved'
  )
  np.testing.assert_allclose(
    hf_model.model.rotary_emb.inv_freq,
    peer.model.rotary_emb.inv_freq,
    rtol=1e-6,
  )


def test_a_split_file_is_read_by_the_first_of_its_parts(tmp_path):
  path, peer = _file(tmp_path)
  metadata, arrays = files.model(peer)
  names = list(arrays)
  parts = [tmp_path / f'm-{i:05d}-of-00002.gguf' for i in (1, 2)]
  for i, part in enumerate(parts):
    subset = {
      name: arrays[name] for name in names[7 * i : 7 if not i else None]
    }
    of_first = metadata if not i else dict.fromkeys(files.tokenizer())
    files.write(part, subset, of_first | {'split.count': 2, 'split.no': i})
  single_file, split_files = models.load(path), models.load(parts[0])
  jax.tree.map(
    np.testing.assert_array_equal, single_file.params, split_files.params
  )
  with pytest.raises(ValueError, match='give the first of them, .*-00001-of-'):
    models.load(parts[1])
  (tmp_path / 'm.gguf').write_bytes(parts[0].read_bytes())
  with pytest.raises(ValueError, match='one of the 2 files of a split GGUF'):
    models.load(tmp_path / 'm.gguf')
  parts[1].unlink()
  with pytest.raises(ValueError, match=f'there is no {parts[1]}'):
    models.load(parts[0])


@pytest.mark.parametrize(
  'scaling',
  [
    {'scaling.type': 'linear', 'scaling.factor': 4.0},
    {'scaling.factor': 4.0},
    {'scale_linear': 4.0},
  ],
)
def test_linear_scaling_is_read(tmp_path, scaling):
  """Covers all names that llama.cpp uses for linear scaling."""
  changes = {f'llama.rope.{name}': value for name, value in scaling.items()}
  path, _ = _file(tmp_path, changes=changes)
  rope_scaling = models.load(path).config.rope_scaling
  assert rope_scaling.kind == 'linear' and rope_scaling.factor == 4.0


def test_a_missing_file_is_named(tmp_path):
  with pytest.raises(ValueError, match='missing.gguf'):
    models.load(tmp_path / 'missing.gguf')


def _broken(content, seed):
  """The content cut or, half of the time, with one bit or byte changed."""
  draw = random.Random(seed)
  # As often in the header as behind it.
  index = draw.randrange(draw.choice([200, 2000, len(content)]))
  if seed % 2:
    return content[:index]
  value = draw.choice([content[index] ^ 1 << draw.randrange(8), 0, 255])
  return content[:index] + bytes([value]) + content[index + 1 :]


def test_a_broken_file_is_refused_or_only_its_numbers_differ(tmp_path):
  """Loads 200 files that are truncated or have one changed byte."""
  path, _ = _file(tmp_path)
  content = path.read_bytes()
  expected = container.read_header(path)
  num_refused = num_loaded = 0
  for seed in range(200):
    path.write_bytes(_broken(content, seed))
    try:
      checkpoint = models.load(path)
    except ValueError as error:
      num_refused += 1
      assert str(path) in str(error)
      continue
    num_loaded += 1
    assert len(path.read_bytes()) == len(content)
    arrays = container.read_header(path).arrays
    assert arrays == expected.arrays and checkpoint.tokenizer is not None
  assert num_refused > 110 and num_loaded > 20
