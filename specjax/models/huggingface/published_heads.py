"""Reads and writes published heads: EAGLE, EAGLE-3, Medusa, DFlash, DSpark.

Parameters that a head shares with its target, the embedding and for some heads
the output head, are taken from the target. If a file contains a copy of them,
the two are compared.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
import itertools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.models import flax_modules
from specjax.models import head_config
from specjax.models import heads
from specjax.models.huggingface import architectures
from specjax.models.huggingface import servers
from specjax.models.huggingface import weights

_SUFFIXES = {
  'kernel': 'weight',
  'scale': 'weight',
  'bias': 'bias',
  'embedding': 'weight',
}
_LAYER = {
  'attention_norm': 'input_layernorm',
  'attention/query': 'self_attn.q_proj',
  'attention/query_norm': 'self_attn.q_norm',
  'attention/key': 'self_attn.k_proj',
  'attention/key_norm': 'self_attn.k_norm',
  'attention/value': 'self_attn.v_proj',
  'attention/out': 'self_attn.o_proj',
  'feed_forward_norm': 'post_attention_layernorm',
  'feed_forward/gate': 'mlp.gate_proj',
  'feed_forward/up': 'mlp.up_proj',
  'feed_forward/down': 'mlp.down_proj',
}
_NORMS = {'token_norm': 'input_layernorm', 'input_norm': 'hidden_norm'}
_TOP = {
  'features_norm': 'input_norm',
  'join': 'fc',
  'final_norm': 'norm',
  'head': 'lm_head',
}
_BLOCK = {
  'join_norm': 'hidden_norm',
  'markov_in': 'markov_head.markov_w1',
  'markov_out': 'markov_head.markov_w2',
}
_EMBEDDING = re.compile(r'^(model\.)?embed_tokens\.weight$')
# Additional names of a head's file.
FILES = ('medusa_lm_head.safetensors',)
# Fields in the `config.json` of some heads, but of no language model.
FIELDS = ('medusa_num_heads', 'speculators_model_type')
# A reduced vocabulary: row `j` of the head is for the token `j + d2t[j]`, or in
# vLLM's Medusa for the token `token_map[j]`.
_TO_TARGET, _IS_DRAFTED, _TOKEN_MAP = 'd2t', 't2d', 'token_map'
_OUTPUT = 'lm_head.weight'
_LAYER_IDS = servers.LAYER_IDS
# The same of DFlash: inputs of layers, or their outputs.
_INPUT_IDS, _OUTPUT_IDS = 'aux_hidden_state_layer_ids', 'target_layer_ids'
# Arrays of DSpark's confidence head, which decides how many tokens a server
# verifies. No drafter here reads it.
_CONFIDENCE = 'confidence_head.'
# Maximum difference of a copy from the target's parameters, which may be
# quantized: relative, in root mean square. Unrelated weights differ by 1 or
# more.
_TOLERANCE = 0.1
_CHUNK = 4096  # Number of rows that are compared at a time.


# The prefix of the names of a layer's arrays, by format. Those of block heads
# differ in the fields of config.json.
_PREFIXES = {
  'eagle': 'layers.0.',
  'eagle3': 'midlayer.',
  'speculators': 'layers.0.',
  'dflash': 'layers.',
  'dflash_authors': 'layers.',
  'dspark_authors': 'layers.',
}
# The names of Medusa's blocks and of its separate output heads, by format.
_MEDUSA = {
  'medusa': ('{step}.{block}.linear', '{step}.{num_blocks}'),
  'medusa_in_vllm': ('blocks.{step}.layers.{block}', 'lm_heads.{step}'),
}


def read(
  fields: dict[str, Any],
  tensors: weights.Tensors,
  target: config_lib.Config,
  params: base.Params,
) -> tuple[head_config.HeadConfig, base.Params]:
  """Reads a published head.

  Args:
    fields: fields of its `config.json`.
    tensors: its arrays.
    target: config of the target.
    params: parameters of the target, some of which the head shares.

  Returns:
    The config, and float32 parameters.

  Raises:
    ValueError: the head has an unknown format or unsupported settings, or does
      not match the target or its own config (every array that differs is
      listed).
  """
  layout = _layout(fields, tensors.shapes)
  if layout is None:
    raise ValueError(
      'The arrays must be those of a known kind of head (EAGLE, EAGLE-3, '
      'speculators, Medusa, DFlash or DSpark), got '
      f'{", ".join(sorted(tensors.shapes)[:6])}.'
    )
  copies = {name for name in tensors.shapes if _EMBEDDING.search(name)}
  shapes = {n: shape for n, shape in tensors.shapes.items() if n not in copies}
  config = _READERS[layout](fields, shapes, target)
  rows = None
  drop = {name for name in shapes if name.startswith(_CONFIDENCE)}
  if _vocabulary(shapes) is not None:
    rows = _rows(tensors, config)
    drop |= {_TO_TARGET, _IS_DRAFTED, _TOKEN_MAP}
  if 'head' in heads.shared_names(config):
    copies |= {_OUTPUT} & shapes.keys()
  names = _names(config, layout)
  weights.check(
    {n: shape for n, shape in shapes.items() if n not in drop | copies},
    {hf_name: shape for hf_name, (_, shape) in names.items()},
  )
  for name in sorted(copies):
    _check_copy(name, tensors, params, rows)
  arrays = {
    name: _transpose(name, jnp.asarray(tensors.read(hf_name), jnp.float32))
    for hf_name, (name, _) in names.items()
  }
  if rows is not None:
    arrays['head_rows'] = jnp.asarray(rows)
  elif config.layer.head_size == config.layer.vocab_size:
    arrays['head_rows'] = jnp.arange(config.layer.vocab_size, dtype=jnp.int32)
  elif config.layer.head_size is not None:
    raise ValueError(
      f'Weights and config do not match: {_TO_TARGET} is missing.'
    )
  arrays |= checkpoint.flatten(
    heads.shared_params(config, params, arrays.get('head_rows'))
  )
  return config, checkpoint.unflatten(
    arrays, flax_modules.abstract_params(config), 'The head'
  )


def write(
  config: head_config.HeadConfig,
  params: base.Params,
  server: str | None,
  arguments: servers.Arguments,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """Returns the fields of `config.json` and the arrays; inverts `read`.

  Without a server, heads are written in the format of their authors. Those of
  EAGLE-3 with settings that it lacks, and block heads, are written in that of
  speculators.

  Args:
    config: config of the head.
    params: parameters of the head.
    server: the server that will load the head, a name in `servers.SERVERS`, or
      None.
    arguments: what else the files contain, for some servers.

  Raises:
    ValueError: published formats cannot express the head's layer, or the
      arguments do not fit the server.
  """
  reader = None if server is None else servers.find(server, config, arguments)
  layout = _default_layout(config) if reader is None else reader.layout
  _check_layer(config)
  leaves = checkpoint.flatten(params)
  arrays = {
    hf_name: np.asarray(_transpose(name, leaves[name]))
    for hf_name, (name, _) in _names(config, layout).items()
  }
  rows = np.asarray(params['head_rows']) if 'head_rows' in params else None
  if rows is not None and (reader is None or reader.has_draft_vocab):
    arrays |= _vocabulary_arrays(rows, layout)
  if reader is not None and _has_copy(reader, config):
    head = cutting.output_head(params, None)['kernel']
    arrays[_OUTPUT] = np.asarray(_transpose('head/kernel', head))
  fields = _WRITERS[layout](config)
  if reader is None:
    arguments.check_unused((), 'if server is None')
    return fields, arrays
  return servers.complete(reader, config, fields, arrays, rows, arguments)


def _default_layout(config: head_config.HeadConfig) -> str:
  """Returns the format of a head that is not written for a server."""
  if isinstance(config, head_config.Eagle3Config):
    if any(_norm_fields(config).values()):
      return 'speculators'
  return config.kind


def _has_copy(reader: servers.Reader, config: head_config.HeadConfig) -> bool:
  """Returns whether files contain a copy of an output head that is shared."""
  is_reduced = config.layer.head_size is not None and reader.has_draft_vocab
  is_shared = 'head' in heads.shared_names(config)
  return is_shared and (is_reduced or not reader.shares_head)


def _vocabulary_arrays(rows: np.ndarray, layout: str) -> dict[str, np.ndarray]:
  """Returns the arrays that define a reduced vocabulary.

  Args:
    rows: `[V]` row of each token in the output head, -1 for none.
    layout: the format of the files.
  """
  drafted = cutting.head_tokens(rows).astype(np.int64)
  if layout == 'medusa_in_vllm':
    return {_TOKEN_MAP: drafted}
  return {
    _TO_TARGET: drafted - np.arange(len(drafted)),
    _IS_DRAFTED: rows >= 0,
  }


def is_head(fields: dict[str, Any], tensors: weights.Tensors) -> bool:
  """Returns whether files are those of a head, not of a language model."""
  return _layout(fields, tensors.shapes) is not None


def _layout(
  fields: Mapping[str, Any], shapes: Mapping[str, jax.ShapeDtypeStruct]
) -> str | None:
  """Returns the format of a head, or None if the files are not a head's."""
  if 'hidden_norm.weight' in shapes or 'dflash_config' in fields:
    return 'dflash'
  if any(name.startswith('midlayer.') for name in shapes):
    return 'eagle3'
  if 'transformer_layer_config' in fields:
    return 'speculators'
  for layout, (block, _) in _MEDUSA.items():
    if f'{block.format(step=0, block=0)}.weight' in shapes:
      return layout
  return 'eagle' if 'fc.weight' in shapes else None


def _check_copy(
  name: str,
  tensors: weights.Tensors,
  params: base.Params,
  rows: np.ndarray | None,
) -> None:
  """Raises `ValueError` unless an array is a copy of the target's.

  Args:
    name: name of the array.
    tensors: the arrays of the head.
    params: parameters of the target.
    rows: See `cutting.output_head`.
  """
  original = params['embedding']['embedding']
  if name == _OUTPUT:
    original = cutting.output_head(params, rows)['kernel'].T
  copy = tensors.read(name)
  if copy.shape[1:] != original.shape[1:]:
    raise ValueError(
      f'{name} must have the width of the target, {original.shape[1]}, got the '
      f'shape {copy.shape}.'
    )
  gap = size = 0.0
  # The number of rows may differ, since some tables are padded.
  for i in range(0, min(len(copy), len(original)), _CHUNK):
    rows, target_rows = (
      np.asarray(x[i : i + _CHUNK], np.float32) for x in (copy, original)
    )
    num = min(len(rows), len(target_rows))
    gap += np.square(rows[:num] - target_rows[:num]).sum()
    size += np.square(target_rows[:num]).sum()
  if not gap <= _TOLERANCE**2 * size:
    raise ValueError(
      f'{name} differs from that of the target: the head belongs to another '
      'target, or was trained with a separate embedding or output head, which '
      'is not supported.'
    )


# Reading a config.

# Fields with one supported value, which is also their default.
_ALLOWED = {
  'speculators_model_type': 'eagle3',
  'use_aux_hidden_state': True,
}


def _eagle_config(
  fields: Mapping[str, Any],
  shapes: Mapping[str, jax.ShapeDtypeStruct],
  target: config_lib.Config,
) -> head_config.HeadConfig:
  """Reads the config of an EAGLE head."""
  config = heads.configure(
    'eagle', target, bias=fields.get('bias', True), **_draft_size(fields)
  )
  return _with_layer(config, fields)


def _object(
  fields: Mapping[str, Any], name: str, default: Mapping[str, Any]
) -> Mapping[str, Any]:
  """Returns an object of a config, or a default if it is missing or null."""
  value = fields.get(name)
  if value is not None and not isinstance(value, dict):
    raise ValueError(f'{name} must be an object, got {value!r}.')
  return default if value is None else value


def _eagle3_config(
  fields: Mapping[str, Any],
  shapes: Mapping[str, jax.ShapeDtypeStruct],
  target: config_lib.Config,
) -> head_config.HeadConfig:
  """Reads the config of an EAGLE-3 head; both formats have similar fields."""
  layer = _object(fields, 'transformer_layer_config', fields)
  inner = _object(fields, 'eagle_config', {})
  settings = {**inner, **fields}
  for name, allowed in _ALLOWED.items():
    value = settings.get(name, allowed)
    if value != allowed:
      raise ValueError(
        f'{name} is not supported with the value {value!r}, only with '
        f'{allowed!r}.'
      )
  _check_size(fields, target)
  config = heads.configure(
    'eagle3',
    target,
    head_size=settings.get('draft_vocab_size') or target.vocab_size,
    norm_taps=any(name.startswith('fc_norm.') for name in shapes),
    norm_output=bool(settings.get('norm_output', False)),
    norm_before_residual=bool(settings.get('norm_before_residual', False)),
    norm_before_fc=bool(settings.get('norm_before_fc', False)),
    **_taps(fields, inner, target),
  )
  return _with_layer(config, layer)


def _medusa_config(
  layout: str,
  fields: Mapping[str, Any],
  shapes: Mapping[str, jax.ShapeDtypeStruct],
  target: config_lib.Config,
) -> head_config.HeadConfig:
  """Derives the config of Medusa's heads from the names of their arrays.

  The fields are not used: some of version 0.1 have a wrong number of heads.
  """
  del fields
  names = {name.removesuffix('.weight') for name in shapes}
  block, output = _MEDUSA[layout]
  num_blocks = _count(names, lambda i: block.format(step=0, block=i))
  vocabulary = _vocabulary(shapes)
  return heads.configure(
    'medusa',
    target,
    head_size=None if vocabulary is None else shapes[vocabulary].shape[0],
    num_steps=_count(names, lambda i: block.format(step=i, block=0)),
    num_blocks=num_blocks,
    own_heads=output.format(step=0, num_blocks=num_blocks) in names,
  )


def _count(names: set[str], name_of: Callable[[int], str]) -> int:
  """Returns how many numbers from 0 on have a name, without gaps."""
  return next(i for i in itertools.count() if name_of(i) not in names)


# Settings of block heads with one supported value.
_ALLOWED_IN_BLOCKS = {
  'final_logit_softcapping': (None,),
  'markov_head_type': ('vanilla',),
  'output_multiplier': (None, 1.0),
  'projector_type': ('dflash',),
  'selector_rank': (None,),
}


def _dflash_config(
  fields: Mapping[str, Any],
  shapes: Mapping[str, jax.ShapeDtypeStruct],
  target: config_lib.Config,
) -> head_config.HeadConfig:
  """Reads the config of DFlash or DSpark, in any of three formats.

  These are the formats of DFlash's authors (settings in `dflash_config`), of
  DSpark's (at the top level) and of the library speculators.
  """
  layer = _object(fields, 'transformer_layer_config', fields)
  settings = {**fields, **_object(fields, 'dflash_config', {})}
  for name, allowed in _ALLOWED_IN_BLOCKS.items():
    value = settings.get(name, allowed[0])
    if value not in allowed and (name, settings.get('markov_rank')) != (
      'markov_head_type',
      0,
    ):
      raise ValueError(
        f'{name} is not supported with the value {value!r}, only with '
        f'{allowed[-1]!r}.'
      )
  if 'sliding_attention' in (layer.get('layer_types') or ()):
    raise ValueError(
      "layer_types must be 'full_attention' in a block head, got "
      "'sliding_attention'."
    )
  for name in ('mask_token_id', 'block_size'):
    if type(settings.get(name)) is not int:
      raise ValueError(
        f'config.json of a block head must contain the integer {name}, got '
        f'{settings.get(name)!r}.'
      )
  _check_size(fields, target)
  names = [settings.get('speculators_model_type')]
  names += settings.get('architectures') or ()
  is_dspark = any('dspark' in str(name).lower() for name in names)
  predicts_next = settings.get('shift_label', is_dspark)
  size = settings.get('draft_vocab_size')
  config = heads.configure(
    'dflash',
    target,
    head_size=None if size == target.vocab_size else size,
    taps=_block_taps(settings),
    num_layers=layer.get('num_hidden_layers', 1),
    block_size=settings['block_size'],
    mask_token=settings['mask_token_id'],
    predicts_next=bool(settings.get('sample_from_anchor', predicts_next)),
    markov_rank=settings.get('markov_rank', 0),
  )
  return _with_layer(config, layer)


def _block_taps(settings: Mapping[str, Any]) -> tuple[int, ...]:
  """Returns the taps of a block head, which are inputs of layers.

  `target_layer_ids` count outputs, and -1 is the embedding.
  """
  inputs, outputs = settings.get(_INPUT_IDS), settings.get(_OUTPUT_IDS)
  ids = outputs if inputs is None else inputs
  if not isinstance(ids, list) or not all(type(i) is int for i in ids):
    raise ValueError(
      f'{_OUTPUT_IDS} or {_INPUT_IDS} must be a list of integers, got {ids!r}.'
    )
  return tuple(i + (inputs is None) for i in ids)


_READERS: dict[str, Any] = {
  'eagle': _eagle_config,
  'eagle3': _eagle3_config,
  'speculators': _eagle3_config,
  **{name: functools.partial(_medusa_config, name) for name in _MEDUSA},
  'dflash': _dflash_config,
}


def _draft_size(fields: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the option `head_size`, if a config has one."""
  size = fields.get('draft_vocab_size')
  return {} if size is None else {'head_size': size}


def _taps(
  fields: Mapping[str, Any], inner: Mapping[str, Any], target: config_lib.Config
) -> dict[str, Any]:
  """Returns the option `taps`, if a config defines them.

  At the top level of a config, the ids count the inputs of layers, as in vLLM.
  Inside of `eagle_config`, some count inputs, and others outputs, as those from
  SpecForge, whose first id is 1.

  Args:
    fields: fields of `config.json`.
    inner: its field `eagle_config`.
    target: config of the target.
  """
  ids = fields.get(_LAYER_IDS)
  is_inside = ids is None
  if is_inside:
    ids = inner.get(_LAYER_IDS)
  if ids is None:
    return {}
  if not isinstance(ids, list) or not all(type(i) is int for i in ids):
    raise ValueError(f'{_LAYER_IDS} must be a list of integers, got {ids!r}.')
  inputs = tuple(ids)
  if not is_inside or inputs == heads.default_taps(target.num_layers):
    return {'taps': inputs}
  outputs = tuple(i + 1 for i in ids)
  if ids[:1] != [1]:
    raise ValueError(
      f'{_LAYER_IDS} in eagle_config is {ids}, which may count inputs or '
      'outputs of layers: write the inputs at the top level of config.json '
      f'instead, {[*inputs]} or {[*outputs]}.'
    )
  return {'taps': outputs}


def _check_size(fields: Mapping[str, Any], target: config_lib.Config) -> None:
  """Raises `ValueError` if a config names another width of the target."""
  size = fields.get('target_hidden_size') or target.d_model
  if size != target.d_model:
    raise ValueError(
      f'target_hidden_size is {size}, but the target is {target.d_model} wide.'
    )


def _with_layer(
  config: head_config.HeadConfig, fields: Mapping[str, Any]
) -> head_config.HeadConfig:
  """Returns a config with the layer that the fields of its file describe.

  Args:
    config: config of the head.
    fields: fields of the layer, as in the `config.json` of a Llama model.
  """
  llama_fields = {'tie_word_embeddings': False, **fields}
  llama_fields |= {'model_type': 'llama', 'num_hidden_layers': 1}
  model_type = fields.get('model_type')
  is_block_head = isinstance(config, head_config.DFlashConfig)
  layer = architectures.read_config(llama_fields)
  for name in ('vocab_size', 'd_model'):
    value, expected = getattr(layer, name), getattr(config.layer, name)
    if value != expected:
      raise ValueError(
        f'The head belongs to another target: its {name} is {value}, but this '
        f'target has {expected}.'
      )
  assert isinstance(layer, config_lib.TransformerConfig)  # Llama's config.
  layer = dataclasses.replace(
    layer,
    qkv_bias=layer.qkv_bias or model_type == 'qwen2',
    # Other heads have Llama's layer on a target with normalized queries, too.
    qk_norm=is_block_head and model_type == 'qwen3',
    tie_embeddings=config.layer.tie_embeddings,
    head_size=config.layer.head_size,
  )
  return dataclasses.replace(config, layer=layer)


# Writing a config.


def _layer_fields(config: head_config.HeadConfig) -> dict[str, Any]:
  """Returns the fields of the layer, as in a Llama model's `config.json`."""
  plain = dataclasses.replace(
    config.layer, tie_embeddings=False, head_size=None
  )
  fields = architectures.write_config(plain)
  return {**fields, 'num_hidden_layers': 1}


def _check_layer(config: head_config.HeadConfig) -> None:
  """Raises `ValueError` unless the layer is Llama's, with or without biases."""
  if isinstance(config, head_config.MedusaConfig):
    return
  restored = _with_layer(config, _layer_fields(config)).layer
  fields = dataclasses.asdict(config.layer)
  different = [
    name for name, value in dataclasses.asdict(restored).items()
    if value != fields[name]
  ]  # fmt: skip
  if different:
    raise ValueError(
      'A published head must have a layer as in Llama, but this one differs in '
      f'{", ".join(different)}.'
    )


def _eagle_fields(config: head_config.EagleConfig) -> dict[str, Any]:
  """Returns the fields of an EAGLE head."""
  fields = {**_layer_fields(config), 'bias': config.bias}
  if config.layer.head_size is not None:
    fields['draft_vocab_size'] = config.layer.head_size
  return fields


def _eagle3_fields(config: head_config.Eagle3Config) -> dict[str, Any]:
  """Returns the fields of an EAGLE-3 head, in the format of its authors."""
  return {
    **_layer_fields(config),
    'draft_vocab_size': config.layer.head_size or config.layer.vocab_size,
    'target_hidden_size': config.layer.d_model,
    **_norm_fields(config),
    _LAYER_IDS: [*config.taps],
  }


def _norm_fields(config: head_config.Eagle3Config) -> dict[str, bool]:
  """Returns the settings that EAGLE-3's authors do not have."""
  return {
    'norm_before_residual': config.norm_before_residual,
    'norm_before_fc': config.norm_before_fc,
    'fc_norm': config.norm_taps,
    'norm_output': config.norm_output,
  }


def _speculators_fields(config: head_config.Eagle3Config) -> dict[str, Any]:
  """Returns the fields of an EAGLE-3 head, in the format of speculators."""
  return {
    'speculators_model_type': 'eagle3',
    'draft_vocab_size': config.layer.head_size or config.layer.vocab_size,
    'target_hidden_size': config.layer.d_model,
    **_norm_fields(config),
    _LAYER_IDS: [*config.taps],
    'transformer_layer_config': _layer_fields(config),
  }


def _medusa_fields(config: head_config.MedusaConfig) -> dict[str, Any]:
  """Returns the fields of Medusa's heads."""
  return {
    'medusa_num_heads': config.num_steps,
    'medusa_num_layers': config.num_blocks,
    **({} if config.own_heads else {'version': '2'}),
  }


def _vllm_medusa_fields(config: head_config.MedusaConfig) -> dict[str, Any]:
  """Returns the fields of Medusa's heads in vLLM, which has its own format."""
  layer = config.layer
  return {
    'model_type': 'medusa',
    'hidden_size': layer.d_model,
    'vocab_size': layer.vocab_size,
    'truncated_vocab_size': layer.head_size or layer.vocab_size,
    'num_heads': config.num_steps,
    'num_hidden_layers': config.num_blocks,
    'medusa_fc_bias': True,
    'original_lm_head': not config.own_heads,
  }


def _dflash_fields(config: head_config.DFlashConfig) -> dict[str, Any]:
  """Returns the fields of a block head, in the format of speculators."""
  layer = {**_layer_fields(config), 'num_hidden_layers': config.num_layers}
  return {
    'speculators_model_type': 'dspark' if config.predicts_next else 'dflash',
    'draft_vocab_size': config.layer.head_size or config.layer.vocab_size,
    'target_hidden_size': config.layer.d_model,
    'block_size': config.block_size,
    'mask_token_id': config.mask_token,
    'sample_from_anchor': config.predicts_next,
    'markov_rank': config.markov_rank,
    _INPUT_IDS: [*config.taps],
    'transformer_layer_config': layer,
  }


def _dflash_authors_fields(config: head_config.DFlashConfig) -> dict[str, Any]:
  """Returns the fields of a block head, in the format of DFlash's authors."""
  settings = {
    'mask_token_id': config.mask_token,
    _OUTPUT_IDS: [tap - 1 for tap in config.taps],
  }
  return {**_block_fields(config), 'dflash_config': settings}


def _dspark_authors_fields(config: head_config.DFlashConfig) -> dict[str, Any]:
  """Returns the fields of a block head, in the format of DSpark's authors."""
  return {
    **_block_fields(config),
    'mask_token_id': config.mask_token,
    _OUTPUT_IDS: [tap - 1 for tap in config.taps],
    'markov_rank': config.markov_rank,
    'markov_head_type': 'vanilla',
    'enable_confidence_head': False,
  }


def _block_fields(config: head_config.DFlashConfig) -> dict[str, Any]:
  """Returns the fields that both formats of authors have."""
  fields = {**_layer_fields(config), 'num_hidden_layers': config.num_layers}
  if config.layer.head_size is not None:
    fields['draft_vocab_size'] = config.layer.head_size
  return {**fields, 'block_size': config.block_size}


_WRITERS: dict[str, Any] = {
  'eagle': _eagle_fields,
  'eagle3': _eagle3_fields,
  'speculators': _speculators_fields,
  'medusa': _medusa_fields,
  'medusa_in_vllm': _vllm_medusa_fields,
  'dflash': _dflash_fields,
  'dflash_authors': _dflash_authors_fields,
  'dspark_authors': _dspark_authors_fields,
}


# Names of arrays.


def _names(
  config: head_config.HeadConfig, layout: str
) -> dict[str, tuple[str, jax.ShapeDtypeStruct]]:
  """Returns our name and the published shape of each array, by its name.

  Arrays that the head shares with its target are left out.
  """
  modules = _modules(config, layout)
  leaves = checkpoint.flatten(flax_modules.abstract_params(config))
  names = {}
  for name, leaf in leaves.items():
    top = name.split('/')[0]
    if top in (*heads.shared_names(config), 'embedding', 'head_rows'):
      continue
    module, suffix = name.rsplit('/', 1)
    hf_name = f'{modules[module]}.{_SUFFIXES[suffix]}'
    transpose = functools.partial(_transpose, name)
    names[hf_name] = name, jax.eval_shape(transpose, leaf)
  return names


def _modules(config: head_config.HeadConfig, layout: str) -> dict[str, str]:
  """Returns the published names of our modules."""
  if isinstance(config, head_config.MedusaConfig):
    steps, blocks = range(config.num_steps), range(config.num_blocks)
    block, output = _MEDUSA[layout]
    names = {
      f'steps/{i}/blocks/{j}': block.format(step=i, block=j)
      for i in steps
      for j in blocks
    }
    for i in steps:
      module = f'more_heads/{i - 1}' if i else 'head'
      names[module] = output.format(step=i, num_blocks=config.num_blocks)
    return names
  prefix = _PREFIXES[layout]
  names = dict(_TOP)
  if isinstance(config, head_config.DFlashConfig):
    layers = {f'layers/{i}': f'{prefix}{i}.' for i in range(config.num_layers)}
    names |= _BLOCK
  else:
    layers = {'layer': prefix}
    names |= {name: f'{prefix}{norm}' for name, norm in _NORMS.items()}
  for layer, hf_layer in layers.items():
    for name, hf_name in _LAYER.items():
      names[f'{layer}/{name}'] = f'{hf_layer}{hf_name}'
  for i in range(len(config.taps)):
    names[f'tap_norms/{i}'] = f'fc_norm.{i}'
  return names


def _transpose(name: str, array: jax.Array) -> jax.Array:
  """Transposes kernels; published ones have the outputs as first axis."""
  return array.T if name.endswith('/kernel') else array


def _vocabulary(
  shapes: Mapping[str, jax.ShapeDtypeStruct],
) -> str | None:
  """Returns the name of the array with the tokens of a reduced vocabulary."""
  return next((n for n in (_TO_TARGET, _TOKEN_MAP) if n in shapes), None)


def _rows(
  tensors: weights.Tensors, config: head_config.HeadConfig
) -> np.ndarray:
  """Returns the row of each token in the output head; see `cutting`."""
  size, vocab_size = config.layer.head_size, config.layer.vocab_size
  name = _vocabulary(tensors.shapes)
  assert name is not None
  tokens = np.asarray(tensors.read(name))
  if name == _TO_TARGET:
    tokens = tokens + np.arange(len(tokens))
  if len(tokens) != size:
    raise ValueError(
      f'{name} must have draft_vocab_size={size} entries, got {len(tokens)}.'
    )
  is_valid = (0 <= tokens) & (tokens < vocab_size)
  if not is_valid.all() or len(np.unique(tokens)) < len(tokens):
    raise ValueError(
      f'{name} must map to different tokens in [0, {vocab_size}), got '
      f'some from {tokens.min()} to {tokens.max()}.'
    )
  if _IS_DRAFTED in tensors.shapes:
    drafted = np.flatnonzero(tensors.read(_IS_DRAFTED))
    if not np.array_equal(drafted, np.sort(tokens)):
      raise ValueError(
        f'{_IS_DRAFTED} must be true for exactly the tokens of {_TO_TARGET}.'
      )
  return cutting.head_rows(tokens, vocab_size)
