"""What programs do that a decode should not, and what devices tell each other.

A cache that is copied in the loop costs as much as one that is read; weights in
another layout, made before the loop, take their memory twice; and whatever goes
to the host or is computed in float64 was not meant.
"""

import collections
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
  """What was found in a program that is mainly a loop.

  Attributes:
    copied_in_loop: bytes of copies that a round makes, by kind.
    copied_before: bytes of copies that are made before the loop, by kind.
    host_transfers: instructions of a round that talk to the host.
    float64: instructions that compute in 64 bits.
    collectives: bytes that a round's collectives give each device, by op.
    num_collectives: how many there are, by op; one of several arrays is one
      for each.
  """

  copied_in_loop: dict[str, int]
  copied_before: dict[str, int]
  host_transfers: int
  float64: int
  collectives: dict[str, int]
  num_collectives: dict[str, int]


def inspect(counted: totals.Counted) -> Inspection:
  """Returns what is found in a program; one of two branches counts, too."""
  module = counted.module
  body = list(_running(module, totals.loop_body(module)))
  entry = module.computations[module.entry].values()
  every = (
    each for own in module.computations.values() for each in own.values()
  )
  given = list(_given(module, totals.loop_body(module)).values())
  num = collections.Counter(op for op, arrays in given for _ in arrays)
  collectives: collections.Counter[str] = collections.Counter()
  for op, arrays in given:
    collectives[op] += sum(array.num_bytes for array in arrays)
  return Inspection(
    _copied(counted, body),
    _copied(counted, entry),
    sum(map(_asks_host, body)),
    sum(array.dtype in _WIDE for each in every for array in each.outputs),
    dict(collectives),
    dict(num),
  )


def _running(module, name) -> Iterator[hlo.Instruction]:
  """Yields what runs as an instruction of its own, in all that is called."""
  return _all(module, name, fused=False)


def _all(module, name, fused=True) -> Iterator[hlo.Instruction]:
  """Yields the instructions of a computation, and of all that is called."""
  for each in module.computations[name].values():
    yield each
    enters = fused or each.op != 'fusion'
    for inner in each.called(*totals.CALLED) if enters else ():
      if inner in module.computations:
        yield from _all(module, inner, fused)


def _given(module, body):
  """What each collective of a round gives a device: its op and arrays.

  Those of one channel are one: compilers for TPU spread one over fusions.
  """
  found: dict[Any, tuple[str, tuple[hlo.Array, ...]]] = {}
  for each in _all(module, body):
    op = each.op.removesuffix('-start')
    if op in _COLLECTIVES:
      channel = re.search(r'channel_id=(\d+)', each.attributes)
      num = len(each.operands)
      # What one that has only started reads may stand before what it gives.
      arrays = each.outputs[num : 2 * num] or each.outputs
      found[channel[1] if channel else len(found)] = op, arrays
  return found


def _copied(counted, instructions):
  """Bytes of copies from main memory to main memory, by kind."""
  total: collections.Counter[str] = collections.Counter()
  for each in instructions:
    arrays = each.outputs[:2] if each.op == 'copy-start' else each.outputs
    if _is_copy(counted.module, each) and not any(a.on_chip for a in arrays):
      total[counted.kind(arrays[0])] += arrays[0].num_bytes
  return dict(total)


def _asks_host(each):
  """Whether an instruction waits for the host, or for Python there."""
  if each.op == 'custom-call':
    return 'callback' in each.attributes
  return each.op.removesuffix('-done') in _HOST


def _is_copy(module, each):
  """Whether an instruction does nothing but copy, into any layout."""
  if each.op in _COPIES:
    return True
  if each.op != 'fusion':
    return False
  (called,) = each.called('calls')
  ops = {inner.op for inner in module.computations[called].values()}
  return ops <= {'parameter', 'bitcast', 'copy', 'transpose', 'reshape'}
