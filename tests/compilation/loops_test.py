"""Loops of mini's models, compiled for accelerators that are not there."""

import functools

import jax
import jax.numpy as jnp
import ml_collections
import pytest

from experiments.common import methods as methods_lib
from specjax import compilation
from specjax import components
from specjax import decoding
from specjax import families
from specjax import meshes
from specjax import models
from specjax.compilation import devices
from specjax.compilation import hlo
from specjax.compilation import inspection
from specjax.compilation import totals
from tests import parts
from tests.compilation import kept

# All that a loop is made of, in two of them; most of the time is compilation.
_METHODS = {
  'bandit': {'bandit': 'ucb_spec', 'arms': ('medium:4/block', 'none')},
  'bandit per row': {
    'bandit': 'ucb_spec',
    'arms': ('medium:2x2/kseq', 'feature_head(eagle):2'),
    'per_row': True,
  },
}
_BATCH_SIZE = 3
_DTYPE = 'bfloat16'


@pytest.fixture(scope='module', name='family')
def _family():
  """Of two layers and one: all layers are alike, and each is compiled."""
  family = families.load('mini/heads', dtype=_DTYPE)
  medium = parts.first_layers(family.drafters['medium'], 1, _DTYPE)
  return family._replace(
    target=parts.first_layers(family.target, 2, _DTYPE),
    drafters={**family.drafters, 'medium': medium},
  )


@pytest.fixture(name='device', params=['v5e:1x1', 'h100'])
def _device(request, find):
  return find(request.param)


def _decoder(family, method):
  config = ml_collections.ConfigDict(
    {'methods': (method,), 'arms': (), 'sampling': {'temperature': 1.0}}
  )
  (parsed,) = methods_lib.parse_all(config, list(family.drafters))
  return methods_lib.build(parsed, family, max_length=256).decoder


def _compiled(decoder, device):
  return kept.compile_decode(decoder, device, batch_size=_BATCH_SIZE)


@pytest.fixture(scope='module', name='program')
def _program(family):
  """Compiles one of `_METHODS` for a device, once for all tests."""

  @functools.cache
  def program(method, device):
    return _compiled(_decoder(family, _METHODS[method]), device)

  return program


@pytest.mark.slow
@pytest.mark.parametrize('method', _METHODS)
def test_loops_copy_no_cache_and_ask_no_host(program, device, method):
  result = program(method, device).inspection
  assert not result.copied_in_loop.get(totals.CACHES)
  assert not result.host_transfers
  assert not result.float64
  assert not result.collectives


@pytest.mark.slow
def test_gpus_write_what_is_committed_and_no_cache_beside_it(program, find):
  """As they would, to join products or to fill tiles; those are no copies."""
  compiled = program('bandit', find('h100'))
  written, read = (
    kinds[totals.CACHES] for kinds in (compiled.written, compiled.read)
  )
  assert written < 0.1 * read


@pytest.mark.slow
@pytest.mark.parametrize('name', ['v5e:1x2', 'h100:2'])
def test_devices_give_each_other_what_a_call_adds_up(family, name, find):
  """Two products a layer and the embedding; logits, and no table for them."""
  device = find(name)
  abstract = lambda model: model._replace(
    params=jax.eval_shape(lambda: model.params)
  )
  mesh = meshes.make(1, 2, compilation.jax_devices(device))
  medium = family.drafters['medium']  # On each device as a whole.
  family = family._replace(
    target=abstract(family.target), drafters={'medium': abstract(medium)}
  )
  family = families.on_mesh(family, mesh)
  result = _compiled(_decoder(family, {'arm': 'medium:4'}), device).inspection
  config = family.target.config
  assert result.num_collectives == {
    'all-reduce': 2 * config.num_layers + 1,
    'all-gather': 1,
  }
  logits = _BATCH_SIZE * 5 * config.vocab_size
  # TPUs fill tiles of eight.
  assert result.collectives['all-gather'] <= 4 * logits * 8 / 5
  assert not result.copied_in_loop.get(totals.CACHES)


@pytest.mark.slow
def test_a_cache_that_is_read_once_more_is_copied(family, device):
  """Behind its commit, which then cannot be in place."""

  @components.component
  class Rereading(models.ModelWrapper):
    def commit(self, cache, *args):
      after = self.model.commit(cache, *args)
      old, layers = jax.lax.optimization_barrier((cache.layers, after.layers))
      first = old[0][0][0, 0, 0, 0]
      lengths = jnp.where(jnp.isnan(first), 0, after.lengths)
      return after.replace(layers=layers, lengths=lengths)

  decoder = decoding.speculative(
    Rereading(family.target.model),
    family.target.params,
    *family.drafters['medium'][1:],
    max_length=256,
  )
  result = _compiled(decoder, device).inspection
  assert result.copied_in_loop.get(totals.CACHES)


def _of_loop(body, device):
  """What is found in a loop over eight numbers, divided among all chips."""
  mesh = jax.sharding.Mesh(devices.jax_devices(device), 'x')
  axes = jax.sharding.PartitionSpec('x')
  sharding = jax.sharding.NamedSharding(mesh, axes)

  def loop(x):
    return jax.lax.while_loop(lambda x: x.sum() < 9, body, x)

  x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=sharding)
  lowered = jax.jit(loop).trace(x).lower(lowering_platforms=(device.platform,))
  with devices.without_flags():
    module = hlo.parse(lowered.compile().as_text())
  return inspection.inspect(
    totals.ClassifiedModule(module, lambda array: totals.REST)
  )


@pytest.mark.slow
def test_a_sum_over_devices_is_seen(find):
  result = _of_loop(lambda x: x + x.sum(), find('v5e:1x2'))
  assert result.collectives


@pytest.mark.parametrize(
  'name', ['cpu', pytest.param('h100', marks=pytest.mark.slow)]
)
def test_float64_is_seen(name, find):
  device = find(name)
  with jax.enable_x64(True):
    body = lambda x: jnp.sin(x.astype(jnp.float64)).astype(jnp.float32)
    assert _of_loop(body, device).float64


def test_python_in_the_loop_is_seen():
  def body(x):
    jax.debug.callback(print, x)
    return x + 1

  assert _of_loop(body, compilation.find('cpu')).host_transfers
