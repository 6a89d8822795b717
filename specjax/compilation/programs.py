"""A decode, compiled for a device that need not be there."""

import functools
import re
from typing import Any
from typing import NamedTuple

import jax
import numpy as np

from specjax import decoding
from specjax.compilation import devices
from specjax.compilation import hlo
from specjax.compilation import inspection
from specjax.compilation import launches
from specjax.compilation import products
from specjax.compilation import totals
from specjax.compilation import traffic

# A part of a cache that is read has at least so many slots.
_FEWEST_SLOTS = 64


class Memory(NamedTuple):
  """Bytes of one device that a program needs."""

  arguments: int
  temporaries: int
  peak: int  # that are in use at any time


class DoesNotFit(ValueError):
  """A program needs more memory than a device has.

  Attributes:
    lacking: how many bytes more, at least.
  """

  def __init__(self, device: devices.Device, lacking: float):
    self.lacking = lacking
    super().__init__(
      f'It does not fit on {device.name}: it needs {lacking / 1e9:.2f} GB '
      'more, at least.'
    )


class Program(NamedTuple):
  """What a compiler says of a decode.

  Attributes:
    device: what it is compiled for.
    memory: bytes that it needs.
    read: bytes of main memory that a round reads, by kind (`totals.KINDS`).
    written: bytes that a round writes.
    operations: of a round's products, by kind of what they read.
    least: bytes that a round cannot do without: the weights and caches of all
      its model calls, once each.
    launches: kernels, conditionals and inner loops of a round.
    found: copies, collectives, and what should not be there.
  """

  device: devices.Device
  memory: Memory
  read: dict[str, int]
  written: dict[str, int]
  operations: dict[str, int]
  least: int
  launches: launches.Launches
  found: inspection.Inspection

  @property
  def num_bytes(self) -> int:
    """Bytes that a round reads and writes."""
    return sum(self.read.values()) + sum(self.written.values())

  @property
  def seconds(self) -> float:
    """The least that a round takes at the device's bandwidth, and its FLOPS.

    Raises:
      ValueError: nobody knows them.
    """
    bandwidth, flops = self.device.bandwidth, self.device.flops
    if bandwidth is None or flops is None:
      raise ValueError(f'Nobody knows the bandwidth of {self.device.name}.')
    num_operations = sum(self.operations.values())
    return max(self.num_bytes / bandwidth, num_operations / flops)


def compile_decode(
  decoder: decoding.Decoder,
  device: devices.Device,
  *,
  batch_size: int = 1,
) -> Program:
  """Compiles a whole decode; nothing is allocated.

  A round is counted as the dearest that there is: caches are full, trees are
  as deep as they can be, and a bandit picks the arm that moves the most.

  Args:
    decoder: its parameters may be abstract. It is compiled for the mesh of the
      device that they lie on, or else for one device alone.
    device: from `devices.find`.
    batch_size: rows.

  Raises:
    DoesNotFit: the device has too little memory.
    ValueError: the device's compiler is not installed.
  """
  params, placed = check_fits(decoder, device, batch_size=batch_size)
  compiled = _compiled(
    decoding.decode.trace(decoder.round_fn, params, placed), device
  )
  memory = compiled.memory_analysis()
  _check_fits(device, memory.peak_memory_in_bytes)
  module = hlo.parse(compiled.as_text())
  params, state = (jax.tree.map(_on_one, each) for each in (params, placed))
  counted = totals.Counted(module, _kinds(decoder.round_fn, params, state))
  body = totals.loop_body(module)
  moved, multiplied = traffic.of(counted, body), products.of(counted, body)
  return Program(
    device,
    Memory(
      memory.argument_size_in_bytes,
      memory.temp_size_in_bytes,
      memory.peak_memory_in_bytes,
    ),
    read={kind: moved[kind, 'read'] for kind in totals.KINDS},
    written={kind: moved[kind, 'written'] for kind in totals.KINDS},
    operations={kind: multiplied[kind] for kind in totals.KINDS},
    least=_least(decoder.round_fn, params, state),
    launches=launches.of(counted, body),
    found=inspection.inspect(counted),
  )


def check_fits(
  decoder: decoding.Decoder, device: devices.Device, *, batch_size: int = 1
) -> tuple[decoding.Params, decoding.DecodeState]:
  """Refuses a decode whose parameters and caches a device cannot hold.

  This takes seconds where `compile_decode`, whose arguments it has, takes
  minutes; the loop needs some more memory.

  Returns:
    Shapes of the parameters and of the first state, as they lie on devices.

  Raises:
    DoesNotFit: the device has too little memory.
  """
  on_mesh = _on_mesh(decoder.params)
  params = decoder.params if on_mesh else _on_first(device, decoder.params)
  size = _num_bytes(jax.tree.map(_on_one, params))
  _check_fits(device, size)
  traced = decoder.trace_init(batch_size)
  if on_mesh:
    shardings = _compiled(traced, device).output_shardings
    placed = jax.tree.map(_placed, traced.out_info, shardings)
  else:
    placed = _on_first(device, traced.out_info)
  caches = _caches(jax.tree.map(_on_one, placed))
  _check_fits(device, size + _num_bytes(caches))
  return params, placed


def least_bytes(
  decoder: decoding.Decoder, device: devices.Device, *, batch_size: int = 1
) -> int:
  """Returns `Program.least` without compiling; arguments as in `check_fits`."""
  shapes = check_fits(decoder, device, batch_size=batch_size)
  params, state = (jax.tree.map(_on_one, each) for each in shapes)
  return _least(decoder.round_fn, params, state)


def _on_first(device, tree):
  """Arrays, whole on the first of the devices."""
  sharding = jax.sharding.SingleDeviceSharding(devices.all_of(device)[0])
  place = functools.partial(_placed, sharding=sharding)
  return jax.tree.map(place, tree)


def _check_fits(device, num_bytes):
  if device.memory is not None and num_bytes > device.memory:
    raise DoesNotFit(device, num_bytes - device.memory)


def _on_mesh(params):
  """Whether parameters lie on a mesh."""
  found = [getattr(leaf, 'sharding', None) for leaf in jax.tree.leaves(params)]
  return any(isinstance(each, jax.sharding.NamedSharding) for each in found)


def _placed(leaf, sharding):
  return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _compiled(traced, device):
  """A program, compiled for the platform of a device."""
  lowered = traced.lower(lowering_platforms=(device.platform,))
  try:
    with devices.without_flags():
      return lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    raise DoesNotFit(device, _exceeded(str(error))) from error


def _exceeded(message):
  """Bytes that a compiler says are too many; 0 if it does not say."""
  found = re.search(r'Exceeded \w+ capacity by ([\d.]+)([KMG]?)', message)
  powers = {'': 0, 'K': 10, 'M': 20, 'G': 30}
  return float(found[1]) * 2 ** powers[found[2]] if found else 0.0


def _on_one(leaf):
  """What one of the devices has of an array."""
  return jax.ShapeDtypeStruct(leaf.sharding.shard_shape(leaf.shape), leaf.dtype)


def _kinds(plan, params, state):
  """What arrays of a program are, by their shapes."""
  weights = {_essence(leaf.shape) for leaf in jax.tree.leaves(params)}
  cached = {_essence(leaf.shape) for leaf in _caches(state)}
  # A part of a cache has other slots, and all else.
  parts = {_without(dims, i) for dims in cached for i in range(len(dims))}
  sizes = _vocabularies(plan, params)

  def kind(array):
    dims = _essence(array.dims)
    if len(dims) > 1 and dims in weights:
      return totals.WEIGHTS
    if dims in cached:
      return totals.CACHES
    if len(dims) > 1 and any(
      _without(dims, i) in parts and dims[i] >= _FEWEST_SLOTS
      for i in range(len(dims))
    ):
      return totals.CACHES
    if sizes & set(dims):
      return totals.PROBS
    return totals.WEIGHTS if dims in weights else totals.REST

  return kind


def _vocabularies(plan, params):
  """How many tokens distributions are of: all, or a draft vocabulary."""
  heads = [
    each['head']['kernel'].shape[-1]
    for each in (params.target, *params.drafters)
    if isinstance(each, dict) and 'head' in each
  ]
  return {plan.target.vocab_size, *heads}


def _essence(dims):
  """A shape, whatever the order of its axes, without those of size 1."""
  return tuple(sorted(int(size) for size in dims if size > 1))


def _without(dims, i):
  return dims[:i] + dims[i + 1 :]


def _caches(state):
  """The large arrays of all caches."""
  leaves = jax.tree.leaves((state.target, state.drafters))
  return [leaf for leaf in leaves if len(leaf.shape) > 2]


def _least(plan, params, state):
  """Bytes of the models' calls of the dearest arm."""
  each = [
    arm.drafter.num_calls * (_weights(own) + _size(state.drafters[slot]))
    for arm, own, slot in zip(plan.arms, params.drafters, plan.slot_of_arm)
  ]
  return _weights(params.target) + _size(state.target) + max(each)


def _weights(params):
  """Bytes that a call reads; of a table that is no output head, only rows."""
  if isinstance(params, dict) and 'head' in params:
    params = {name: params[name] for name in params if name != 'embedding'}
  return _size(params)


def _size(tree: Any) -> int:
  """Bytes of matrices, and of what has more axes."""
  return _num_bytes([x for x in jax.tree.leaves(tree) if len(x.shape) > 1])


def _num_bytes(tree: Any) -> int:
  return sum(
    leaf.size * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree)
  )
