"""How servers read the files of a head, in NumPy, without the library.

Each function of `SERVERS` takes a folder, checks it as the server does, and
returns a `Head`, a `BlockHead` or `MedusaHeads`. Sources, of September 2026:
`SpeculatorsConfig`, `EAGLEConfig`, `MedusaConfig`, `SpeculativeConfig`,
`algos.py`, `llama_eagle.py`, `llama_eagle3.py`, `medusa.py`, `qwen3_dflash.py`,
`qwen3_dspark.py` and the speculators of the latter two in vLLM;
`llama_eagle.py`, `llama_eagle3.py`, `spec_aux_hidden_state.py`, `dflash.py`,
`dspark.py`, `dflash_utils.py` and `dspark_config.py` in SGLang;
`conversion/llama.py`, `conversion/qwen.py`, `src/models/eagle3.cpp` and
`src/models/dflash.cpp` in llama.cpp. What servers take from the target is an
argument: its config, embedding and output head.
"""

import dataclasses
import json
import pathlib

import numpy as np
from safetensors import numpy as safetensors_numpy


@dataclasses.dataclass
class Target:
  """The served model: number of layers, `[V, F]` embedding and output head."""

  num_layers: int
  embedding: np.ndarray
  head: np.ndarray


@dataclasses.dataclass
class Head:
  """A head as a server holds it; weights have the outputs as first axis.

  Attributes:
    taps: layers of the target whose inputs are read; () for the final states.
    weights: by the server's names.
    target_ids: `[H]` token of each row of the output head.
    draft_length: draft tokens per round, if the files define it.
  """

  taps: tuple
  weights: dict
  config: dict
  target: Target
  target_ids: np.ndarray
  draft_length: int | None = None
  interleaved: bool = False  # How the rotated halves of a head are stored.
  norm_before_residual: bool = False
  norm_output: bool = False

  def fuse(self, states):
    """Joins the target's states, `[T, F]` each, to `[T, F]`."""
    if not self.taps:
      return states[0]
    weights = self.weights
    if 'fc_norm.0' in weights:
      states = [self._norm(x, f'fc_norm.{i}') for i, x in enumerate(states)]
    joined = np.concatenate(states, axis=-1)
    if 'input_norm' in weights:
      joined = self._norm(joined, 'input_norm')
    return joined @ weights['fc'].T

  def step(self, tokens, hidden):
    """Reads tokens `[T]` and states `[T, F]`.

    Returns:
      `[T, F]` states for the next step, and `[T, V]` logits; -inf for tokens
      that are never drafted.
    """
    embeddings = self.target.embedding[tokens]
    if not self.taps:
      joined = np.concatenate([embeddings, hidden], axis=-1)
      x = residual = joined @ self.weights['fc'].T + self.weights['fc.bias']
    else:
      normed = self._norm(hidden, 'hidden_norm')
      residual = normed if self.norm_before_residual else hidden
      x = [self._norm(embeddings, 'input_layernorm'), normed]
      x = np.concatenate(x, axis=-1)
    x = residual + self._attention(x)
    normed = self._norm(x, 'post_attention_layernorm')
    gate, up = (normed @ self.weights[f'{n}_proj'].T for n in ('gate', 'up'))
    x = x + (gate / (1 + np.exp(-gate)) * up) @ self.weights['down_proj'].T
    normed = self._norm(x, 'norm') if self.taps else x
    rows = normed @ self.weights['lm_head'].T
    logits = np.full((len(rows), len(self.target.embedding)), -np.inf)
    logits[:, self.target_ids] = rows
    return normed if self.norm_output else x, logits

  def _norm(self, x, name):
    return _normed(x, self.weights[name], self.config)

  def _attention(self, x):
    config = self.config
    size = config['head_dim']
    query, key, value = (
      (x @ self.weights[f'{n}_proj'].T).reshape(len(x), -1, size) for n in 'qkv'
    )
    positions = np.arange(len(x))
    query, key = (
      _rotated(part, positions, config, self.interleaved)
      for part in (query, key)
    )
    mask = np.tri(len(x), dtype=bool)
    return _mixed(query, key, value, mask) @ self.weights['o_proj'].T


@dataclasses.dataclass
class BlockHead:
  """A head of DFlash or DSpark as a server holds it.

  Attributes:
    taps: See `Head`.
    weights: by the names in the files, without `.weight`.
    config: See `Head`.
    target: See `Head`.
    target_ids: See `Head`.
    mask_token: the token that stands for a token to predict.
    block_size: tokens of a block, with the last committed one.
    predicts_next: whether the last committed token also predicts.
  """

  taps: tuple
  weights: dict
  config: dict
  target: Target
  target_ids: np.ndarray
  mask_token: int
  block_size: int
  predicts_next: bool
  draft_length = None

  def draft(self, states, before):
    """Predicts a block after `T` states of the target.

    Args:
      states: `[T, F]` each, one for each tap.
      before: `[D]` tokens before the predicted ones. The first is the last
        committed token, at position `T`.

    Returns:
      `[D, F]` outputs, and `[D, V]` logits; -inf for tokens that are never
      drafted.
    """
    weights = self.weights
    joined = np.concatenate(states, axis=-1) @ weights['fc'].T
    context = self._norm(joined, 'hidden_norm')
    block = np.full(len(before) + (not self.predicts_next), self.mask_token)
    block[0] = before[0]
    x = self.target.embedding[block]
    for i in range(self.config['num_hidden_layers']):
      x = self._layer(x, context, f'layers.{i}.')
    outputs = self._norm(x, 'norm')[-len(before) :]
    rows = outputs @ weights.get('lm_head', self.target.head).T
    if 'markov_head.markov_w1' in weights:
      first = weights['markov_head.markov_w1'][before]
      rows = rows + first @ weights['markov_head.markov_w2'].T
    logits = np.full((len(rows), len(self.target.embedding)), -np.inf)
    logits[:, self.target_ids] = rows
    return outputs, logits

  def _norm(self, x, name):
    return _normed(x, self.weights[name], self.config)

  def _layer(self, x, context, prefix):
    """Returns the block `[T, F]` after a layer; the context has keys only."""
    project = lambda x, name: x @ self.weights[f'{prefix}{name}_proj'].T
    heads = lambda x, name: project(x, f'self_attn.{name}').reshape(
      len(x), -1, self.config['head_dim']
    )
    normed = self._norm(x, f'{prefix}input_layernorm')
    both = np.concatenate([context, normed])
    positions = np.arange(len(both))
    query = self._norm(heads(normed, 'q'), f'{prefix}self_attn.q_norm')
    key = self._norm(heads(both, 'k'), f'{prefix}self_attn.k_norm')
    mixed = _mixed(
      _rotated(query, positions[len(context) :], self.config),
      _rotated(key, positions, self.config),
      heads(both, 'v'),
      True,
    )
    x = x + project(mixed, 'self_attn.o')
    normed = self._norm(x, f'{prefix}post_attention_layernorm')
    gate, up = (project(normed, f'mlp.{name}') for name in ('gate', 'up'))
    return x + project(gate / (1 + np.exp(-gate)) * up, 'mlp.down')


@dataclasses.dataclass
class MedusaHeads:
  """Medusa's heads as vLLM holds them; weights are by its names."""

  weights: dict
  config: dict
  target_ids: np.ndarray
  taps = ()
  draft_length = None

  def predict(self, states):
    """Returns `[T, K, V]` logits of the target's final states `[T, F]`."""
    predicted = []
    for i in range(self.config['num_heads']):
      x = states
      for j in range(self.config['num_hidden_layers']):
        name = f'blocks.{i}.layers.{j}'
        y = x @ self.weights[f'{name}.weight'].T
        y = y + self.weights.get(f'{name}.bias', 0.0)
        x = x + y / (1 + np.exp(-y))
      name = 'lm_head' if self.config['original_lm_head'] else f'lm_heads.{i}'
      logits = np.full((len(x), self.config['vocab_size']), -np.inf)
      logits[:, self.target_ids] = x @ self.weights[f'{name}.weight'].T
      predicted.append(logits)
    return np.stack(predicted, axis=1)


def _normed(x, weight, config):
  """Returns the RMS norm of the last axis."""
  scale = np.sqrt((x**2).mean(-1, keepdims=True) + config['rms_norm_eps'])
  return x / scale * weight


def _rotated(x, positions, config, interleaved=False):
  """Returns queries or keys `[T, H, D]` after the rotary embedding."""
  size = x.shape[-1]
  frequency = config['rope_theta'] ** (-np.arange(0, size, 2) / size)
  angles = positions[:, None, None] * frequency
  if interleaved:
    first, second = x[..., ::2], x[..., 1::2]
  else:
    first, second = np.split(x, 2, axis=-1)
  parts = [
    first * np.cos(angles) - second * np.sin(angles),
    second * np.cos(angles) + first * np.sin(angles),
  ]
  if interleaved:
    return np.stack(parts, axis=-1).reshape(x.shape)
  return np.concatenate(parts, axis=-1)


def _mixed(query, key, value, mask):
  """Returns `[T, H * D]` the attention of queries `[T, H, D]`."""
  repeats = query.shape[1] // key.shape[1]
  key, value = (np.repeat(part, repeats, axis=1) for part in (key, value))
  scores = np.einsum('qhd,khd->hqk', query, key) / query.shape[-1] ** 0.5
  scores = np.where(mask, scores, -np.inf)
  probs = np.exp(scores - scores.max(-1, keepdims=True))
  probs /= probs.sum(-1, keepdims=True)
  return np.einsum('hqk,khd->qhd', probs, value).reshape(len(query), -1)


def _files(folder):
  """Returns the config and the float64 arrays of a folder."""
  folder = pathlib.Path(folder)
  config = json.loads((folder / 'config.json').read_text())
  arrays = safetensors_numpy.load_file(folder / 'model.safetensors')
  return config, {
    name: array.astype(np.float64) if array.dtype.kind == 'f' else array
    for name, array in arrays.items()
  }


def _layer_shapes(config, width, prefix):
  """Returns the shapes of a Llama layer's matrices, by name."""
  size, inner = config['hidden_size'], config['intermediate_size']
  heads, kv_heads, head_dim = (
    config[name]
    for name in ('num_attention_heads', 'num_key_value_heads', 'head_dim')
  )
  return {
    f'{prefix}self_attn.q_proj.weight': (heads * head_dim, width),
    f'{prefix}self_attn.k_proj.weight': (kv_heads * head_dim, width),
    f'{prefix}self_attn.v_proj.weight': (kv_heads * head_dim, width),
    f'{prefix}self_attn.o_proj.weight': (size, heads * head_dim),
    f'{prefix}mlp.gate_proj.weight': (inner, size),
    f'{prefix}mlp.up_proj.weight': (inner, size),
    f'{prefix}mlp.down_proj.weight': (size, inner),
    f'{prefix}post_attention_layernorm.weight': (size,),
  }


def _eagle3_shapes(config, prefix):
  """Returns the shapes of what an EAGLE-3 head has in all servers."""
  size = config['hidden_size']
  return _layer_shapes(config, 2 * size, prefix) | {
    f'{prefix}input_layernorm.weight': (size,),
    f'{prefix}hidden_norm.weight': (size,),
    'fc.weight': (size, 3 * config['target_hidden_size']),
    'norm.weight': (size,),
    'lm_head.weight': (config['draft_vocab_size'], size),
  }


def _norm_shapes(config, layer):
  """Returns the shapes of the norms before the projection, if there are any."""
  size = layer['target_hidden_size']
  shapes = {}
  if config.get('norm_before_fc', False):
    shapes['input_norm.weight'] = (3 * size,)
  if config.get('fc_norm', False):
    shapes |= {f'fc_norm.{i}.weight': (size,) for i in range(3)}
  return shapes


def _check(arrays, shapes, ignored=()):
  """Raises `KeyError` unless the arrays are those of the server's modules."""
  found = {k: v.shape for k, v in arrays.items() if k not in ignored}
  if found != shapes:
    raise KeyError(sorted(set(found.items()) ^ set(shapes.items())))


def _by_module(arrays):
  """Returns arrays by the last parts of their names, as `Head` has them."""
  weights = {}
  for name, array in arrays.items():
    module, _, suffix = name.rpartition('.')
    if not module:  # d2t and t2d.
      continue
    last = module.split('.')[-1]
    if last.isdigit():
      last = '.'.join(module.split('.')[-2:])
    weights[last if suffix == 'weight' else f'{last}.{suffix}'] = array
  return weights


def _draft_ids(arrays, config, vocab_size):
  """Returns the token of each row, from the offsets in `d2t`."""
  size = config['draft_vocab_size']
  ids = np.arange(size) + arrays.get('d2t', np.zeros(size, np.int64))
  assert ids.max() < vocab_size
  return ids


def _vllm_eagle3(folder, target):
  """`vllm serve FOLDER`: a speculators config is validated and translated."""
  config, arrays = _files(folder)
  try:
    settings = config['speculators_config']
    method = settings['proposal_methods'][0]
    draft_length = method['speculative_tokens']
    assert settings['verifier']['name_or_path']
    kind = config['speculators_model_type']
  except (KeyError, IndexError, TypeError) as error:
    raise ValueError('Invalid speculators config structure') from error
  if not isinstance(config.get('transformer_layer_config'), dict):
    raise ValueError('Must provide transformer_layer_config')
  # The library speculators requires these fields, and validates them.
  assert settings['algorithm'] == kind == 'eagle3'
  assert settings['default_proposal_method'] == method['proposal_type']
  assert isinstance(settings['verifier']['architectures'], list)
  assert not (config['norm_before_fc'] and config['fc_norm'])
  ids = config['eagle_aux_hidden_state_layer_ids']
  assert len(set(ids)) == len(ids) and min(ids) >= 1
  layer = dict(config['transformer_layer_config'])
  if layer.get('model_type', 'llama') not in ('llama', 'qwen3'):
    raise ValueError('Unsupported model_type')
  for name in ('draft_vocab_size', 'target_hidden_size'):
    layer[name] = config[name]
  assert layer['num_hidden_layers'] == 1 and layer['vocab_size'] == len(
    target.embedding
  )
  shapes = _eagle3_shapes(layer, 'layers.0.') | _norm_shapes(config, layer)
  _check(arrays, shapes, ('d2t', 't2d'))
  return Head(
    tuple(sorted(ids)),  # The order in which layers are computed.
    _by_module(arrays),
    layer,
    target,
    _draft_ids(arrays, layer, len(target.embedding)),
    draft_length,
    norm_before_residual=config.get('norm_before_residual', True),
    norm_output=config.get('norm_output', False),
  )


def _eagle(config, arrays, target, bias):
  """An EAGLE head, which has the target's embedding and output head."""
  size = config['hidden_size']
  shapes = _layer_shapes(config, size, 'layers.0.')
  shapes |= {'fc.weight': (size, 2 * size)}
  if bias:
    shapes |= {'fc.bias': (size,)}
  # Both load all arrays; an unknown name is a KeyError in vLLM.
  _check(arrays, shapes)
  weights = {'fc.bias': 0.0, 'lm_head': target.head, **_by_module(arrays)}
  return Head((), weights, config, target, np.arange(len(target.head)))


def _vllm_eagle(folder, target):
  """`--speculative-config` with the method eagle."""
  config, arrays = _files(folder)
  (architecture,) = config['architectures']
  assert f'Eagle{architecture}' == 'EagleLlamaForCausalLM'
  return _eagle(config, arrays, target, bias=False)


def _sglang_eagle(folder, target):
  """`--speculative-algorithm EAGLE`; the projection always has a bias."""
  config, arrays = _files(folder)
  assert config['architectures'] == ['LlamaForCausalLMEagle']
  return _eagle(config, arrays, target, bias=True)


def _sglang_eagle3(folder, target):
  """`--speculative-algorithm EAGLE3`; ids count outputs of layers."""
  config, arrays = _files(folder)
  assert config['architectures'] == ['LlamaForCausalLMEagle3']
  assert not config.get('tie_word_embeddings', True)
  n = target.num_layers
  taps = (2, n // 2, n - 3)
  settings = config.get('eagle_config')
  if settings is not None:
    assert settings.get('use_aux_hidden_state', True)
    ids = settings['eagle_aux_hidden_state_layer_ids']
    taps = tuple(sorted(i + 1 for i in ids))
  # Before the first layer, there is no residual stream to add.
  assert min(taps) >= 1
  # Arrays of unknown names are ignored there; a head must have none.
  renamed = {
    name.replace('midlayer', 'layers.0'): array
    for name, array in arrays.items()
  }
  shapes = _eagle3_shapes(config, 'layers.0.') | _norm_shapes(config, config)
  _check(renamed, shapes, ('d2t', 't2d'))
  return Head(
    taps,
    _by_module(renamed),
    config,
    target,
    _draft_ids(arrays, config, len(target.embedding)),
    norm_output=config.get('norm_output', False),
  )


def _llama_cpp_eagle3(folder, target):
  """`convert_hf_to_gguf.py --target-model-dir TARGET FOLDER`, and the graph."""
  raw, arrays = _files(folder)
  assert raw['architectures'][0] in (
    'LlamaForCausalLMEagle3',
    'Eagle3Speculator',
    'Eagle3DraftModel',
  )
  config = {**raw, **raw.get('transformer_layer_config', {})}
  assert 'draft_vocab_size' in config and config['num_hidden_layers'] == 1
  renamed = {
    name.replace('midlayer.', 'layers.0.'): array
    for name, array in arrays.items()
  }
  _check(renamed, _eagle3_shapes(config, 'layers.0.'), ('d2t', 't2d'))
  weights = _by_module(renamed)
  for name, key in (('q', 'num_attention_heads'), ('k', 'num_key_value_heads')):
    # Rotated pairs become neighbors.
    kernel = weights[f'{name}_proj']
    halves = kernel.reshape(config[key], 2, -1, kernel.shape[1])
    weights[f'{name}_proj'] = halves.swapaxes(1, 2).reshape(kernel.shape)
  n = target.num_layers
  ids = _draft_ids(renamed, config, len(target.embedding))
  if len(np.unique(ids)) < len(ids):
    raise ValueError('EAGLE-3 d2t contains duplicate target ids')
  return Head(
    (2, n // 2, n - 3),
    weights,
    config,
    target,
    ids,
    interleaved=True,
    norm_before_residual=raw.get('norm_before_residual', False),
  )


def _block_shapes(config, num_taps):
  """Returns the shapes of what a block head has in all servers."""
  size, head_dim = config['hidden_size'], config['head_dim']
  shapes = {
    'fc.weight': (size, num_taps * size),
    'hidden_norm.weight': (size,),
    'norm.weight': (size,),
  }
  for i in range(config['num_hidden_layers']):
    shapes |= _layer_shapes(config, size, f'layers.{i}.') | {
      f'layers.{i}.input_layernorm.weight': (size,),
      f'layers.{i}.self_attn.q_norm.weight': (head_dim,),
      f'layers.{i}.self_attn.k_norm.weight': (head_dim,),
    }
  return shapes


def _markov_shapes(config, draft_size):
  """Returns the shapes of the Markov head."""
  rank = config['markov_rank']
  assert rank > 0 and config['markov_head_type'] == 'vanilla'
  return {
    'markov_head.markov_w1.weight': (config['vocab_size'], rank),
    'markov_head.markov_w2.weight': (draft_size, rank),
  }


def _check_qwen3(config):
  """The layer is Qwen3's, as the class in transformers describes it."""
  assert config['model_type'] == 'qwen3'
  assert not config['attention_bias'] and config['hidden_act'] == 'silu'
  # By default, no layer has a window: only those with one are causal.
  assert 'sliding_attention' not in (config.get('layer_types') or ())
  assert not config.get('use_sliding_window', False)


def _block_head(config, arrays, target, ids, ordered, **settings):
  """Returns a block head whose arrays were checked.

  Args:
    config: fields of the config.
    arrays: by the names in the files.
    target: the served model.
    ids: layers of the target whose outputs the head reads.
    ordered: whether states are joined in the order of `ids`, not of layers.
    **settings: attributes of the head.
  """
  taps = [i + 1 for i in ids]
  assert 1 <= min(taps) and max(taps) < target.num_layers
  assert config['vocab_size'] == len(target.embedding)
  weights = {
    name.removesuffix('.weight'): array
    for name, array in arrays.items()
    if name.endswith('.weight')
  }
  draft_ids = {'draft_vocab_size': len(target.head), **config}
  return BlockHead(
    tuple(taps if ordered else sorted(taps)),
    weights,
    config,
    target,
    _draft_ids(arrays, draft_ids, len(target.embedding)),
    block_size=config['block_size'],
    **settings,
  )


def _vllm_dflash(folder, target):
  """`--speculative-config` with the method dflash."""
  config, arrays = _files(folder)
  (architecture,) = config['architectures']
  prefix = '' if architecture.startswith('DFlash') else 'DFlash'
  assert f'{prefix}{architecture}' == 'DFlashDraftModel'
  _check_qwen3(config)
  settings = config['dflash_config']
  assert not settings.get('sample_from_anchor', False)
  assert settings.get('causal') is None and not settings.get('use_swa', False)
  ids = settings['target_layer_ids']
  shapes = _block_shapes(config, len(ids))
  size = config.get('draft_vocab_size', config['vocab_size'])
  if size != len(target.embedding):
    # Rows of the target's output head would be those of other tokens.
    shapes |= {'lm_head.weight': (size, config['hidden_size']), 'd2t': (size,)}
  _check(arrays, shapes, ('t2d',))
  mask = settings.get('mask_token_id', config.get('mask_token_id'))
  return _block_head(
    config, arrays, target, ids, False, mask_token=mask, predicts_next=False
  )


def _vllm_dspark(folder, target):
  """`--speculative-config` with the method dspark."""
  config, arrays = _files(folder)
  assert config['architectures'] == ['Qwen3DSparkModel']
  _check_qwen3(config)
  ids = config['target_layer_ids']
  size = config.get('draft_vocab_size', config['vocab_size'])
  shapes = _block_shapes(config, len(ids)) | _markov_shapes(config, size)
  if size < len(target.embedding):
    for name in ('lm_head.weight', 'd2t'):
      if name not in arrays:
        raise ValueError(f'Reduced-vocabulary checkpoints must include {name}')
    shapes |= {'lm_head.weight': (size, config['hidden_size']), 'd2t': (size,)}
  assert not config.get('enable_confidence_head', False)
  _check(arrays, shapes, ('t2d',))
  # Two versions of the server have two names for it.
  anchor = config.get('sample_from_anchor', True)
  anchor = anchor and not config.get('dspark_bonus_anchor', False)
  return _block_head(
    config,
    arrays,
    target,
    ids,
    False,
    mask_token=config['mask_token_id'],
    predicts_next=anchor,
  )


def _sglang_block(config, settings, target):
  """Returns the layers that SGLang collects, after its checks."""
  _check_qwen3(config)
  # By default, the number of layers of the head.
  num_layers = settings.get(
    'num_target_layers',
    config.get('num_target_layers', config['num_hidden_layers']),
  )
  ids = settings.get('target_layer_ids', config.get('target_layer_ids'))
  if not all(0 <= i < num_layers for i in ids):
    raise ValueError('DFLASH target_layer_ids contains an out-of-range layer')
  # Another number would only be reported.
  assert num_layers == target.num_layers
  mask = settings.get('mask_token_id', config.get('mask_token_id'))
  assert type(mask) is int and 0 <= mask < len(target.embedding)
  assert settings.get('block_size', config['block_size']) >= 1
  return ids, mask


def _sglang_dflash(folder, target):
  """`--speculative-algorithm DFLASH`; the target has the output head."""
  config, arrays = _files(folder)
  assert config['architectures'] == ['DFlashDraftModel']
  ids, mask = _sglang_block(config, config.get('dflash_config', {}), target)
  # Arrays of unknown names are ignored there; a head must have none.
  _check(arrays, _block_shapes(config, len(ids)))
  return _block_head(
    config, arrays, target, ids, False, mask_token=mask, predicts_next=False
  )


def _sglang_dspark(folder, target):
  """`--speculative-algorithm DSPARK`; the target has the output head."""
  config, arrays = _files(folder)
  assert config['architectures'] == ['Qwen3DSparkModel']
  if config.get('speculators_model_type') == 'dspark':
    raise ValueError('This checkpoint was trained with the speculators')
  ids, mask = _sglang_block(config, config.get('dflash_config', {}), target)
  markov = _markov_shapes(config, config['vocab_size'])
  _check(arrays, _block_shapes(config, len(ids)) | markov)
  return _block_head(
    config, arrays, target, ids, False, mask_token=mask, predicts_next=True
  )


def _llama_cpp_dflash(folder, target):
  """`convert_hf_to_gguf.py`, and the graph; no array has another name."""
  config, arrays = _files(folder)
  assert config['architectures'][0] == 'DFlashDraftModel'
  _check_qwen3(config)
  settings = config['dflash_config']
  ids = settings['target_layer_ids']
  _check(arrays, _block_shapes(config, len(ids)))
  mask = settings['mask_token_id']
  return _block_head(
    config, arrays, target, ids, True, mask_token=mask, predicts_next=False
  )


def _llama_cpp_dspark(folder, target):
  """The same with a Markov head, and a reduced vocabulary."""
  config, arrays = _files(folder)
  assert config['architectures'][0] == 'Qwen3DSparkModel'
  _check_qwen3(config)
  settings = config.get('dflash_config', config)
  ids, mask = settings['target_layer_ids'], settings['mask_token_id']
  size = config.get('draft_vocab_size', config['vocab_size'])
  shapes = _block_shapes(config, len(ids)) | _markov_shapes(config, size)
  if size < config['vocab_size']:
    shapes |= {'lm_head.weight': (size, config['hidden_size']), 'd2t': (size,)}
  _check(arrays, shapes, ('t2d',))
  head = _block_head(
    config,
    arrays,
    target,
    ids,
    True,
    mask_token=mask,
    predicts_next=config.get('sample_from_anchor', True),
  )
  if len(np.unique(head.target_ids)) < size:
    raise ValueError('d2t contains duplicate target ids')
  return head


def _vllm_medusa(folder, target):
  """`--speculative-config` with the method medusa; it has its own names."""
  raw, arrays = _files(folder)
  config = {'original_lm_head': False, 'medusa_fc_bias': False}
  for name, value in raw.items():
    if 'num' in name and 'heads' in name:
      name = 'num_heads'
    elif 'num' in name and 'layers' in name:
      name = 'num_hidden_layers'
    config[name] = value
  assert config['model_type'] == 'medusa'
  assert config['architectures'] == ['MedusaModel']
  size, vocab_size = config['hidden_size'], len(target.embedding)
  if config['vocab_size'] != vocab_size:
    config |= {'vocab_size': vocab_size, 'truncated_vocab_size': vocab_size}
  draft_size = config.get('truncated_vocab_size') or vocab_size
  steps = range(config['num_heads'])
  heads = [f'lm_heads.{i}' for i in steps]
  if config['original_lm_head']:
    heads = ['lm_head']
  shapes = {f'{name}.weight': (draft_size, size) for name in heads}
  for i in steps:
    for j in range(config['num_hidden_layers']):
      shapes[f'blocks.{i}.layers.{j}.weight'] = size, size
      if config['medusa_fc_bias']:
        shapes[f'blocks.{i}.layers.{j}.bias'] = (size,)
  target_ids = np.arange(vocab_size)
  if draft_size < vocab_size:
    target_ids = arrays['token_map']
  # Arrays of unknown names are ignored; modules without one remain random.
  weights = {name: arrays[name] for name in shapes}
  for name, array in weights.items():
    if 'lm_head' in name and len(array) > draft_size:
      weights[name] = array[target_ids]
    assert weights[name].shape == shapes[name]
  return MedusaHeads(weights, config, target_ids)


SERVERS = {
  ('vllm', 'dflash'): _vllm_dflash,
  ('vllm', 'dspark'): _vllm_dspark,
  ('vllm', 'eagle'): _vllm_eagle,
  ('vllm', 'eagle3'): _vllm_eagle3,
  ('vllm', 'medusa'): _vllm_medusa,
  ('sglang', 'dflash'): _sglang_dflash,
  ('sglang', 'dspark'): _sglang_dspark,
  ('sglang', 'eagle'): _sglang_eagle,
  ('sglang', 'eagle3'): _sglang_eagle3,
  ('llama.cpp', 'dflash'): _llama_cpp_dflash,
  ('llama.cpp', 'dspark'): _llama_cpp_dspark,
  ('llama.cpp', 'eagle3'): _llama_cpp_eagle3,
}
