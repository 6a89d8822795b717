"""Translates config and weights of a GGUF file to HuggingFace's format."""

from collections.abc import Mapping
import os
from typing import Any
from typing import NamedTuple

import jax
import numpy as np

from specjax import registry
from specjax.data import tokenizer as tokenizer_lib
from specjax.models import config as config_lib
from specjax.models.gguf import container
from specjax.models.gguf import vocabulary
from specjax.models.huggingface import architectures
from specjax.models.huggingface import weights

_TOP = {
  'token_embd': 'model.embed_tokens',
  'output_norm': 'model.norm',
  'output': 'lm_head',
}
_LAYER = {
  'attn_norm': 'input_layernorm',
  'attn_q': 'self_attn.q_proj',
  'attn_k': 'self_attn.k_proj',
  'attn_q_norm': 'self_attn.q_norm',
  'attn_k_norm': 'self_attn.k_norm',
  'attn_v': 'self_attn.v_proj',
  'attn_output': 'self_attn.o_proj',
  'ffn_norm': 'post_attention_layernorm',
  'ffn_gate': 'mlp.gate_proj',
  'ffn_up': 'mlp.up_proj',
  'ffn_down': 'mlp.down_proj',
}

_ROPE_FACTORS = 'rope_freqs.weight'

# Architectures, by HuggingFace's model types, and whether the two entries of a
# query or key that are rotated together are adjacent.
_ARCHITECTURES = {'llama': True, 'qwen2': False, 'qwen3': False}
# Fields of a config, and their names in GGUF, without the architecture's name.
_SIZES = {
  'hidden_size': 'embedding_length',
  'intermediate_size': 'feed_forward_length',
  'num_hidden_layers': 'block_count',
  'num_attention_heads': 'attention.head_count',
  'num_key_value_heads': 'attention.head_count_kv',
  'max_position_embeddings': 'context_length',
}


class GGUFModel(NamedTuple):
  """The model of a file, whose arrays are not in memory.

  Attributes:
    config: the architecture.
    model_type: its name in `architectures.ARCHITECTURES`, which defines the
      names of the arrays.
    tensors: the arrays.
    tokenizer: the tokenizer.
  """

  config: config_lib.Config
  model_type: str
  tensors: weights.Tensors
  tokenizer: tokenizer_lib.Tokenizer


def read(path: str | os.PathLike[str]) -> GGUFModel:
  """Reads everything in a file except its arrays.

  Args:
    path: See `container.read_header`.

  Raises:
    ValueError: the file is truncated or corrupt, or its architecture, arrays
      or tokenizer are not supported; or the package `gguf` is not installed.
  """
  header = container.read_header(path)
  tokenizer = vocabulary.read(header.metadata)
  hf_config = _config(header)
  arrays = {
    _name(name): array
    for name, array in header.arrays.items()
    if name != _ROPE_FACTORS
  }

  def read_array(name: str) -> np.ndarray:
    """Returns an array as HuggingFace stores it."""
    array = container.read(arrays[name])
    return _separate_pairs(array, _num_permuted_heads(name, hf_config))

  shapes = {
    name: jax.ShapeDtypeStruct(array.shape, array.dtype)
    for name, array in arrays.items()
  }
  return GGUFModel(
    architectures.read_config(hf_config),
    hf_config['model_type'],
    weights.Tensors(shapes, read_array),
    tokenizer,
  )


def _config(header: container.Header) -> dict[str, Any]:
  """Returns the fields of a `config.json`."""
  metadata = header.metadata
  name = metadata.get('general.architecture')
  if not isinstance(name, str):
    raise ValueError(f'general.architecture must be a text, got {name!r}.')
  registry.lookup(_ARCHITECTURES, 'general.architecture', name)
  architecture = _Fields(metadata, name)
  fields = {
    hf_name: architecture.size(field) for hf_name, field in _SIZES.items()
  }
  head_dim = architecture.size(
    'attention.key_length',
    fields['hidden_size'] // fields['num_attention_heads'],
  )
  if architecture.size('rope.dimension_count', head_dim) != head_dim:
    raise ValueError(
      f'{name}.rope.dimension_count must be {head_dim}, a whole head, got '
      f'{metadata[f"{name}.rope.dimension_count"]}.'
    )
  scale = architecture.number('attention.scale', head_dim**-0.5)
  if not np.isclose(scale, head_dim**-0.5):
    raise ValueError(
      f'{name}.attention.scale must be {head_dim**-0.5}, the inverse square '
      f'root of the width of a head, got {scale}.'
    )
  if metadata.get(f'{name}.expert_count'):
    raise ValueError(
      f'{name}.expert_count must be 0, since mixtures of experts are not '
      f'supported, got {metadata[f"{name}.expert_count"]!r}.'
    )
  return {
    'model_type': name,
    **fields,
    'head_dim': head_dim,
    'vocab_size': architecture.size(
      'vocab_size', len(metadata['tokenizer.ggml.tokens'])
    ),
    'hidden_act': 'silu',
    'rms_norm_eps': architecture.number('attention.layer_norm_rms_epsilon'),
    'rope_theta': architecture.number('rope.freq_base', 10000.0),
    'rope_scaling': _scaling(architecture, header.arrays.get(_ROPE_FACTORS)),
    'attention_bias': 'blk.0.attn_q.bias' in header.arrays,
    'tie_word_embeddings': 'output.weight' not in header.arrays,
  }


def _scaling(
  architecture: '_Fields', array: container.Array | None
) -> dict[str, Any]:
  """Returns the field `rope_scaling`, which stretches rotary embeddings.

  Args:
    architecture: metadata of the architecture.
    array: divisors of the frequencies, as Llama 3.1's rule is stored, or None.
  """
  # Older files have the second name, as llama.cpp also reads it.
  kind = architecture.metadata.get(
    f'{architecture.name}.rope.scaling.type', 'linear'
  )
  factor = architecture.number(
    'rope.scaling.factor', architecture.number('rope.scale_linear', 1)
  )
  if kind == 'none' or (kind == 'linear' and factor == 1):
    kind, factor = 'default', 1.0
  if array is None:
    return {'rope_type': kind, 'factor': factor}
  if kind not in ('default', 'linear'):
    raise ValueError(
      f'{architecture.name}.rope.scaling.type must be none or linear if the '
      f'file has {_ROPE_FACTORS}, got {kind!r}.'
    )
  factors = (container.read(array).astype(float) * factor).tolist()
  return {
    'rope_type': 'longrope',
    'short_factor': factors,
    'long_factor': factors,
    'attention_factor': 1.0,
  }


class _Fields(NamedTuple):
  """Reads the metadata of an architecture.

  Attributes:
    metadata: metadata of the file.
    name: name of the architecture, the prefix of its fields.
  """

  metadata: Mapping[str, Any]
  name: str

  def size(self, field: str, default: int | None = None) -> int:
    """Returns a positive integer."""
    value = self.metadata.get(f'{self.name}.{field}', default)
    if type(value) is not int or value < 1:
      raise ValueError(f'{self.name}.{field} must be >= 1, got {value!r}.')
    return value

  def number(self, field: str, default: float | None = None) -> float:
    """Returns a positive number, rounded to the digits of a float32."""
    value = self.metadata.get(f'{self.name}.{field}', default)
    if not isinstance(value, int | float) or not 0 < value < np.inf:
      raise ValueError(f'{self.name}.{field} must be > 0, got {value!r}.')
    return float(str(np.float32(value)))


def _name(name: str) -> str:
  """Returns HuggingFace's name of an array, or the same if it is unknown."""
  *prefix, part, leaf = name.rsplit('.', 2) if name.count('.') else ('', name)
  if not prefix and part in _TOP:
    return f'{_TOP[part]}.{leaf}'
  block, _, layer = ''.join(prefix).partition('.')
  if block == 'blk' and part in _LAYER:
    return f'model.layers.{layer}.{_LAYER[part]}.{leaf}'
  return name


def _num_permuted_heads(name: str, hf_config: dict[str, Any]) -> int:
  """Returns the number of heads whose rows llama.cpp reorders, or 0."""
  if not _ARCHITECTURES[hf_config['model_type']]:
    return 0
  if '.self_attn.q_proj.' in name:
    return hf_config['num_attention_heads']
  if '.self_attn.k_proj.' in name:
    return hf_config['num_key_value_heads']
  return 0


def _separate_pairs(array: np.ndarray, num_heads: int) -> np.ndarray:
  """Moves rows that are rotated together half a head apart."""
  if not num_heads:
    return array
  pairs = array.reshape(num_heads, -1, 2, *array.shape[1:])
  return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)
