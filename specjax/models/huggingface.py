"""Weights and configs of HuggingFace: Llama, Qwen2, Gemma 2, GPT-NeoX, T5 v1.1.

Only numpy arrays and plain dicts pass through here.
"""

from collections.abc import Callable
import functools
import re
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import registry
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models import huggingface_names

_SUFFIXES = {
  'embedding': 'weight',
  'kernel': 'weight',
  'scale': 'weight',
  'bias': 'bias',
}
_ACTIVATIONS = {
  'silu': 'silu',
  'swish': 'silu',
  'gelu': 'gelu',
  'gelu_fast': 'gelu_tanh',
  'gelu_new': 'gelu_tanh',
  'gelu_pytorch_tanh': 'gelu_tanh',
}
_IS_LOCAL = {'full_attention': False, 'sliding_attention': True}
# Constants that older files hold next to the weights, and copies of a table.
_BUFFERS = re.compile(
  r'rotary_emb\.inv_freq$|\.attention\.(masked_)?bias$'
  r'|^(en|de)coder\.embed_tokens\.weight$'
)


def config_from_hf(hf_config: dict[str, Any]) -> config_lib.Config:
  """Translates what stands in a `config.json`.

  Args:
    hf_config: the fields, 'model_type' included; rotary embeddings as in
      transformers 4 ('rope_theta', 'rope_scaling') or 5 ('rope_parameters').

  Returns:
    The config. All rows of the embedding table count as vocabulary; replace
    `vocab_size` and `padded_vocab_size` where some are padding.

  Raises:
    ValueError: the family is unknown, or a field is missing or not supported.
  """
  name = hf_config.get('model_type')
  family = registry.lookup(FAMILIES, 'family', name)
  try:
    return family.config(hf_config)
  except KeyError as error:
    raise ValueError(f'The config of a {name} model lacks {error}.') from error


def import_params(
  config: config_lib.Config,
  family: str,
  state_dict: dict[str, np.ndarray],
  dtype: jax.typing.DTypeLike = jnp.float32,
) -> base.Params:
  """Returns a HuggingFace model's weights as our parameters.

  They become float32 by default, whatever the type of the file is: most files
  have bfloat16, and take twice their bytes then.

  Args:
    config: the architecture.
    family: a name of `FAMILIES`.
    state_dict: arrays by their HuggingFace names; a second copy of a tied
      table is ignored.
    dtype: of the parameters. Models compute in a type of their own, see
      `adapters.transformer`, and take parameters of any.

  Raises:
    ValueError: the family is unknown, or names or shapes differ from the
      config's; every difference is listed.
  """
  theirs = {
    # The name of GPT-NeoX's head in files of transformers 4.
    re.sub(r'^embed_out\.', 'lm_head.', name): array
    for name, array in state_dict.items()
    if not _BUFFERS.search(name)
  }
  if config.tie_embeddings:
    theirs.pop('lm_head.weight', None)
  abstract = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype),
    adapters.abstract_params(config),
  )
  wanted = jax.eval_shape(
    lambda params: _to_hf(config, family, params), abstract
  )
  theirs = checkpoint.unflatten(theirs, wanted, f'The {family} state dict')
  arrays: dict[str, np.ndarray] = {}
  for name, ours in _groups(config, family, abstract).items():
    parts = _split(theirs[name], len(ours), config.num_heads)
    arrays |= {
      each: part.T if _is_kernel(each) else part
      for each, part in zip(ours, parts, strict=True)
    }
  return checkpoint.unflatten(arrays, abstract, f'The {family} state dict')


def export_params(
  config: config_lib.Config, family: str, params: base.Params
) -> dict[str, np.ndarray]:
  """Returns our parameters under their HuggingFace names.

  The inverse of `import_params`. A tied table is written once, as in
  HuggingFace's files; a model's `load_state_dict` needs `strict=False` then.

  Raises:
    ValueError: the family is unknown, or cannot hold some of the parameters.
  """
  theirs = _to_hf(config, family, params)
  return {name: np.array(array, order='C') for name, array in theirs.items()}


def _groups(config, family, params):
  """Returns our names of the parts of each HuggingFace array."""
  leaves = checkpoint.flatten(params)
  groups: dict[str, list[str]] = {}
  for ours, theirs in registry.lookup(FAMILIES, 'family', family).names.items():
    for i in range(config.num_layers if '{}' in ours else 1):
      for leaf, suffix in _SUFFIXES.items():
        name = f'{ours.format(i)}/{leaf}'
        if leaves.pop(name, None) is not None:
          groups.setdefault(f'{theirs.format(i)}.{suffix}', []).append(name)
  if leaves:
    raise ValueError(f'A {family} model has no {", ".join(leaves)}.')
  return groups


def _is_kernel(name):
  return name.endswith('/kernel')


def _to_hf(config, family, params):
  """Our parameters under their names and in their layout."""
  leaves = checkpoint.flatten(params)
  theirs = {}
  for name, ours in _groups(config, family, params).items():
    parts = [
      leaves[each].T if _is_kernel(each) else leaves[each] for each in ours
    ]
    theirs[name] = _join(parts, config.num_heads)
  return theirs


def _join(parts, num_heads):
  """Joins the parts of a fused array, head by head."""
  if len(parts) == 1:
    return parts[0]
  rest = parts[0].shape[1:]
  heads = [part.reshape(num_heads, -1, *rest) for part in parts]
  return jnp.concatenate(heads, axis=1).reshape(-1, *rest)


def _split(array, num_parts, num_heads):
  """Undoes `_join`."""
  if num_parts == 1:
    return [array]
  rest = array.shape[1:]
  heads = array.reshape(num_heads, -1, *rest)
  return [
    part.reshape(-1, *rest) for part in jnp.split(heads, num_parts, axis=1)
  ]


def _decoder_only(own_fields, hf_config):
  """The config of a family, by the fields that it spells in its own way."""
  num_heads = hf_config['num_attention_heads']
  fields = {
    'vocab_size': hf_config['vocab_size'],
    'num_layers': hf_config['num_hidden_layers'],
    'd_model': hf_config['hidden_size'],
    'num_heads': num_heads,
    'num_kv_heads': hf_config.get('num_key_value_heads') or num_heads,
    'head_dim': (
      hf_config.get('head_dim') or hf_config['hidden_size'] // num_heads
    ),
    'd_ff': hf_config['intermediate_size'],
    'tie_embeddings': hf_config.get('tie_word_embeddings', False),
    'max_length': hf_config['max_position_embeddings'],
    **_rope_fields(hf_config),
    **own_fields(hf_config),
  }
  fields['activation'] = registry.lookup(
    _ACTIVATIONS, 'activation', fields['activation']
  )
  return config_lib.TransformerConfig(**fields)


def _rope(hf_config):
  return hf_config.get('rope_scaling') or hf_config.get('rope_parameters') or {}


def _rope_fields(hf_config):
  """How positions are rotated, in any version's spelling."""
  rope = _rope(hf_config)
  theta = hf_config.get('rope_theta', hf_config.get('rotary_emb_base', 10000.0))
  fields = {'rope_theta': rope.get('rope_theta', theta)}
  kind = rope.get('rope_type', rope.get('type', 'default'))
  if kind != 'default':
    fields['rope_scaling'] = config_lib.RopeScaling(
      kind=kind,
      factor=rope['factor'],
      low_frequency_factor=rope.get('low_freq_factor', 1.0),
      high_frequency_factor=rope.get('high_freq_factor', 4.0),
      original_context=rope.get(
        'original_max_position_embeddings', hf_config['max_position_embeddings']
      ),
    )
  return fields


def _llama_fields(hf_config):
  attention_bias = hf_config.get('attention_bias', False)
  return {
    'activation': hf_config['hidden_act'],
    'norm_epsilon': hf_config['rms_norm_eps'],
    'qkv_bias': attention_bias,
    'out_bias': attention_bias,
    'mlp_bias': hf_config.get('mlp_bias', False),
  }


def _qwen2_fields(hf_config):
  fields = {
    'activation': hf_config['hidden_act'],
    'norm_epsilon': hf_config['rms_norm_eps'],
    'qkv_bias': True,
  }
  if hf_config.get('use_sliding_window', False):
    # Only the layers from `max_window_layers` on are local.
    local = [
      i >= hf_config.get('max_window_layers', 28)
      for i in range(hf_config['num_hidden_layers'])
    ]
    fields |= _window_fields(hf_config, local)
  return fields


def _gemma2_fields(hf_config):
  attention_bias = hf_config.get('attention_bias', False)
  return {
    'head_dim': hf_config['head_dim'],  # Not `d_model / num_heads`.
    'activation': hf_config['hidden_activation'],
    'norm_epsilon': hf_config['rms_norm_eps'],
    'norm_unit_offset': True,
    'post_norms': True,
    'qkv_bias': attention_bias,
    'out_bias': attention_bias,
    'tie_embeddings': hf_config.get('tie_word_embeddings', True),
    'scale_embeddings': True,
    'attention_scale': hf_config['query_pre_attn_scalar'] ** -0.5,
    'attention_softcap': hf_config['attn_logit_softcapping'],
    'logit_softcap': hf_config['final_logit_softcapping'],
    **_window_fields(hf_config, [True, False]),
  }


def _gpt_neox_fields(hf_config):
  attention_bias = hf_config.get('attention_bias', True)
  return {
    'activation': hf_config['hidden_act'],
    'gated': False,
    'norm': 'layer',
    'norm_epsilon': hf_config['layer_norm_eps'],
    'qkv_bias': attention_bias,
    'out_bias': attention_bias,
    'mlp_bias': True,
    'parallel_residual': hf_config.get('use_parallel_residual', True),
    'rotary_fraction': _rope(hf_config).get(
      'partial_rotary_factor', hf_config.get('rotary_pct', 0.25)
    ),
  }


def _t5_config(hf_config):
  activation = hf_config['feed_forward_proj']
  if activation != 'gated-gelu':
    raise ValueError(
      f"feed_forward_proj must be 'gated-gelu' (T5 v1.1), got {activation!r}."
    )
  num_layers = hf_config['num_layers']
  return config_lib.EncoderDecoderConfig(
    vocab_size=hf_config['vocab_size'],
    encoder_layers=num_layers,
    decoder_layers=hf_config.get('num_decoder_layers') or num_layers,
    d_model=hf_config['d_model'],
    num_heads=hf_config['num_heads'],
    head_dim=hf_config['d_kv'],
    d_ff=hf_config['d_ff'],
    start_id=hf_config.get('decoder_start_token_id') or 0,
    num_buckets=hf_config['relative_attention_num_buckets'],
    max_distance=hf_config.get('relative_attention_max_distance', 128),
    # Since transformers 5 the old field is always true, and a new one counts.
    tie_embeddings=hf_config.get(
      'scale_decoder_outputs', hf_config.get('tie_word_embeddings', True)
    ),
    norm_epsilon=hf_config['layer_norm_epsilon'],
    max_length=hf_config.get('n_positions', 512),
  )


def _window_fields(hf_config, local):
  """Which layers are local; `layer_types` overrules the given pattern."""
  types = hf_config.get('layer_types')
  if types is not None:
    local = [registry.lookup(_IS_LOCAL, 'layer type', each) for each in types]
  return {
    'sliding_window': hf_config['sliding_window'],
    'local_layers': tuple(local),
  }


class Family(NamedTuple):
  """How HuggingFace writes one family."""

  names: dict[str, str]  # of our modules and theirs
  config: Callable[[dict[str, Any]], config_lib.Config]  # of its fields


FAMILIES = {
  'gemma2': Family(
    huggingface_names.GEMMA2, functools.partial(_decoder_only, _gemma2_fields)
  ),
  'gpt_neox': Family(
    huggingface_names.GPT_NEOX,
    functools.partial(_decoder_only, _gpt_neox_fields),
  ),
  'llama': Family(
    huggingface_names.LLAMA, functools.partial(_decoder_only, _llama_fields)
  ),
  'qwen2': Family(
    huggingface_names.LLAMA, functools.partial(_decoder_only, _qwen2_fields)
  ),
  't5': Family(huggingface_names.T5, _t5_config),
}
