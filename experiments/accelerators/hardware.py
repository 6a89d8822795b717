"""Builds models from shapes only, and times their rounds on real devices."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import measure
from experiments.common import traces
from specjax import base
from specjax import compilation
from specjax import decoding
from specjax import families
from specjax import models
from specjax.data import tokenizer as tokenizer_lib
from specjax.decoding import timing
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.models import fusion
from specjax.models import heads
from specjax.models import loading

_DTYPE = jnp.bfloat16
_PLATFORMS = {'gpu': 'cuda'}
# Copies per program, as starting a program takes as long as a copy on a GPU.
_NUM_COPIES = 64


def devices(device: compilation.Device) -> Sequence[Any]:
  """Returns JAX's devices, if they are of the kind of `device`.

  Raises:
    ValueError: JAX has no devices of this kind, or too few.
  """
  backend, real_devices = jax.default_backend(), jax.devices()
  is_available = _PLATFORMS.get(backend, backend) == device.platform
  if is_available and backend != 'cpu':
    targets = compilation.jax_devices(device)
    is_available = len(targets) <= len(real_devices) and _is_same_kind(
      real_devices[0], targets[0]
    )
  if not is_available:
    raise ValueError(
      f'device must be available to run on: JAX has {len(real_devices)} of '
      f'{measure.device()}, got {device.name!r}.'
    )
  return real_devices


def _is_same_kind(device: Any, target: Any) -> bool:
  """Returns whether a device is a target's kind; GPUs append their memory."""
  if target.platform == 'tpu':
    return device.device_kind == target.device_kind
  return device.device_kind.startswith(target.device_kind)


def abstract_family(shapes: Mapping[str, Mapping[str, Any]]) -> families.Family:
  """Returns a family whose parameters are only shapes.

  Args:
    shapes: by name, the fields of a model's config, or with `kind` those of
      `heads.configure`. 'target' is the target; drafters have its vocabulary.
  """
  config = config_lib.from_dict(dict(shapes['target']))
  params = flax_modules.abstract_params(config)
  drafters = {}
  for name, fields in shapes.items():
    if name == 'target':
      continue
    if 'kind' in fields:
      drafters[name] = _abstract_head(config, params, dict(fields))
    else:
      fields = {'vocab_size': config.vocab_size, **fields}
      drafters[name] = _abstract_model(config_lib.from_dict(fields))
  # Only its stop tokens are used.
  tokenizer = tokenizer_lib.train(['any'], 260)
  return families.Family(tokenizer, _abstract_model(config), drafters, [])


def fused(
  family: families.Family, mesh: jax.sharding.Mesh | None = None
) -> families.Family:
  """Returns an abstract family with the parameters that a GPU would hold.

  Args:
    family: from `abstract_family`.
    mesh: the devices that will hold the family.
  """

  def fuse(model):
    shapes = jax.eval_shape(
      functools.partial(fusion.fuse, model.config, mesh=mesh), model.params
    )
    return model._replace(params=shapes)

  return family._replace(
    target=fuse(family.target),
    drafters={name: fuse(model) for name, model in family.drafters.items()},
  )


def _abstract_model(config: config_lib.TransformerConfig) -> families.Model:
  return families.Model(
    config,
    adapters.language_model(config, _DTYPE),
    _in_dtype(flax_modules.abstract_params(config)),
  )


def _abstract_head(
  target: config_lib.TransformerConfig,
  params: base.Params,
  fields: dict[str, Any],
) -> models.Head:
  config = heads.configure(fields.pop('kind'), target, **fields)
  tokens = np.arange(config.layer.head_size or 0)
  begin = lambda key, params: heads.begin(key, config, target, params, tokens)
  shapes = jax.eval_shape(begin, jax.random.key(0), params)
  return models.Head(config, heads.head(config, _DTYPE), _in_dtype(shapes))


def _in_dtype(shapes: base.Params) -> base.Params:
  """Returns shapes of parameters in the type of the computations."""
  cast = lambda leaf: loading.in_dtype(leaf, _DTYPE)
  return jax.eval_shape(functools.partial(jax.tree.map, cast), shapes)


def filled(family: families.Family) -> families.Family:
  """Returns an abstract family with random parameters."""
  return family._replace(
    target=_filled(family.target),
    drafters={name: _filled(model) for name, model in family.drafters.items()},
  )


def round_seconds(
  decoder: decoding.Decoder,
  batch_size: int,
  max_length: int,
  num_rounds: int,
  repeats: int,
  copied_bytes: int,
) -> tuple[float, float]:
  """Returns seconds per round, and bytes per second of a copy.

  Both are medians over interleaved repeats. Rounds are at the end of full KV
  caches. A copy reads and writes `copied_bytes` on one device; both count.
  """
  array = jnp.zeros(copied_bytes // 4, jnp.float32)
  runs = [
    _rounds(decoder, batch_size, max_length, num_rounds),
    lambda: functools.partial(_copies, array),
  ]
  seconds = np.median(measure.interleave(runs, repeats), axis=0)
  num_bytes = 2 * array.nbytes * _NUM_COPIES
  return seconds[0] / num_rounds, num_bytes / seconds[1]


def traced_rounds(
  decoder: decoding.Decoder, batch_size: int, max_length: int, num_rounds: int
) -> traces.Trace:
  """Returns the kernels of one round, the mean over several rounds."""
  trace = traces.trace(_rounds(decoder, batch_size, max_length, num_rounds)())
  mean = lambda numbers: {
    name: number / num_rounds for name, number in numbers.items()
  }
  return traces.Trace(*map(mean, trace))


def _rounds(
  decoder: decoding.Decoder, batch_size: int, max_length: int, num_rounds: int
) -> Callable[[], Callable[[], Any]]:
  """Prepares rounds at the end of full KV caches."""
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
def _copies(array: jax.Array) -> jax.Array:
  """Copies an array repeatedly; each copy reads what the last one wrote."""
  return jax.lax.fori_loop(0, _NUM_COPIES, lambda _, copied: copied + 1, array)


def _filled(model: Any) -> Any:
  """Returns a model or a head with random parameters."""
  shapes, tree = jax.tree.flatten(model.params)
  keys = jax.random.split(jax.random.key(0), len(shapes))
  arrays = [_random(shape, key) for shape, key in zip(shapes, keys)]
  params = jax.tree.unflatten(tree, arrays)
  if 'head_rows' in params:
    tokens = jnp.arange(params['head_rows'].size)
    size = params['head']['kernel'].shape[-1]
    params['head_rows'] = jnp.where(tokens < size, tokens, -1)
  return model._replace(params=params)


def _random(shape: jax.ShapeDtypeStruct, key: jax.Array) -> jax.Array:
  """Returns a random array with the shape, type and sharding of another."""
  make = lambda key: (0.02 * jax.random.normal(key, shape.shape)).astype(
    shape.dtype
  )
  return jax.jit(make, out_shardings=getattr(shape, 'sharding', None))(key)
