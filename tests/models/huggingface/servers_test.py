"""Heads that are trained here compute the same in each server."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from specjax import base
from specjax import models
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.models import flax_modules
from specjax.models import heads
from specjax.models.huggingface import servers
from tests import tiers
from tests.oracles import head_servers

_TARGET = config_lib.TransformerConfig(
  vocab_size=13,
  num_layers=8,
  d_model=8,
  num_heads=2,
  num_kv_heads=1,
  head_dim=4,
  d_ff=12,
  rope_theta=50.0,
  tie_embeddings=False,
)
_MODEL = adapters.Transformer(_TARGET)
_TEXT = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 12])
_TOKENS = _TEXT[1:], np.roll(_TEXT[1:], 2)
_DRAFTED = np.array([1, 2, 5, 7, 12])
_ALL_NORMS = dict.fromkeys(
  ('norm_taps', 'norm_output', 'norm_before_residual'), True
)
_BLOCK = {
  'for_servers': True,
  'num_layers': 2,
  'block_size': 4,
  'mask_token': 12,
}
_DFLASH = {**_BLOCK, 'predicts_next': False}
_DSPARK = {**_BLOCK, 'markov_rank': 3}
_MARKOV = 'markov_head.markov_w2.weight'
# Settings of heads, by server.
_CASES = [
  ('vllm', 'eagle', {'bias': False}),
  ('vllm', 'eagle3', {}),
  ('vllm', 'eagle3', {'head_size': 5, 'taps': (1, 3, 7)}),
  ('vllm', 'eagle3', _ALL_NORMS),
  ('vllm', 'eagle3', {'norm_before_fc': True, 'head_size': 5}),
  ('sglang', 'eagle', {}),
  ('sglang', 'eagle', {'bias': False, 'head_size': 5}),
  ('sglang', 'eagle3', {'norm_before_fc': True}),
  ('sglang', 'eagle3', {'norm_taps': True, 'norm_output': True}),
  ('sglang', 'eagle3', {'taps': (1, 3, 7), 'head_size': 5}),
  ('llama.cpp', 'eagle3', {'head_size': 5}),
  ('llama.cpp', 'eagle3', {'norm_before_residual': True}),
  ('vllm', 'medusa', {'num_steps': 3}),
  ('vllm', 'medusa', {'num_steps': 2, 'num_blocks': 2, 'head_size': 5}),
  ('vllm', 'medusa', {'num_steps': 2, 'own_heads': True}),
  ('vllm', 'medusa', {'num_steps': 2, 'own_heads': True, 'head_size': 5}),
  ('vllm', 'dflash', _DFLASH),
  ('vllm', 'dflash', {**_DFLASH, 'head_size': 5}),
  ('vllm', 'dspark', _DSPARK),
  ('vllm', 'dspark', {**_DSPARK, 'head_size': 5}),
  ('sglang', 'dflash', {**_DFLASH, 'taps': (1, 3, 6, 7)}),
  ('sglang', 'dflash', {**_DFLASH, 'head_size': 5}),
  ('sglang', 'dspark', _DSPARK),
  ('sglang', 'dspark', {**_DSPARK, 'head_size': 5}),
  ('llama.cpp', 'dflash', _DFLASH),
  ('llama.cpp', 'dflash', {**_DFLASH, 'head_size': 5}),
  ('llama.cpp', 'dspark', _DSPARK),
  ('llama.cpp', 'dspark', {**_DSPARK, 'head_size': 5}),
]
_FIRST_TIER = [
  ('vllm', 'eagle3', _ALL_NORMS),
  ('vllm', 'medusa', {'num_steps': 2, 'num_blocks': 2, 'head_size': 5}),
  ('vllm', 'dflash', _DFLASH),
  ('vllm', 'dspark', {**_DSPARK, 'head_size': 5}),
  ('sglang', 'eagle', {}),
  ('sglang', 'eagle3', {'taps': (1, 3, 7), 'head_size': 5}),
  ('sglang', 'dflash', {**_DFLASH, 'taps': (1, 3, 6, 7)}),
  ('sglang', 'dspark', {**_DSPARK, 'head_size': 5}),
  ('llama.cpp', 'eagle3', {'head_size': 5}),
  ('llama.cpp', 'dflash', _DFLASH),
  ('llama.cpp', 'dspark', {**_DSPARK, 'head_size': 5}),
]
# The kinds whose name in `heads.configure` is another one.
_OUR_KINDS = {'dspark': 'dflash'}
# What files contain in addition to a head, by server and kind.
_ARGUMENTS = {
  ('vllm', 'eagle3'): {'target': 'team/model', 'draft_length': 3},
  **{
    (server, kind): {'num_target_layers': 8}
    for server in servers.SERVERS
    for kind in ('dflash', 'dspark')
  },
}


def _draw(shapes):
  """Returns random parameters, which are far from all alike."""
  leaves, structure = jax.tree.flatten(shapes)
  draw = np.random.default_rng(1)
  return structure.unflatten(
    [0.4 * draw.normal(size=leaf.shape).astype('f') for leaf in leaves]
  )


@functools.cache
def _params():
  return jax.tree.map(jnp.asarray, _draw(flax_modules.abstract_params(_TARGET)))


@functools.cache
def _output():
  """Returns the target's output for the text: hidden states and logits."""
  return jax.jit(_MODEL.extend)(_params(), None, _TEXT[None])


def _begin(config):
  """Returns initial parameters of a head."""
  params = heads.own_params(config, _draw(flax_modules.abstract_params(config)))
  rows = None
  if config.layer.head_size:
    params['head_rows'] = rows = cutting.head_rows(_DRAFTED, 13)
  return params | heads.shared_params(config, _params(), rows)


def _features(head):
  """Returns what a head reads of the target, `[1, T - 1, F]` each."""
  return [_output().features[tap][:, :-1] for tap in head.config.taps]


def _best(head):
  """Returns the target's likeliest tokens that a head can draft."""
  drafted = _DRAFTED if head.config.layer.head_size else np.arange(13)
  logits = np.asarray(_output().logits)[0, 1:, drafted]
  return drafted[logits.argmax(axis=0)]


def _before(model):
  """Returns the tokens before those that a block predicts, the last ones."""
  return _TEXT[len(_TEXT) - model.block_size + model.first_output :]


def _block(model, params, features):
  """Returns the outputs `[D, F]` and logits `[D, V]` of a block."""
  before = _before(model)
  num_states = len(_TEXT) - len(before)
  block = np.full((1, model.block_size), model.mask_token)
  block[0, 0] = before[0]
  entries = model.encode(
    params,
    [states[:, :num_states] for states in features],
    jnp.arange(num_states)[None],
  )
  outputs, _ = model.extend(
    params,
    None,
    block,
    pending_kv=entries,
    positions=num_states + jnp.arange(model.block_size)[None],
    mask=np.ones((model.block_size, num_states + model.block_size), bool),
  )
  outputs = outputs[:, model.first_output :]
  logits = model.predict(params, outputs)
  return outputs[0], model.condition(params, logits, before[None])[0]


def _logits(head, params, features):
  """Returns logits `[N, ..., V]` of what follows the last `N` tokens."""
  if isinstance(head.model, base.ParallelHead):
    return head.model.predict(params, features)[0]
  if isinstance(head.model, base.BlockHead):
    return _block(head.model, params, features)[1]
  inputs = head.model.fuse(params, features)
  outputs, _ = head.model.extend(params, None, _TEXT[None, 1:], inputs)
  return head.model.predict(params, outputs)[0]


def _loss(head, params, features, tokens):
  """Returns the cross-entropy of tokens."""
  logits = _logits(head, params, features)
  log_probs = jax.nn.log_softmax(logits).reshape(len(logits), -1, 13)
  tokens = jnp.asarray(tokens)[-len(logits) :, None, None]
  return -jnp.take_along_axis(log_probs, tokens, axis=-1).mean()


def _untrained(kind, options):
  """Returns a head with random parameters."""
  config = heads.configure(_OUR_KINDS.get(kind, kind), _TARGET, **options)
  return models.Head(config, heads.head(config), _begin(config))


@functools.cache
def _train(kind, options):
  """Returns a head that some steps of gradient descent have improved."""
  head = _untrained(kind, dict(options))
  config = head.config
  fixed = ('head_rows', *heads.shared_names(config))
  shared = {k: v for k, v in head.params.items() if k in fixed}
  params = {k: v for k, v in head.params.items() if k not in fixed}
  data = _features(head), _best(head)
  loss_fn = lambda params: _loss(head, params | shared, *data)

  @jax.jit
  def train(params):
    def step(params, _):
      loss, gradients = jax.value_and_grad(loss_fn)(params)
      move = lambda x, gradient: x - 0.02 * gradient
      return jax.tree.map(move, params, gradients), loss

    return jax.lax.scan(step, params, length=5)

  params, losses = train(params)
  assert losses[-1] < losses[0]
  return head._replace(params=params | shared)


def _head(kind, options):
  return _train(kind, tuple(options.items()))


def _save(folder, server, kind, options):
  """Saves a head for a server; returns the head."""
  head = _head(kind, options)
  arguments = _ARGUMENTS.get((server, kind), {})
  models.save_head(head, folder, server=server, **arguments)
  return head


def _served(folder, server, kind):
  """Returns the head as the oracle of a server reads it."""
  table = np.float64(_params()['embedding']['embedding'])
  kernel = np.float64(_params()['head']['kernel'])
  target = head_servers.Target(_TARGET.num_layers, table, kernel.T)
  return head_servers.SERVERS[server, kind](folder, target)


@functools.partial(jax.jit, static_argnums=0)
def _draft(model, params, features):
  """Returns inputs, and outputs and logits of two steps with other tokens."""
  inputs = hidden = model.fuse(params, features)
  steps = []
  for tokens in _TOKENS:
    hidden, _ = model.extend(params, None, tokens[None], hidden)
    steps.append((hidden[0], model.predict(params, hidden)[0]))
  return inputs[0], steps


def _assert_close(ours, served, atol=1e-4):
  np.testing.assert_allclose(ours, served, rtol=1e-3, atol=atol)


def _compare_logits(logits, served_logits, has_draft_vocab=True):
  """Checks the logits of the tokens that can be drafted."""
  can_draft = np.isfinite(logits)
  if has_draft_vocab:
    np.testing.assert_array_equal(can_draft, np.isfinite(served_logits))
  _assert_close(
    np.where(can_draft, logits, 0),
    np.where(can_draft, served_logits, 0),
    atol=1e-3,
  )


def _compare(head, served, has_draft_vocab=True):
  """Checks what a head and a server's version of it draft from equal states."""
  states = [
    np.float64(_output().features[tap][0, :-1]) for tap in served.taps or (-1,)
  ]
  compare = {
    head_servers.BlockHead: _compare_block,
    head_servers.Head: _compare_steps,
    head_servers.MedusaHeads: _compare_medusa,
  }[type(served)]
  compare(head, served, states, has_draft_vocab)


def _compare_steps(head, served, states, has_draft_vocab):
  """Checks two steps of drafting, of which the second reads the first."""
  inputs, steps = _draft(head.model, head.params, _features(head))
  hidden = served.fuse(states)
  np.testing.assert_allclose(inputs, hidden, rtol=1e-4, atol=1e-4)
  for tokens, (outputs, logits) in zip(_TOKENS, steps):
    hidden, served_logits = served.step(tokens, hidden)
    _assert_close(outputs, hidden)
    _compare_logits(logits, served_logits, has_draft_vocab)


def _compare_block(head, served, states, has_draft_vocab):
  """Checks a block of the length that the head was trained for."""
  assert served.block_size == head.model.block_size
  assert served.predicts_next == (not head.model.first_output)
  outputs, logits = jax.jit(_block, static_argnums=0)(
    head.model, head.params, _features(head)
  )
  before = _before(head.model)
  hidden, served_logits = served.draft(
    [state[: len(_TEXT) - len(before)] for state in states], before
  )
  _assert_close(outputs, hidden)
  _compare_logits(logits, served_logits, has_draft_vocab)


def _compare_medusa(head, served, states, has_draft_vocab):
  """Checks all heads at all tokens."""
  logits = jax.jit(head.model.predict)(head.params, _features(head))[0]
  _compare_logits(logits, served.predict(states[0]), has_draft_vocab)


@pytest.mark.parametrize(
  ('server', 'kind', 'options'), tiers.cases(_CASES, *_FIRST_TIER), ids=str
)
def test_a_trained_head_computes_the_same_in_a_server(
  server, kind, options, tmp_path
):
  head = _save(tmp_path / 'head', server, kind, options)
  served = _served(tmp_path / 'head', server, kind)
  arguments = _ARGUMENTS.get((server, kind), {})
  assert served.draft_length == arguments.get('draft_length')
  has_draft_vocab = servers.SERVERS[server][kind].has_draft_vocab
  _compare(head, served, has_draft_vocab)
  # The folder is also read here, with the same outputs.
  target = models.Checkpoint(_TARGET, _MODEL, _params())
  _compare(models.load_head(tmp_path / 'head', target), served)


def test_every_reader_has_an_oracle_and_a_case():
  readers = {
    (server, kind) for server, kinds in servers.SERVERS.items()
    for kind in kinds
  }  # fmt: skip
  assert readers == head_servers.SERVERS.keys()
  assert readers == {(server, kind) for server, kind, _ in _CASES}


def _change_config(change):
  def twin(folder):
    path = folder / 'config.json'
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))

  return twin


def _change_arrays(change):
  def twin(folder):
    path = folder / 'model.safetensors'
    arrays = safetensors_numpy.load_file(path)
    change(arrays)
    safetensors_numpy.save_file(arrays, path)

  return twin


_LAYER_IDS = 'eagle_aux_hidden_state_layer_ids'


def _fields(**changes):
  return _change_config(lambda fields: fields.update(changes))


def _no_field(name):
  return _change_config(lambda fields: fields.pop(name))


@pytest.mark.parametrize(
  ('server', 'kind', 'twin'),
  [
    ('vllm', 'eagle3', _no_field('speculators_config')),
    ('vllm', 'eagle3', _no_field('fc_norm')),
    ('vllm', 'eagle3', _no_field('norm_output')),
    ('vllm', 'eagle3', _fields(**{_LAYER_IDS: [3, 4, 5]})),
    ('vllm', 'medusa', _no_field('medusa_fc_bias')),
    ('vllm', 'medusa', _no_field('original_lm_head')),
    ('vllm', 'medusa', _no_field('truncated_vocab_size')),
    (
      'vllm',
      'medusa',
      _change_arrays(
        lambda arrays: arrays.update(token_map=arrays['token_map'][::-1].copy())
      ),
    ),
    (
      'vllm',
      'dflash',
      _change_config(
        lambda fields: fields['dflash_config'].update(
          target_layer_ids=[2, 4, 5]
        )
      ),
    ),
    ('vllm', 'dspark', _fields(sample_from_anchor=False)),
    ('vllm', 'dspark', _fields(mask_token_id=2)),
    ('vllm', 'dspark', _change_arrays(lambda arrays: arrays.pop('d2t'))),
    ('sglang', 'eagle3', _no_field('eagle_config')),
    (
      'sglang',
      'eagle3',
      _change_arrays(lambda arrays: arrays.update(d2t=arrays['d2t'] * 0)),
    ),
    ('sglang', 'dflash', _no_field('num_target_layers')),
    ('sglang', 'dspark', _fields(speculators_model_type='dspark')),
    (
      'sglang',
      'dspark',
      _change_arrays(
        lambda arrays: arrays.update(
          {_MARKOV: np.roll(arrays[_MARKOV], 1, axis=0)}
        )
      ),
    ),
    ('llama.cpp', 'eagle3', _fields(rope_theta=10000.0)),
    (
      'llama.cpp',
      'dflash',
      _change_config(
        lambda fields: fields['dflash_config'].pop('mask_token_id')
      ),
    ),
    (
      'llama.cpp',
      'dspark',
      _change_arrays(lambda arrays: arrays.update(d2t=arrays['d2t'] * 0)),
    ),
  ],
)
def test_files_that_are_broken_on_purpose_are_found(
  server, kind, twin, tmp_path
):
  (options,) = (
    options for name, *other, options in _FIRST_TIER
    if (name, *other) == (server, kind)
  )  # fmt: skip
  head = _save(tmp_path / 'head', server, kind, options)
  has_draft_vocab = servers.SERVERS[server][kind].has_draft_vocab
  _compare(head, _served(tmp_path / 'head', server, kind), has_draft_vocab)
  twin(tmp_path / 'head')
  with pytest.raises((AssertionError, KeyError, ValueError)):
    _compare(head, _served(tmp_path / 'head', server, kind), has_draft_vocab)


def test_medusas_heads_have_a_copy_of_a_tied_output_head(tmp_path):
  target = dataclasses.replace(_TARGET, tie_embeddings=True)
  params = {k: v for k, v in _params().items() if k != 'head'}
  config = heads.configure('medusa', target)
  head = models.Head(config, heads.head(config), _begin(config))
  models.save_head(head, tmp_path / 'head', server='vllm')
  arrays = safetensors_numpy.load_file(tmp_path / 'head' / 'model.safetensors')
  table = params['embedding']['embedding']
  np.testing.assert_array_equal(arrays['lm_head.weight'], table)
  checkpoint = models.Checkpoint(target, adapters.Transformer(target), params)
  assert models.load_head(tmp_path / 'head', checkpoint).config == config


@pytest.mark.parametrize(
  ('kind', 'options', 'arguments', 'message'),
  [
    ('eagle3', {}, {'server': 'tgi'}, "Unknown server 'tgi'. Known: llama.cpp"),
    (
      'medusa',
      {},
      {'server': 'sglang'},
      "server must be vllm for a head of the kind medusa, got 'sglang'",
    ),
    ('eagle', {}, {'server': 'vllm'}, 'bias must be False in a head of the ki'),
    (
      'eagle',
      {},
      {'server': 'llama.cpp'},
      "server must be sglang or vllm for .* the kind eagle, got 'llama.cpp'",
    ),
    (
      'eagle3',
      {'norm_before_residual': True},
      {'server': 'sglang'},
      'norm_before_residual must be False',
    ),
    (
      'eagle3',
      {'norm_before_fc': True},
      {'server': 'llama.cpp'},
      'norm_before_fc must be False',
    ),
    (
      'eagle3',
      {'taps': (0, 2, 3)},
      {'server': 'sglang'},
      'taps must be 3 inpu',
    ),
    ('eagle3', {'taps': (2, 5)}, {'server': 'sglang'}, 'taps must be 3 inputs'),
    (
      'eagle3',
      {'taps': (2, 3, 5)},
      {'server': 'llama.cpp'},
      r'taps must be 2, n // 2 and n - 3 .* got \(2, 3, 5\)',
    ),
    ('eagle', {'taps': (3,)}, {'server': 'sglang'}, r'taps must be \(-1,\)'),
    ('eagle3', {}, {'server': 'vllm'}, 'target must be the name or the path'),
    (
      'eagle3',
      {},
      {'server': 'vllm', 'target': 'a/b', 'draft_length': 0},
      'draft_length must be an integer >= 1, got 0',
    ),
    (
      'eagle3',
      {},
      {'server': 'sglang', 'target': 'a/b'},
      "target must be None for sglang and the kind eagle3, got 'a/b'",
    ),
    (
      'eagle3',
      {},
      {'target': 'a/b'},
      "target must be None if server is None, got 'a/b'",
    ),
    (
      'eagle3',
      {'taps': (3, 2, 5)},
      {'server': 'vllm', 'target': 'a/b', 'draft_length': 3},
      r'in ascending order, for vllm, got \(3, 2, 5\)',
    ),
    (
      'dspark',
      {'markov_rank': 3},
      {'server': 'vllm', 'num_target_layers': 8},
      'qk_norm must be True in the layer of a head of the kind dspark for vllm',
    ),
    (
      'dspark',
      _BLOCK,
      {'server': 'sglang', 'num_target_layers': 8},
      'markov_rank must be >= 1 in a head of the kind dspark for sglang, got 0',
    ),
    (
      'dflash',
      {**_DFLASH, 'markov_rank': 3},
      {'server': 'llama.cpp', 'num_target_layers': 8},
      'markov_rank must be 0 in a head of the kind dflash .* got 3',
    ),
    (
      'dflash',
      {**_DFLASH, 'taps': (2, 4, -1)},
      {'server': 'vllm', 'num_target_layers': 8},
      r'taps must be inputs of layers .* got \(2, 4, -1\)',
    ),
    (
      'dflash',
      {**_DFLASH, 'taps': (2, 8)},
      {'server': 'vllm', 'num_target_layers': 8},
      r'larger than the last of the taps \(2, 8\), got 8',
    ),
    (
      'dflash',
      _DFLASH,
      {'server': 'sglang'},
      'num_target_layers must be the number of layers .* got None',
    ),
    (
      'medusa',
      {},
      {'server': 'vllm', 'num_target_layers': 8},
      'num_target_layers must be None for vllm and the kind medusa, got 8',
    ),
    (
      'medusa',
      {'taps': (3,)},
      {'server': 'vllm'},
      r'taps must be \(-1,\) in a head of the kind medusa for vllm',
    ),
  ],
)
def test_what_a_server_cannot_load_is_refused(
  kind, options, arguments, message, tmp_path
):
  head = _untrained(kind, options)
  with pytest.raises(ValueError, match=message):
    models.save_head(head, tmp_path / 'head', **arguments)
  assert not (tmp_path / 'head').exists()


def test_a_layer_with_biases_is_refused(tmp_path):
  config = heads.configure('eagle3', _TARGET)
  layer = dataclasses.replace(config.layer, qkv_bias=True)
  config = dataclasses.replace(config, layer=layer)
  head = models.Head(config, heads.head(config), {})
  with pytest.raises(ValueError, match='qkv_bias must be False in the layer'):
    models.save_head(head, tmp_path / 'head', server='sglang')


def test_capped_logits_are_refused(tmp_path):
  config = heads.configure('medusa', _TARGET)
  layer = dataclasses.replace(config.layer, logit_softcap=3.0)
  config = dataclasses.replace(config, layer=layer)
  head = models.Head(config, heads.head(config), {})
  with pytest.raises(ValueError, match='logit_softcap must be None'):
    models.save_head(head, tmp_path / 'head', server='vllm')


def test_the_layer_of_a_block_head_for_servers_is_qwen3s():
  target = dataclasses.replace(_TARGET, qkv_bias=True)
  config = heads.configure('dflash', target, for_servers=True)
  assert config.layer.qk_norm and not config.layer.qkv_bias
  assert config.taps == heads.default_taps(8)
  with pytest.raises(
    ValueError, match='for_servers must be False in a head of'
  ):
    heads.configure('medusa', target, for_servers=True)
