"""What crosses a device's main memory in a program, by what it is.

Compilers' own counts are of another kind: they take whole tables that a fusion
gathers a row of, and what stays on the chip. Here a slice is read as a slice,
an update in place is written as an update, and the body of a loop counts as
often as it runs.
"""

import collections
from typing import NamedTuple

from specjax.compilation import hlo
from specjax.compilation import totals

# `(kind, 'read' or 'written') -> bytes`.
Traffic = collections.Counter[tuple[str, str]]

# Where the bytes stand that an update writes.
_UPDATES = {'dynamic-update-slice': 1, 'scatter': -1}


def of(counted: totals.Counted, computation: str) -> Traffic:
  """Returns the traffic of a computation, with all that it calls."""
  return totals.of(counted, computation, of_instruction)


def of_instruction(
  counted: totals.Counted, own: hlo.Computation, each: hlo.Instruction
) -> Traffic:
  """Returns that of an instruction, with what is fused into it."""
  total = Traffic()
  if not hlo.works(each):
    return total
  for place, name in enumerate(each.operands):
    source = _origin(own, name)
    if source is None or source.on_chip:
      continue
    num_bytes = _read(counted.module, own, each, place, source)
    total[counted.kind(source), 'read'] += num_bytes
  for array, num_bytes in _written(counted.module, own, each):
    if not array.on_chip:
      total[counted.kind(array), 'written'] += num_bytes
  return total


def _origin(own, name):
  """The array that a name stands for, as it lies in memory."""
  each = own.get(name)
  while each is not None and each.op == 'bitcast':
    each = own.get(each.operands[0])
  return each.outputs[0] if each is not None and each.outputs else None


def _read(module, own, each, place, source):
  """Bytes of an operand that an instruction reads."""
  if each.op in hlo.SLICES:
    return _size(each) if place == 0 else source.num_bytes
  if each.op in ('copy-start', 'slice-start'):
    return min(array.num_bytes for array in each.outputs[:2])
  if each.op in _UPDATES and place == 0:
    return 0
  if each.op == 'fusion':
    (called,) = each.called('calls')
    used = _used(module, called, place, source.num_bytes)
    return source.num_bytes if used.returned else used.num_bytes
  return source.num_bytes


class _Used(NamedTuple):
  """What a fused computation does with a parameter."""

  num_bytes: int  # that it reads of it
  returned: bool  # it returns numbers of it, as many as are asked for


def _used(module, called, place, whole):
  """Returns what is read of a parameter, `whole` at most."""
  own = module.computations[called]
  todo = [
    each.name
    for each in own.values()
    if each.op == 'parameter' and int(each.literal) == place
  ]
  total, returned, seen = 0, False, set()
  while todo:
    name = todo.pop()
    seen.add(name)
    returned |= own[name].is_root
    for user in hlo.users(own, name):
      if user.op in hlo.SLICES and user.operands[0] == name:
        total += _size(user)
      elif user.op in _UPDATES and user.operands.count(name) == 1:
        total += 0 if user.operands[0] == name else whole
      elif user.op in (*hlo.PASSING, 'fusion') or hlo.only_names(user):
        inner = _used_by(module, user, name, whole)
        total += inner.num_bytes
        if inner.returned and user.name not in seen:
          todo.append(user.name)
      else:
        return _Used(whole, returned=False)
  return _Used(min(total, whole), returned)


def _used_by(module, user, name, whole):
  """What an instruction inside of a fusion does with a value."""
  if user.op != 'fusion':
    return _Used(0, returned=True)
  (called,) = user.called('calls')
  each = [
    _used(module, called, place, whole)
    for place, operand in enumerate(user.operands)
    if operand == name
  ]
  return _Used(
    sum(used.num_bytes for used in each), any(used.returned for used in each)
  )


def _written(module, own, each):
  """The arrays that an instruction writes, and bytes of each."""
  if each.op in ('copy-start', 'slice-start'):
    # One output is what is written, another what is read.
    arrays = each.outputs[:2]
    small = min(array.num_bytes for array in arrays)
    target = arrays[0] if each.op == 'copy-start' else arrays[1]
    return [(target, small)]
  if each.op == 'fusion':
    (called,) = each.called('calls')
    inner = module.computations[called]
    made = hlo.root(inner)
    names = made.operands if made.op == 'tuple' else (made.name,)
    sizes = [_size_of_update(module, inner, name) for name in names]
    return list(zip(each.outputs, sizes))
  if each.op in _UPDATES:
    size = _size_of_update(module, own, each.name)
    return [(each.outputs[0], size)]
  return [(array, array.num_bytes) for array in each.outputs]


def _size_of_update(module, own, name):
  """Bytes that it takes to write a value where it is updated in place."""
  each = own[name]
  if each.op in _UPDATES:
    update = own.get(each.operands[_UPDATES[each.op]])
    return _size(update) if update else 0
  if each.op in ('bitcast', 'copy', 'convert') and each.operands[0] in own:
    before = own[each.operands[0]]
    if before.op in (*_UPDATES, 'bitcast'):
      return _size_of_update(module, own, before.name)
  if each.op == 'fusion':
    (called,) = each.called('calls')
    inner = module.computations[called]
    made = hlo.root(inner)
    if made.op != 'tuple':
      return _size_of_update(module, inner, made.name)
  if each.op == 'parameter':
    return 0
  return _size(each)


def _size(each):
  return sum(array.num_bytes for array in each.outputs)
