"""Heads as their authors publish them: EAGLE, EAGLE-3 in two layouts, Medusa.

What a head shares with its target, the embedding and for some the output head,
is taken from the target, also where a file has a copy of it.
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
from specjax.models.huggingface import families
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
# A draft vocabulary: `d2t[j]` is the distance from `j` to its token.
_TO_TARGET, _IS_DRAFTED = 'd2t', 't2d'


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
  shapes = {
    name: shape
    for name, shape in tensors.shapes.items()
    if not _EMBEDDING.search(name)
  }
  layout = _layout(fields, shapes)
  config = _READERS[layout](fields, shapes, target)
  rows = None
  if _TO_TARGET in shapes:
    rows = _rows(tensors.read(_TO_TARGET), config)
  drop = {_TO_TARGET, _IS_DRAFTED} | (
    {'lm_head.weight'} if 'head' in heads.shared(config) else set()
  )
  names = _names(config, layout)
  kept = {name: each for name, each in shapes.items() if name not in drop}
  problems = checkpoint.differences(
    kept, {theirs: shape for theirs, (_, shape) in names.items()}
  )
  if problems:
    raise ValueError(f'Weights and config do not fit: {"; ".join(problems)}.')
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


def _layout(fields, shapes):
  """Whose files these are."""
  if any(name.startswith('midlayer.') for name in shapes):
    return 'eagle3'
  if 'transformer_layer_config' in fields:
    return 'speculators'
  if any(re.match(r'^\d+\.\d+\.linear\.weight$', name) for name in shapes):
    return 'medusa'
  if 'fc.weight' in shapes:
    return 'eagle'
  raise ValueError(
    'These arrays are of no known head (EAGLE, EAGLE-3, speculators or '
    f'Medusa): {", ".join(sorted(shapes)[:6])}.'
  )


# Config in.


def _eagle_config(fields, shapes, target):
  config = heads.configure(
    'eagle', target, bias=fields.get('bias', True), **_draft_size(fields)
  )
  return _with_layer(config, fields)


def _eagle3_config(fields, shapes, target):
  _check_size(fields, target)
  config = heads.configure(
    'eagle3',
    target,
    head_size=fields.get('draft_vocab_size', target.vocab_size),
    **_taps(fields.get('eagle_config', {})),
  )
  return _with_layer(config, fields)


def _speculators_config(fields, shapes, target):
  if fields.get('norm_before_fc'):
    raise ValueError('norm_before_fc is not supported.')
  layer = fields['transformer_layer_config']
  _check_size(fields, target)
  config = heads.configure(
    'eagle3',
    target,
    head_size=fields.get('draft_vocab_size', target.vocab_size),
    norm_taps=any(name.startswith('fc_norm.') for name in shapes),
    norm_output=bool(fields.get('norm_output', False)),
    norm_before_residual=bool(fields.get('norm_before_residual', False)),
    **_taps(fields),
  )
  return _with_layer(config, layer)


def _medusa_config(fields, shapes, target):
  steps = {int(name.split('.')[0]) for name in shapes}
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
  'speculators': _speculators_config,
  'medusa': _medusa_config,
}


def _draft_size(fields):
  size = fields.get('draft_vocab_size')
  return {} if size is None else {'head_size': size}


def _taps(fields):
  taps = fields.get('eagle_aux_hidden_state_layer_ids')
  return {} if taps is None else {'taps': tuple(taps)}


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
  own = families.read_config(read_fields)
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
  fields = families.write_config(plain)
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
    'eagle_config': {'eagle_aux_hidden_state_layer_ids': [*config.taps]},
  }


def _speculators_fields(config):
  return {
    'speculators_model_type': 'eagle3',
    'draft_vocab_size': config.layer.head_size or config.layer.vocab_size,
    'target_hidden_size': config.layer.d_model,
    'norm_before_residual': config.norm_before_residual,
    'norm_output': config.norm_output,
    'eagle_aux_hidden_state_layer_ids': [*config.taps],
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


def _rows(to_target, config):
  """The place of each token in the head."""
  size, vocab_size = config.layer.head_size, config.layer.vocab_size
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
  return cutting.head_rows(tokens, vocab_size)
