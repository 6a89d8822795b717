"""Heads as their authors publish them: EAGLE, EAGLE-3 in two layouts, Medusa.

What a head shares with its target, the embedding and for some the output head,
is taken from the target. Where a file has a copy of it, the two are compared.
"""

import dataclasses
import re
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.models import head_config
from specjax.models import heads
from specjax.models.huggingface import architectures
from specjax.models.huggingface import weights

_SUFFIXES = {'kernel': 'weight', 'scale': 'weight', 'bias': 'bias'}
_LAYER = {
  'layer/attention/query': 'self_attn.q_proj',
  'layer/attention/key': 'self_attn.k_proj',
  'layer/attention/value': 'self_attn.v_proj',
  'layer/attention/out': 'self_attn.o_proj',
  'layer/feed_forward_norm': 'post_attention_layernorm',
  'layer/feed_forward/gate': 'mlp.gate_proj',
  'layer/feed_forward/up': 'mlp.up_proj',
  'layer/feed_forward/down': 'mlp.down_proj',
}
_NORMS = {'token_norm': 'input_layernorm', 'input_norm': 'hidden_norm'}
_OWN_HEAD = {'join': 'fc', 'final_norm': 'norm', 'head': 'lm_head'}
_EMBEDDING = re.compile(r'^(model\.)?embed_tokens\.weight$')
# What a head's file may be called, beside the usual name.
FILES = ('medusa_lm_head.safetensors',)
# Fields that the `config.json` of some heads has, and of no model.
FIELDS = ('medusa_num_heads', 'speculators_model_type')
# A draft vocabulary: `d2t[j]` is the distance from `j` to its token.
_TO_TARGET, _IS_DRAFTED = 'd2t', 't2d'
_OUTPUT = 'lm_head.weight'
_LAYER_IDS = 'eagle_aux_hidden_state_layer_ids'
# By how much a copy of what is the target's may differ from it, which may be
# quantized; relative, in root mean square. Other weights differ by 1 or more.
_TOLERANCE = 0.1
_CHUNK = 4096  # Rows that are compared at a time.


class _Layout(NamedTuple):
  """How somebody writes heads of one kind."""

  kind: str
  prefix: str  # of the layer


_LAYOUTS = {
  'eagle': _Layout('eagle', 'layers.0.'),
  'eagle3': _Layout('eagle3', 'midlayer.'),
  'speculators': _Layout('eagle3', 'layers.0.'),
  'medusa': _Layout('medusa', ''),
}


def read(
  fields: dict[str, Any],
  tensors: weights.Tensors,
  target: config_lib.Config,
  params: base.Params,
) -> tuple[head_config.HeadConfig, base.Params]:
  """Reads a published head.

  Args:
    fields: of its `config.json`.
    tensors: its arrays.
    target: the target's config.
    params: the target's parameters, some of which the head shares.

  Returns:
    The config, and float32 parameters.

  Raises:
    ValueError: it is none of the known layouts, asks for what is not supported,
      or does not fit to the target or to its own config; every array that
      differs is listed.
  """
  layout = _layout(fields, tensors.shapes)
  if layout is None:
    raise ValueError(
      'These arrays are of no known head (EAGLE, EAGLE-3, speculators or '
      f'Medusa): {", ".join(sorted(tensors.shapes)[:6])}.'
    )
  copies = {name for name in tensors.shapes if _EMBEDDING.search(name)}
  shapes = {n: each for n, each in tensors.shapes.items() if n not in copies}
  config = _READERS[layout](fields, shapes, target)
  rows = None
  drop = set()
  if _TO_TARGET in shapes:
    rows = _rows(tensors, config)
    drop = {_TO_TARGET, _IS_DRAFTED}
  if 'head' in heads.shared(config):
    copies |= {_OUTPUT} & shapes.keys()
  names = _names(config, layout)
  weights.check(
    {n: each for n, each in shapes.items() if n not in drop | copies},
    {theirs: shape for theirs, (_, shape) in names.items()},
  )
  for name in sorted(copies):
    _check_copy(name, tensors, params)
  arrays = {
    ours: _turned(ours, jnp.asarray(tensors.read(theirs), jnp.float32))
    for theirs, (ours, _) in names.items()
  }
  if rows is not None:
    arrays['head_rows'] = jnp.asarray(rows)
  elif config.layer.head_size == config.layer.vocab_size:  # In their order.
    arrays['head_rows'] = jnp.arange(config.layer.vocab_size, dtype=jnp.int32)
  elif config.layer.head_size is not None:
    raise ValueError(f'Weights and config do not fit: {_TO_TARGET} is missing.')
  arrays |= checkpoint.flatten(
    heads.lend(config, params, arrays.get('head_rows'))
  )
  return config, checkpoint.unflatten(
    arrays, adapters.abstract_params(config), 'The head'
  )


def write(
  config: head_config.HeadConfig, params: base.Params
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """Returns the fields of `config.json`, and arrays, as `read` takes them.

  EAGLE-3's heads are written as by its authors, those with settings of their
  own in the layout of speculators.

  Args:
    config: of the head.
    params: of the head.

  Raises:
    ValueError: its layer is none that `read` knows.
  """
  layout: str = config.kind
  if isinstance(config, head_config.Eagle3Config) and (
    config.norm_taps or config.norm_output or config.norm_before_residual
  ):
    layout = 'speculators'
  _check_layer(config)
  leaves = checkpoint.flatten(params)
  arrays = {
    theirs: np.asarray(_turned(ours, leaves[ours]))
    for theirs, (ours, _) in _names(config, layout).items()
  }
  if 'head_rows' in params:
    rows = np.asarray(params['head_rows'])
    drafted = cutting.head_tokens(rows)
    arrays[_TO_TARGET] = drafted.astype(np.int64) - np.arange(len(drafted))
    arrays[_IS_DRAFTED] = rows >= 0
  return _WRITERS[layout](config), arrays


def is_head(fields: dict[str, Any], tensors: weights.Tensors) -> bool:
  """Returns whether files are those of a head, not of a language model."""
  return _layout(fields, tensors.shapes) is not None


def _layout(fields, shapes):
  """Whose files these are; None if they are not those of a head."""
  if any(name.startswith('midlayer.') for name in shapes):
    return 'eagle3'
  if 'transformer_layer_config' in fields:
    return 'speculators'
  if any(re.match(r'^\d+\.\d+\.linear\.weight$', name) for name in shapes):
    return 'medusa'
  return 'eagle' if 'fc.weight' in shapes else None


def _check_copy(name, tensors, params):
  """Refuses weights that should be the target's, but are not."""
  ours = params['embedding']['embedding']
  if name == _OUTPUT:
    ours = cutting.head_of(params, None)['kernel'].T
  theirs = tensors.read(name)
  if theirs.shape[1:] != ours.shape[1:]:
    raise ValueError(
      f'{name} must be as wide as that of the target, {ours.shape[1]}, got the '
      f'shape {theirs.shape}.'
    )
  gap = size = 0.0
  for i in range(0, min(len(theirs), len(ours)), _CHUNK):  # Some are padded.
    a, b = (np.asarray(x[i : i + _CHUNK], np.float32) for x in (theirs, ours))
    num = min(len(a), len(b))
    gap += np.square(a[:num] - b[:num]).sum()
    size += np.square(b[:num]).sum()
  if not gap <= _TOLERANCE**2 * size:
    raise ValueError(
      f'{name} differs from that of the target: the head is of another target, '
      'or has an embedding or output head of its own, which is not supported.'
    )


# Config in.

# Fields of which one value is supported, which is also what their lack means.
_ALLOWED = {
  'norm_before_fc': False,
  'speculators_model_type': 'eagle3',
  'use_aux_hidden_state': True,
}


def _eagle_config(fields, shapes, target):
  config = heads.configure(
    'eagle', target, bias=fields.get('bias', True), **_draft_size(fields)
  )
  return _with_layer(config, fields)


def _eagle3_config(fields, shapes, target):
  """Reads both layouts, which share most of their fields."""
  inner = fields.get('eagle_config') or {}
  layer = fields.get('transformer_layer_config', fields)
  for name, value in (
    ('eagle_config', inner),
    ('transformer_layer_config', layer),
  ):
    if not isinstance(value, dict):
      raise ValueError(f'{name} must be an object, got {value!r}.')
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
    **_taps(fields, inner, target),
  )
  return _with_layer(config, layer)


def _medusa_config(fields, shapes, target):
  steps = {name.split('.')[0] for name in shapes if re.match(r'\d+\.', name)}
  blocks = [re.fullmatch(r'0\.(\d+)\.linear\.weight', name) for name in shapes]
  num_blocks = sum(found is not None for found in blocks)
  own = f'0.{num_blocks}.weight' in shapes
  return heads.configure(
    'medusa',
    target,
    # Some configs of version 0.1 give another number of heads.
    num_steps=len(steps),
    num_blocks=num_blocks,
    own_heads=own,
  )


_READERS: dict[str, Any] = {
  'eagle': _eagle_config,
  'eagle3': _eagle3_config,
  'speculators': _eagle3_config,
  'medusa': _medusa_config,
}


def _draft_size(fields):
  size = fields.get('draft_vocab_size')
  return {} if size is None else {'head_size': size}


def _taps(fields, inner, target):
  """The features that are read, if a config says it.

  At its top level, the ids count what enters a layer, as in vLLM. Inside of
  `eagle_config`, some count so, and others what leaves it: SpecForge, whose
  first id is 1.
  """
  ids = fields.get(_LAYER_IDS)
  is_inside = ids is None
  if is_inside:
    ids = inner.get(_LAYER_IDS)
  if ids is None:
    return {}
  if not isinstance(ids, list) or not all(type(each) is int for each in ids):
    raise ValueError(f'{_LAYER_IDS} must be a list of integers, got {ids!r}.')
  entering = tuple(ids)
  if not is_inside or entering == heads.default_taps(target.num_layers):
    return {'taps': entering}
  leaving = tuple(each + 1 for each in ids)
  if ids[:1] != [1]:
    raise ValueError(
      f'{_LAYER_IDS} in eagle_config is {ids}, which may count what enters '
      'these layers or what leaves them: write what enters layers at the top '
      f'level of config.json instead, {[*entering]} or {[*leaving]}.'
    )
  return {'taps': leaving}


def _check_size(fields, target):
  size = fields.get('target_hidden_size') or target.d_model
  if size != target.d_model:
    raise ValueError(
      f'target_hidden_size is {size}, but the target is {target.d_model} wide.'
    )


def _with_layer(config, fields):
  """The layer as its own config describes it: heads, widths, rotation."""
  # What is not there means the same as in a Llama file.
  read_fields = {'tie_word_embeddings': False, **fields}
  read_fields |= {'model_type': 'llama', 'num_hidden_layers': 1}
  bias = fields.get('model_type') == 'qwen2'
  own = architectures.read_config(read_fields)
  for name in ('vocab_size', 'd_model'):
    theirs, ours = getattr(own, name), getattr(config.layer, name)
    if theirs != ours:
      raise ValueError(
        f'The head is of another target: its {name} is {theirs}, that of the '
        f'target is {ours}.'
      )
  assert isinstance(own, config_lib.TransformerConfig)  # As Llama is.
  layer = dataclasses.replace(
    own,
    qkv_bias=own.qkv_bias or bias,
    tie_embeddings=config.layer.tie_embeddings,
    head_size=config.layer.head_size,
  )
  return dataclasses.replace(config, layer=layer)


# Config out.


def _layer_fields(config):
  """The layer as a Llama file says it."""
  plain = dataclasses.replace(
    config.layer, tie_embeddings=False, head_size=None
  )
  fields = architectures.write_config(plain)
  return {**fields, 'num_hidden_layers': 1}


def _check_layer(config):
  """Refuses a layer that is no Llama's, but for a bias of Qwen2."""
  if isinstance(config, head_config.MedusaConfig):
    return
  again = _with_layer(config, _layer_fields(config)).layer
  fields = dataclasses.asdict(config.layer)
  other = [
    name for name, value in dataclasses.asdict(again).items()
    if value != fields[name]
  ]  # fmt: skip
  if other:
    raise ValueError(
      'Heads are published with a layer as in Llama; this one differs in '
      f'{", ".join(other)}.'
    )


def _eagle_fields(config):
  fields = {**_layer_fields(config), 'bias': config.bias}
  if config.layer.head_size is not None:
    fields['draft_vocab_size'] = config.layer.head_size
  return fields


def _eagle3_fields(config):
  return {
    **_layer_fields(config),
    'draft_vocab_size': config.layer.head_size or config.layer.vocab_size,
    'target_hidden_size': config.layer.d_model,
    _LAYER_IDS: [*config.taps],
  }


def _speculators_fields(config):
  return {
    'speculators_model_type': 'eagle3',
    'draft_vocab_size': config.layer.head_size or config.layer.vocab_size,
    'target_hidden_size': config.layer.d_model,
    'norm_before_residual': config.norm_before_residual,
    'norm_output': config.norm_output,
    _LAYER_IDS: [*config.taps],
    'transformer_layer_config': _layer_fields(config),
  }


def _medusa_fields(config):
  return {
    'medusa_num_heads': config.num_steps,
    'medusa_num_layers': config.num_blocks,
    **({} if config.own_heads else {'version': '2'}),
  }


_WRITERS: dict[str, Any] = {
  'eagle': _eagle_fields,
  'eagle3': _eagle3_fields,
  'speculators': _speculators_fields,
  'medusa': _medusa_fields,
}


# Names.


def _names(config, layout):
  """`{theirs: (ours, shape)}` of what the head does not share."""
  modules = _modules(config, layout)
  leaves = checkpoint.flatten(adapters.abstract_params(config))
  names = {}
  for ours, leaf in leaves.items():
    top = ours.split('/')[0]
    if top in (*heads.shared(config), 'embedding', 'head_rows'):
      continue
    module, suffix = ours.rsplit('/', 1)
    theirs = f'{modules[module]}.{_SUFFIXES[suffix]}'
    names[theirs] = ours, jax.eval_shape(lambda x, n=ours: _turned(n, x), leaf)
  return names


def _modules(config, layout):
  """What they call our modules."""
  if isinstance(config, head_config.MedusaConfig):
    steps, blocks = range(config.num_steps), range(config.num_blocks)
    names = {
      f'steps/{i}/blocks/{j}': f'{i}.{j}.linear' for i in steps for j in blocks
    }
    names['head'] = f'0.{config.num_blocks}'
    for i in steps[1:]:
      names[f'more_heads/{i - 1}'] = f'{i}.{config.num_blocks}'
    return names
  prefix = _LAYOUTS[layout].prefix
  names = {ours: f'{prefix}{theirs}' for ours, theirs in _LAYER.items()}
  names |= {ours: f'{prefix}{theirs}' for ours, theirs in _NORMS.items()}
  names |= _OWN_HEAD
  for i in range(len(config.taps)):
    names[f'tap_norms/{i}'] = f'fc_norm.{i}'
  return names


def _turned(name, array):
  """Their matrices have the outputs in front."""
  return array.T if name.endswith('/kernel') else array


def _rows(tensors, config):
  """The place of each token in the head."""
  size, vocab_size = config.layer.head_size, config.layer.vocab_size
  to_target = tensors.read(_TO_TARGET)
  tokens = np.asarray(to_target) + np.arange(len(to_target))
  if len(tokens) != size:
    raise ValueError(
      f'{_TO_TARGET} must have draft_vocab_size={size} entries, got '
      f'{len(tokens)}.'
    )
  inside = (0 <= tokens) & (tokens < vocab_size)
  if not inside.all() or len(np.unique(tokens)) < len(tokens):
    raise ValueError(
      f'{_TO_TARGET} must map to different tokens in [0, {vocab_size}), got '
      f'some from {tokens.min()} to {tokens.max()}.'
    )
  if _IS_DRAFTED in tensors.shapes:
    drafted = np.flatnonzero(tensors.read(_IS_DRAFTED))
    if not np.array_equal(drafted, np.sort(tokens)):
      raise ValueError(
        f'{_IS_DRAFTED} must be true for the tokens of {_TO_TARGET} only.'
      )
  return cutting.head_rows(tokens, vocab_size)
