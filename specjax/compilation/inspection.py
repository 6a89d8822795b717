"""Finds copies, transfers and 64-bit computations in a program.

A KV cache that is copied in the loop costs as much as one that is read. Weights
that are copied to another layout before the loop take their memory twice.
Transfers to the host and float64 are unintended. Collectives are the
communication between devices.
"""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
import re
from typing import Any
from typing import NamedTuple

from specjax.compilation import hlo
from specjax.compilation import totals

_COPIES = 'copy', 'transpose', 'copy-start'
_HOST = frozenset(('infeed', 'outfeed', 'send', 'recv'))
_COLLECTIVES = (
  *('all-gather', 'all-reduce', 'all-to-all', 'collective-permute'),
  *('reduce-scatter', 'collective-broadcast'),
)
_WIDE = 'f64', 'c128'


class Inspection(NamedTuple):
  """Copies, transfers and collectives of a program that is mainly a loop.

  Attributes:
    copied_in_loop: bytes that a round copies, by kind.
    copied_before: bytes that are copied before the loop, by kind.
    host_transfers: number of instructions in a round that wait for the host.
    float64: number of arrays with 64-bit floating-point numbers.
    collectives: bytes that each device receives from a round's collectives, by
      operation.
    num_collectives: number of arrays in a round's collectives, by operation.
  """

  copied_in_loop: dict[str, int]
  copied_before: dict[str, int]
  host_transfers: int
  float64: int
  collectives: dict[str, int]
  num_collectives: dict[str, int]


def inspect(classified: totals.ClassifiedModule) -> Inspection:
  """Inspects a program; all branches of conditionals are included."""
  module = classified.module
  loop_body = totals.loop_body(module)
  body = list(_instructions(module, loop_body, include_fused=False))
  entry = module.computations[module.entry].values()
  instructions = (
    instruction
    for computation in module.computations.values()
    for instruction in computation.values()
  )
  collectives = _collectives(module, loop_body)
  counts = collections.Counter(op for op, arrays in collectives for _ in arrays)
  num_bytes: collections.Counter[str] = collections.Counter()
  for op, arrays in collectives:
    num_bytes[op] += sum(array.num_bytes for array in arrays)
  return Inspection(
    _copied(classified, body),
    _copied(classified, entry),
    sum(map(_waits_for_host, body)),
    sum(
      array.dtype in _WIDE
      for instruction in instructions
      for array in instruction.outputs
    ),
    dict(num_bytes),
    dict(counts),
  )


def _instructions(
  module: hlo.Module, name: str, include_fused: bool = True
) -> Iterator[hlo.Instruction]:
  """Yields the instructions of a computation and of all that it calls."""
  for instruction in module.computations[name].values():
    yield instruction
    is_entered = include_fused or instruction.op != 'fusion'
    for called in instruction.called(*totals.CALLED) if is_entered else ():
      if called in module.computations:
        yield from _instructions(module, called, include_fused)


def _collectives(
  module: hlo.Module, body: str
) -> list[tuple[str, tuple[hlo.Array, ...]]]:
  """Returns the operation and the output arrays of a round's collectives.

  Instructions of one channel are one collective, which compilers for TPU
  spread over several fusions.
  """
  collectives: dict[Any, tuple[str, tuple[hlo.Array, ...]]] = {}
  for instruction in _instructions(module, body):
    op = instruction.op.removesuffix('-start')
    if op in _COLLECTIVES:
      channel = re.search(r'channel_id=(\d+)', instruction.attributes)
      num = len(instruction.operands)
      # The output of an asynchronous start may repeat the inputs first.
      arrays = instruction.outputs[num : 2 * num] or instruction.outputs
      key = channel[1] if channel else len(collectives)
      collectives[key] = op, arrays
  return list(collectives.values())


def _copied(
  classified: totals.ClassifiedModule, instructions: Iterable[hlo.Instruction]
) -> dict[str, int]:
  """Returns the bytes of copies within main memory, by kind."""
  total: collections.Counter[str] = collections.Counter()
  for instruction in instructions:
    arrays = instruction.outputs
    if instruction.op == 'copy-start':
      arrays = arrays[:2]
    in_main_memory = not any(array.on_chip for array in arrays)
    if in_main_memory and _is_copy(classified.module, instruction):
      total[classified.classify(arrays[0])] += arrays[0].num_bytes
  return dict(total)


def _waits_for_host(instruction: hlo.Instruction) -> bool:
  """Returns whether an instruction waits for the host, or for Python."""
  if instruction.op == 'custom-call':
    return 'callback' in instruction.attributes
  return instruction.op.removesuffix('-done') in _HOST


def _is_copy(module: hlo.Module, instruction: hlo.Instruction) -> bool:
  """Returns whether an instruction only copies, into any layout."""
  if instruction.op in _COPIES:
    return True
  if instruction.op != 'fusion':
    return False
  (called,) = instruction.called('calls')
  ops = {inner.op for inner in module.computations[called].values()}
  return ops <= {'parameter', 'bitcast', 'copy', 'transpose', 'reshape'}
