"""How servers read the files of a head, in NumPy, without the library.

Each function of `SERVERS` takes a folder, checks it as the server does, and
returns a `Head`. Sources, of September 2026: `SpeculatorsConfig`, `algos.py`,
`llama_eagle.py` and `llama_eagle3.py` in vLLM; `llama_eagle.py`,
`llama_eagle3.py` and `spec_aux_hidden_state.py` in SGLang;
`conversion/llama.py` and `src/models/eagle3.cpp` in llama.cpp. What servers
take from the target is an argument: its config, embedding and output head.
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
    scale = np.sqrt(
      (x**2).mean(-1, keepdims=True) + self.config['rms_norm_eps']
    )
    return x / scale * self.weights[name]

  def _attention(self, x):
    config = self.config
    size = config['head_dim']
    query, key, value = (
      (x @ self.weights[f'{n}_proj'].T).reshape(len(x), -1, size) for n in 'qkv'
    )
    query, key = self._rotate(query), self._rotate(key)
    repeats = query.shape[1] // key.shape[1]
    key, value = (np.repeat(part, repeats, axis=1) for part in (key, value))
    scores = np.einsum('qhd,khd->hqk', query, key) / size**0.5
    scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
    probs = np.exp(scores - scores.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    mixed = np.einsum('hqk,khd->qhd', probs, value).reshape(len(x), -1)
    return mixed @ self.weights['o_proj'].T

  def _rotate(self, x):
    size = x.shape[-1]
    frequency = self.config['rope_theta'] ** (-np.arange(0, size, 2) / size)
    angles = np.arange(len(x))[:, None, None] * frequency
    if self.interleaved:
      first, second = x[..., ::2], x[..., 1::2]
    else:
      first, second = np.split(x, 2, axis=-1)
    parts = [
      first * np.cos(angles) - second * np.sin(angles),
      second * np.cos(angles) + first * np.sin(angles),
    ]
    if self.interleaved:
      return np.stack(parts, axis=-1).reshape(x.shape)
    return np.concatenate(parts, axis=-1)


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
    tuple(ids),
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
    taps = tuple(i + 1 for i in ids)
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


SERVERS = {
  ('vllm', 'eagle'): _vllm_eagle,
  ('vllm', 'eagle3'): _vllm_eagle3,
  ('sglang', 'eagle'): _sglang_eagle,
  ('sglang', 'eagle3'): _sglang_eagle3,
  ('llama.cpp', 'eagle3'): _llama_cpp_eagle3,
}
