"""Heads that are trained here compute the same in each server."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

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
]
_FIRST_TIER = [
  ('vllm', 'eagle3', _ALL_NORMS),
  ('sglang', 'eagle', {}),
  ('sglang', 'eagle3', {'taps': (1, 3, 7), 'head_size': 5}),
  ('llama.cpp', 'eagle3', {'head_size': 5}),
]


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


def _loss(head, params, features, tokens):
  """Returns the cross-entropy of tokens."""
  inputs = head.model.fuse(params, features)
  outputs, _ = head.model.extend(params, None, _TEXT[None, 1:], inputs)
  log_probs = jax.nn.log_softmax(head.model.predict(params, outputs)[0])
  return -jnp.take_along_axis(log_probs, tokens[:, None], axis=-1).mean()


@functools.cache
def _train(kind, options):
  """Returns a head that some steps of gradient descent have improved."""
  config = heads.configure(kind, _TARGET, **dict(options))
  head = models.Head(config, heads.head(config), _begin(config))
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
  in_speculators = servers.SERVERS[server][kind].in_speculators
  arguments = {'target': 'team/model', 'draft_length': 3}
  models.save_head(
    head, folder, server=server, **arguments if in_speculators else {}
  )
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


def _compare(head, served):
  """Checks two steps of drafting, of which the second reads the first."""
  inputs, steps = _draft(head.model, head.params, _features(head))
  states = [_output().features[tap] for tap in served.taps or (-1,)]
  hidden = served.fuse([np.float64(x[0, :-1]) for x in states])
  np.testing.assert_allclose(inputs, hidden, rtol=1e-4, atol=1e-4)
  for tokens, (outputs, logits) in zip(_TOKENS, steps):
    hidden, served_logits = served.step(tokens, hidden)
    can_draft = np.isfinite(logits)
    if served.taps:
      np.testing.assert_array_equal(can_draft, np.isfinite(served_logits))
    np.testing.assert_allclose(outputs, hidden, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(
      np.where(can_draft, logits, 0),
      np.where(can_draft, served_logits, 0),
      rtol=1e-3,
      atol=1e-3,
    )


@pytest.mark.parametrize(
  ('server', 'kind', 'options'), tiers.cases(_CASES, *_FIRST_TIER), ids=str
)
def test_a_trained_head_computes_the_same_in_a_server(
  server, kind, options, tmp_path
):
  head = _save(tmp_path / 'head', server, kind, options)
  served = _served(tmp_path / 'head', server, kind)
  assert served.draft_length == (
    3 if servers.SERVERS[server][kind].in_speculators else None
  )
  _compare(head, served)
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


@pytest.mark.parametrize(
  ('server', 'twin'),
  [
    ('vllm', _change_config(lambda fields: fields.pop('speculators_config'))),
    ('vllm', _change_config(lambda fields: fields.pop('fc_norm'))),
    ('vllm', _change_config(lambda fields: fields.pop('norm_output'))),
    ('vllm', _change_config(lambda fields: fields[_LAYER_IDS].reverse())),
    ('sglang', _change_config(lambda fields: fields.pop('eagle_config'))),
    (
      'sglang',
      _change_arrays(lambda arrays: arrays.update(d2t=arrays['d2t'] * 0)),
    ),
    (
      'llama.cpp',
      _change_config(lambda fields: fields.update(rope_theta=10000.0)),
    ),
  ],
)
def test_files_that_are_broken_on_purpose_are_found(server, twin, tmp_path):
  (options,) = (
    options for name, kind, options in _FIRST_TIER
    if (name, kind) == (server, 'eagle3')
  )  # fmt: skip
  head = _save(tmp_path / 'head', server, 'eagle3', options)
  _compare(head, _served(tmp_path / 'head', server, 'eagle3'))
  twin(tmp_path / 'head')
  with pytest.raises((AssertionError, KeyError, ValueError)):
    _compare(head, _served(tmp_path / 'head', server, 'eagle3'))


@pytest.mark.parametrize(
  ('kind', 'options', 'arguments', 'message'),
  [
    ('eagle3', {}, {'server': 'tgi'}, "Unknown server 'tgi'. Known: llama.cpp"),
    ('medusa', {}, {'server': 'vllm'}, "eagle or eagle3, got 'medusa'"),
    ('eagle', {}, {'server': 'vllm'}, 'bias must be False in a head of the ki'),
    ('eagle', {}, {'server': 'llama.cpp'}, "the kind eagle3, got 'eagle'"),
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
      "target and draft_length must be None for sglang .*'a/b' and None",
    ),
    ('eagle3', {}, {'target': 'a/b'}, 'must be None if server is None'),
  ],
)
def test_what_a_server_cannot_load_is_refused(
  kind, options, arguments, message, tmp_path
):
  config = heads.configure(kind, _TARGET, **options)
  head = models.Head(config, heads.head(config), _begin(config))
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
