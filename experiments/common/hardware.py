"""Models without numbers, and their rounds on the devices that are there."""

from collections.abc import Mapping
from collections.abc import Sequence
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import measure
from experiments.common import traces
from specjax import compilation
from specjax import decoding
from specjax import families
from specjax import models
from specjax.data import tokenizer as tokenizer_lib
from specjax.decoding import timing
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import fusion
from specjax.models import heads
from specjax.models import loading

_DTYPE = jnp.bfloat16
_PLATFORMS = {'gpu': 'cuda'}
# How many copies one program makes: to start a program takes as long as a copy
# on a GPU.
_NUM_COPIES = 64


def devices(device: compilation.Device) -> Sequence[Any]:
  """Returns JAX's devices, of which rounds are to be measured.

  Raises:
    ValueError: JAX has none of this kind, or too few.
  """
  backend, found = jax.default_backend(), jax.devices()
  there = _PLATFORMS.get(backend, backend) == device.platform
  if there and backend != 'cpu':
    asked = compilation.jax_devices(device)
    there = len(asked) <= len(found) and _is_of(found[0], asked[0])
  if not there:
    raise ValueError(
      'device must be one that is there to run on: JAX has '
      f'{len(found)} of {measure.device()}, got {device.name!r}.'
    )
  return found


def _is_of(found, asked):
  """Whether a device is what a compiler means; GPUs also tell their memory."""
  if asked.platform == 'tpu':
    return found.device_kind == asked.device_kind
  return found.device_kind.startswith(asked.device_kind)


def abstract_family(shapes: Mapping[str, Mapping[str, Any]]) -> families.Family:
  """Returns a family of models without numbers.

  Args:
    shapes: by name, fields of a model's config, or of `heads.configure`, with
      a `kind`; one is the 'target'. A drafter has the target's vocabulary.
  """
  config = config_lib.from_dict(dict(shapes['target']))
  params = adapters.abstract_params(config)
  made = {}
  for name, fields in shapes.items():
    if name == 'target':
      continue
    if 'kind' in fields:
      made[name] = _abstract_head(config, params, dict(fields))
    else:
      own = {'vocab_size': config.vocab_size, **fields}
      made[name] = _abstract_model(config_lib.from_dict(own))
  # Of which only the stop tokens are read.
  tokenizer = tokenizer_lib.train(['any'], 260)
  return families.Family(tokenizer, _abstract_model(config), made, [])


def fused(
  family: families.Family, mesh: jax.sharding.Mesh | None = None
) -> families.Family:
  """Returns an abstract family with the parameters that a GPU would hold.

  Args:
    family: from `abstract_family`.
    mesh: the devices that will hold it.
  """

  def fuse(model):
    shapes = jax.eval_shape(
      functools.partial(fusion.fuse, model.config, mesh=mesh), model.params
    )
    return model._replace(params=shapes)

  return family._replace(
    target=fuse(family.target),
    drafters={name: fuse(each) for name, each in family.drafters.items()},
  )


def _abstract_model(config):
  return families.Model(
    config,
    adapters.language_model(config, _DTYPE),
    _in_dtype(adapters.abstract_params(config)),
  )


def _abstract_head(target, params, fields):
  config = heads.configure(fields.pop('kind'), target, **fields)
  tokens = np.arange(config.layer.head_size or 0)
  begin = lambda key, params: heads.begin(key, config, target, params, tokens)
  shapes = jax.eval_shape(begin, jax.random.key(0), params)
  return models.Head(config, heads.head(config, _DTYPE), _in_dtype(shapes))


def _in_dtype(shapes):
  """Shapes of parameters in the type that they are computed with."""
  cast = lambda leaf: loading.in_dtype(leaf, _DTYPE)
  return jax.eval_shape(functools.partial(jax.tree.map, cast), shapes)


def filled(family: families.Family) -> families.Family:
  """Returns a family with random numbers where there were shapes alone."""
  return family._replace(
    target=_filled(family.target),
    drafters={name: _filled(each) for name, each in family.drafters.items()},
  )


def round_seconds(
  decoder: decoding.Decoder,
  batch_size: int,
  max_length: int,
  num_rounds: int,
  repeats: int,
  copied_bytes: int,
) -> tuple[float, float]:
  """Returns seconds of a round, and bytes a second of a copy beside it.

  Both are medians over repeats in turns. Rounds are at the end of full caches.
  A copy reads `copied_bytes` and writes as many, on one device, and both count.
  """
  array = jnp.zeros(copied_bytes // 4, jnp.float32)
  runs = [
    _rounds(decoder, batch_size, max_length, num_rounds),
    lambda: functools.partial(_copies, array),
  ]
  seconds = np.median(measure.in_turns(runs, repeats), axis=0)
  num_bytes = 2 * array.nbytes * _NUM_COPIES
  return seconds[0] / num_rounds, num_bytes / seconds[1]


def traced_rounds(
  decoder: decoding.Decoder, batch_size: int, max_length: int, num_rounds: int
) -> traces.Trace:
  """Returns what one round runs, as the mean over those of `round_seconds`."""
  found = traces.of(_rounds(decoder, batch_size, max_length, num_rounds)())
  mean = lambda numbers: {
    name: number / num_rounds for name, number in numbers.items()
  }
  return traces.Trace(*map(mean, found))


def _rounds(decoder, batch_size, max_length, num_rounds):
  """Prepares rounds at the end of full caches."""
  depth = max(arm.drafter.topology.depth for arm in decoder.round_fn.arms)
  room = num_rounds * (depth + 1)
  if room >= max_length:
    raise ValueError(
      f'max_length must exceed the {room} tokens of {num_rounds} rounds, got '
      f'{max_length}.'
    )
  size = batch_size, max_length - room
  vocab_size = decoder.round_fn.target.vocab_size
  prompts = np.random.default_rng(0).integers(vocab_size, size=size).tolist()
  return timing.prepare_rounds(decoder, prompts, room, num_rounds)


@jax.jit
def _copies(array):
  """One after the other: each is of what the last one wrote."""
  return jax.lax.fori_loop(0, _NUM_COPIES, lambda _, copied: copied + 1, array)


def _filled(model):
  leaves, tree = jax.tree.flatten(model.params)
  keys = jax.random.split(jax.random.key(0), len(leaves))
  made = [_random(leaf, key) for leaf, key in zip(leaves, keys)]
  params = jax.tree.unflatten(tree, made)
  if 'head_rows' in params:
    places = jnp.arange(params['head_rows'].size)
    size = params['head']['kernel'].shape[-1]
    params['head_rows'] = jnp.where(places < size, places, -1)
  return model._replace(params=params)


def _random(leaf, key):
  """Numbers of an array, where it lies."""
  make = lambda key: (0.02 * jax.random.normal(key, leaf.shape)).astype(
    leaf.dtype
  )
  return jax.jit(make, out_shardings=getattr(leaf, 'sharding', None))(key)
