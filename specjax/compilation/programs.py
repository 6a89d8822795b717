"""Compiles the decode loop for a device that need not exist locally."""

from collections.abc import Callable
from collections.abc import Sequence
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
from specjax.models import transposes

# Minimum number of slots in a window of a KV cache.
_MIN_SLOTS = 64


class Memory(NamedTuple):
  """Bytes of one device that a program needs.

  Attributes:
    arguments: bytes of the arguments.
    temporaries: bytes of temporary buffers.
    peak: maximum number of bytes that are in use at any time.
  """

  arguments: int
  temporaries: int
  peak: int


class DoesNotFit(ValueError):
  """A program needs more memory than a device has.

  Attributes:
    lacking: number of missing bytes, at least.
  """

  def __init__(self, device: devices.Device, lacking: float):
    self.lacking = lacking
    super().__init__(
      f'The program does not fit on {device.name}: it needs at least '
      f'{lacking / 1e9:.2f} GB more.'
    )


class Program(NamedTuple):
  """A compiled decode loop, with counts for one round.

  Attributes:
    device: the device that it is compiled for.
    memory: bytes that it needs.
    read: bytes of main memory that a round reads, by kind (`totals.KINDS`).
    written: bytes of main memory that a round writes, by kind.
    operations: operations of a round's matrix products, by kind of operand.
    min_bytes: lower bound of the bytes that a round reads: the weights and KV
      caches of all its model calls, once each.
    launches: kernels, conditionals and inner loops of a round.
    inspection: copies, collectives, host transfers and float64.
  """

  device: devices.Device
  memory: Memory
  read: dict[str, int]
  written: dict[str, int]
  operations: dict[str, int]
  min_bytes: int
  launches: launches.Launches
  inspection: inspection.Inspection

  @property
  def num_bytes(self) -> int:
    """Number of bytes that a round reads and writes."""
    return sum(self.read.values()) + sum(self.written.values())

  @property
  def seconds(self) -> float:
    """Lower bound of a round's time, by the device's bandwidth and FLOPS.

    Raises:
      ValueError: they are unknown.
    """
    bandwidth, flops = self.device.bandwidth, self.device.flops
    if bandwidth is None or flops is None:
      raise ValueError(
        f'The bandwidth and the FLOPS of {self.device.name} are unknown.'
      )
    num_operations = sum(self.operations.values())
    return max(self.num_bytes / bandwidth, num_operations / flops)


def compile_decode(
  decoder: decoding.Decoder,
  device: devices.Device,
  *,
  batch_size: int = 1,
) -> Program:
  """Compiles the whole decode loop; nothing is allocated.

  Counts are those of the most expensive round: KV caches are full, trees have
  their maximum depth, and the bandit selects the arm with the most traffic.

  Args:
    decoder: the decoder; its parameters may be abstract. It is compiled for the
      mesh of their shardings, or else for a single device.
    device: the device, from `devices.find`.
    batch_size: number of rows.

  Raises:
    DoesNotFit: the device has too little memory.
    ValueError: the device's compiler is not installed.
  """
  params, state = check_fits(decoder, device, batch_size=batch_size)
  compiled = _compile(
    decoding.decode.trace(decoder.round_fn, params, state), device
  )
  memory = compiled.memory_analysis()
  _check_fits(device, memory.peak_memory_in_bytes)
  module = hlo.parse(compiled.as_text())
  params, state = jax.tree.map(_shard, (params, state))
  classify = _classifier(decoder.round_fn, params, state)
  classified = totals.ClassifiedModule(module, classify)
  body = totals.loop_body(module)
  num_bytes = traffic.count(classified, body)
  num_operations = products.count(classified, body)
  return Program(
    device,
    Memory(
      memory.argument_size_in_bytes,
      memory.temp_size_in_bytes,
      memory.peak_memory_in_bytes,
    ),
    read={kind: num_bytes[kind, 'read'] for kind in totals.KINDS},
    written={kind: num_bytes[kind, 'written'] for kind in totals.KINDS},
    operations={kind: num_operations[kind] for kind in totals.KINDS},
    min_bytes=_min_bytes(decoder.round_fn, params, state),
    launches=launches.count(classified, body),
    inspection=inspection.inspect(classified),
  )


def check_fits(
  decoder: decoding.Decoder, device: devices.Device, *, batch_size: int = 1
) -> tuple[decoding.Params, decoding.DecodeState]:
  """Raises `DoesNotFit` if a device cannot hold parameters and KV caches.

  This takes seconds, while `compile_decode` takes minutes. The compiled loop
  needs some more memory.

  Args:
    decoder: See `compile_decode`.
    device: See `compile_decode`.
    batch_size: See `compile_decode`.

  Returns:
    Shapes of the parameters and of the initial state, with their shardings.

  Raises:
    DoesNotFit: the device has too little memory.
  """
  on_mesh = _on_mesh(decoder.params)
  params = decoder.params if on_mesh else _on_first(device, decoder.params)
  size = _num_bytes(jax.tree.map(_shard, params))
  _check_fits(device, size)
  traced = decoder.trace_init(batch_size)
  if on_mesh:
    shardings = _compile(traced, device).output_shardings
    state = jax.tree.map(_with_sharding, traced.out_info, shardings)
  else:
    state = _on_first(device, traced.out_info)
  caches = _caches(jax.tree.map(_shard, state))
  _check_fits(device, size + _num_bytes(caches))
  return params, state


def min_bytes(
  decoder: decoding.Decoder, device: devices.Device, *, batch_size: int = 1
) -> int:
  """Returns `Program.min_bytes` without compiling.

  Args:
    decoder: See `compile_decode`.
    device: See `compile_decode`.
    batch_size: See `compile_decode`.

  Raises:
    DoesNotFit: the device has too little memory.
  """
  shapes = check_fits(decoder, device, batch_size=batch_size)
  params, state = jax.tree.map(_shard, shapes)
  return _min_bytes(decoder.round_fn, params, state)


def weight_bytes(params: Any) -> int:
  """Returns the bytes of the weights that a model call reads.

  An embedding that is not the output head is not included: a call reads only
  some of its rows. A kernel and its transposed copy count once.

  Args:
    params: the parameters of a model or of a drafter, or a tuple of them.
  """
  if type(params) is tuple:
    return sum(map(weight_bytes, params))
  params = transposes.remove(params)
  if isinstance(params, dict) and 'head' in params:
    params = {name: params[name] for name in params if name != 'embedding'}
  return _matrix_bytes(params)


def _on_first(device: devices.Device, tree: Any) -> Any:
  """Returns shapes of arrays on the first device."""
  sharding = jax.sharding.SingleDeviceSharding(devices.jax_devices(device)[0])
  return jax.tree.map(
    functools.partial(_with_sharding, sharding=sharding), tree
  )


def _check_fits(device: devices.Device, num_bytes: float) -> None:
  """Raises `DoesNotFit` if a device has too little memory."""
  if device.memory is not None and num_bytes > device.memory:
    raise DoesNotFit(device, num_bytes - device.memory)


def _on_mesh(params: Any) -> bool:
  """Returns whether parameters are sharded over a mesh."""
  shardings = (
    getattr(leaf, 'sharding', None) for leaf in jax.tree.leaves(params)
  )
  return any(
    isinstance(sharding, jax.sharding.NamedSharding) for sharding in shardings
  )


def _with_sharding(
  leaf: Any, sharding: jax.sharding.Sharding
) -> jax.ShapeDtypeStruct:
  """Returns the shape of an array with a sharding."""
  return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _compile(traced: Any, device: devices.Device) -> Any:
  """Compiles a traced program for the platform of a device."""
  lowered = traced.lower(lowering_platforms=(device.platform,))
  try:
    with devices.without_flags():
      return lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    raise DoesNotFit(device, _exceeded(str(error))) from error


def _exceeded(message: str) -> float:
  """Returns the missing bytes in a compiler's error; 0 if it has none."""
  match = re.search(r'Exceeded \w+ capacity by ([\d.]+)([KMG]?)', message)
  powers = {'': 0, 'K': 10, 'M': 20, 'G': 30}
  return float(match[1]) * 2 ** powers[match[2]] if match else 0.0


def _shard(leaf: Any) -> jax.ShapeDtypeStruct:
  """Returns the shape of the part of an array on one device."""
  return jax.ShapeDtypeStruct(leaf.sharding.shard_shape(leaf.shape), leaf.dtype)


def _classifier(
  round_fn: decoding.Round, params: Any, state: Any
) -> Callable[[hlo.Array], str]:
  """Returns a function that classifies arrays of a program by their shapes."""
  weights = {_sorted_dims(leaf.shape) for leaf in jax.tree.leaves(params)}
  caches = {_sorted_dims(leaf.shape) for leaf in _caches(state)}
  # A window of a KV cache has the cache's dimensions, except for the slots.
  windows = {_remove(dims, i) for dims in caches for i in range(len(dims))}
  vocab_sizes = _vocab_sizes(round_fn, params)

  def classify(array: hlo.Array) -> str:
    dims = _sorted_dims(array.dims)
    if len(dims) > 1 and dims in weights:
      return totals.WEIGHTS
    if dims in caches:
      return totals.CACHES
    if len(dims) > 1 and any(
      _remove(dims, i) in windows and dims[i] >= _MIN_SLOTS
      for i in range(len(dims))
    ):
      return totals.CACHES
    if vocab_sizes & set(dims):
      return totals.PROBS
    return totals.WEIGHTS if dims in weights else totals.REST

  return classify


def _vocab_sizes(round_fn: decoding.Round, params: Any) -> set[int]:
  """Returns the sizes of all vocabularies, including reduced ones."""
  head_sizes = [
    model_params['head']['kernel'].shape[-1]
    for model_params in (params.target, *params.drafters)
    if isinstance(model_params, dict) and 'head' in model_params
  ]
  return {round_fn.target.vocab_size, *head_sizes}


def _sorted_dims(dims: Sequence[int]) -> tuple[int, ...]:
  """Returns the sizes above 1 in ascending order, to compare any layouts."""
  return tuple(sorted(int(size) for size in dims if size > 1))


def _remove(dims: tuple[int, ...], i: int) -> tuple[int, ...]:
  """Returns dimensions without the one at index `i`."""
  return dims[:i] + dims[i + 1 :]


def _caches(state: Any) -> list[Any]:
  """Returns the keys and values of all KV caches."""
  leaves = jax.tree.leaves((state.target, state.drafters))
  return [leaf for leaf in leaves if len(leaf.shape) > 2]


def _min_bytes(round_fn: decoding.Round, params: Any, state: Any) -> int:
  """Returns the bytes of all model calls with the most expensive arm."""
  arms = zip(round_fn.arms, params.drafters, round_fn.slot_of_arm)
  draft_bytes = [
    arm.drafter.num_calls
    * (weight_bytes(drafter_params) + _matrix_bytes(state.drafters[slot]))
    for arm, drafter_params, slot in arms
  ]
  target_bytes = weight_bytes(params.target) + _matrix_bytes(state.target)
  return target_bytes + max(draft_bytes)


def _matrix_bytes(tree: Any) -> int:
  """Returns the bytes of all arrays with at least two axes."""
  return _num_bytes([x for x in jax.tree.leaves(tree) if len(x.shape) > 1])


def _num_bytes(tree: Any) -> int:
  """Returns the bytes of all arrays."""
  return sum(
    leaf.size * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree)
  )
