"""Counts the bytes that a program moves through main memory, by kind.

Counts of the compilers themselves differ: they include whole tables of which a
fusion gathers a row, and arrays that stay on the chip. Here, a slice is read as
a slice, an update in place is written as an update, and the body of a loop
counts as often as it runs.
"""

import collections
from typing import NamedTuple

from specjax.compilation import hlo
from specjax.compilation import totals

# `(kind, 'read' or 'written') -> bytes`.
Traffic = collections.Counter[tuple[str, str]]

# Operations that update an array in place, and the index of the operand with
# the new values.
_UPDATES = {'dynamic-update-slice': 1, 'scatter': -1}


def count(classified: totals.ClassifiedModule, name: str) -> Traffic:
  """Returns the traffic of a computation and of all that it calls.

  Args:
    classified: the program.
    name: name of the computation.
  """
  return totals.total(classified, name, count_instruction)


def count_instruction(
  classified: totals.ClassifiedModule,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> Traffic:
  """Returns the traffic of an instruction, with all that is fused into it."""
  total = Traffic()
  if not hlo.is_kernel(instruction):
    return total
  for operand, name in enumerate(instruction.operands):
    source = _source(computation, name)
    if source is None or source.on_chip:
      continue
    num_bytes = _bytes_read(
      classified.module, computation, instruction, operand, source
    )
    total[classified.classify(source), 'read'] += num_bytes
  for array, num_bytes in _written(classified.module, computation, instruction):
    if not array.on_chip:
      total[classified.classify(array), 'written'] += num_bytes
  return total


def _source(computation: hlo.Computation, name: str) -> hlo.Array | None:
  """Returns the array in memory that a value denotes, past bitcasts."""
  instruction = computation.get(name)
  while instruction is not None and instruction.op == 'bitcast':
    instruction = computation.get(instruction.operands[0])
  if instruction is None or not instruction.outputs:
    return None
  return instruction.outputs[0]


def _bytes_read(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  operand: int,
  source: hlo.Array,
) -> int:
  """Returns the bytes of an operand that an instruction reads."""
  if instruction.op in hlo.SLICES:
    return _num_bytes(instruction) if operand == 0 else source.num_bytes
  if instruction.op in ('copy-start', 'slice-start'):
    return min(array.num_bytes for array in instruction.outputs[:2])
  if instruction.op in _UPDATES and operand == 0:
    return 0
  if instruction.op == 'fusion':
    (called,) = instruction.called('calls')
    use = _use_in_fusion(module, called, operand, source.num_bytes)
    return source.num_bytes if use.is_returned else use.num_bytes
  return source.num_bytes


class _Use(NamedTuple):
  """The use of a value in a fused computation.

  Attributes:
    num_bytes: bytes of it that are read.
    is_returned: whether the result contains its entries, as many as the user of
      the result needs.
  """

  num_bytes: int
  is_returned: bool


def _use_in_fusion(
  module: hlo.Module, called: str, operand: int, num_bytes: int
) -> _Use:
  """Returns the use of a parameter in a fused computation.

  Args:
    module: the program.
    called: name of the fused computation.
    operand: index of the parameter.
    num_bytes: size of the parameter, which bounds the bytes read.
  """
  computation = module.computations[called]
  pending = [
    instruction.name
    for instruction in computation.values()
    if instruction.op == 'parameter' and int(instruction.literal) == operand
  ]
  total, is_returned, seen = 0, False, set()
  while pending:
    name = pending.pop()
    seen.add(name)
    is_returned |= computation[name].is_root
    for user in hlo.users(computation, name):
      if user.op in hlo.SLICES and user.operands[0] == name:
        total += _num_bytes(user)
      elif user.op in _UPDATES and user.operands.count(name) == 1:
        total += 0 if user.operands[0] == name else num_bytes
      elif user.op in (*hlo.PASSING, 'fusion') or hlo.only_names(user):
        use = _use_in_instruction(module, user, name, num_bytes)
        total += use.num_bytes
        if use.is_returned and user.name not in seen:
          pending.append(user.name)
      else:
        return _Use(num_bytes, is_returned=False)
  return _Use(min(total, num_bytes), is_returned)


def _use_in_instruction(
  module: hlo.Module, user: hlo.Instruction, name: str, num_bytes: int
) -> _Use:
  """Returns the use of a value in an instruction inside of a fusion."""
  if user.op != 'fusion':
    return _Use(0, is_returned=True)
  (called,) = user.called('calls')
  uses = [
    _use_in_fusion(module, called, index, num_bytes)
    for index, operand in enumerate(user.operands)
    if operand == name
  ]
  return _Use(
    sum(use.num_bytes for use in uses), any(use.is_returned for use in uses)
  )


def _written(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> list[tuple[hlo.Array, int]]:
  """Returns the arrays that an instruction writes, and how many bytes."""
  if instruction.op in ('copy-start', 'slice-start'):
    # One output is the destination, the other the source.
    arrays = instruction.outputs[:2]
    num_bytes = min(array.num_bytes for array in arrays)
    target = arrays[0] if instruction.op == 'copy-start' else arrays[1]
    return [(target, num_bytes)]
  if instruction.op == 'fusion':
    (called,) = instruction.called('calls')
    fused = module.computations[called]
    root = hlo.root(fused)
    names = root.operands if root.op == 'tuple' else (root.name,)
    sizes = [_bytes_written(module, fused, name) for name in names]
    return list(zip(instruction.outputs, sizes))
  if instruction.op in _UPDATES:
    num_bytes = _bytes_written(module, computation, instruction.name)
    return [(instruction.outputs[0], num_bytes)]
  return [(array, array.num_bytes) for array in instruction.outputs]


def _bytes_written(
  module: hlo.Module, computation: hlo.Computation, name: str
) -> int:
  """Returns the bytes that are written to store a value.

  They are those of the update if the value is an array updated in place.
  """
  instruction = computation[name]
  if instruction.op in _UPDATES:
    update = computation.get(instruction.operands[_UPDATES[instruction.op]])
    return _num_bytes(update) if update else 0
  if instruction.op in ('bitcast', 'copy', 'convert'):
    source = computation.get(instruction.operands[0])
    if source is not None and source.op in (*_UPDATES, 'bitcast'):
      return _bytes_written(module, computation, source.name)
  if instruction.op == 'fusion':
    (called,) = instruction.called('calls')
    fused = module.computations[called]
    root = hlo.root(fused)
    if root.op != 'tuple':
      return _bytes_written(module, fused, root.name)
  if instruction.op == 'parameter':
    return 0
  return _num_bytes(instruction)


def _num_bytes(instruction: hlo.Instruction) -> int:
  """Returns the size of an instruction's outputs."""
  return sum(array.num_bytes for array in instruction.outputs)
