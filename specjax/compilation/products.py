"""Counts the operations of a program's matrix products, by kind of operand.

A multiplication and an addition are two operations, as in the specifications of
devices. Other operations are negligible and not counted.
"""

import collections
from collections.abc import Sequence
import math
import re

from specjax.compilation import hlo
from specjax.compilation import totals

# An instruction in its computation, after the fusions that contain it.
_Path = Sequence[tuple[hlo.Computation, hlo.Instruction]]

_PRODUCTS = 'dot', 'convolution'
# Operations whose result has the entries of their first operand.
_RELABELING = (*hlo.PASSING, *hlo.SLICES, 'pad')


def count(
  classified: totals.ClassifiedModule, name: str
) -> collections.Counter[str]:
  """Returns the operations of a computation and of all that it calls, by kind.

  A product with weights counts as weights, and one with a KV cache as caches.
  Other products that compute logits count as probabilities.

  Args:
    classified: the program.
    name: name of the computation.
  """
  return totals.total(classified, name, count_instruction)


def count_instruction(
  classified: totals.ClassifiedModule,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> collections.Counter[str]:
  """Returns the operations of an instruction and all that is fused into it."""
  return _count(classified, [(computation, instruction)])


def _count(
  classified: totals.ClassifiedModule, path: _Path
) -> collections.Counter[str]:
  """Returns the operations of the last instruction of a path."""
  computation, instruction = path[-1]
  total: collections.Counter[str] = collections.Counter()
  if instruction.op in _PRODUCTS:
    total[_kind(classified, path)] += _num_operations(computation, instruction)
  if instruction.op == 'reduce':
    # Compilers for TPU multiply a matrix with one vector in this way.
    factors = _summed_product(computation, instruction)
    if factors is not None:
      kind = _kind(classified, _sibling(path, factors.name))
      total[kind] += 2 * math.prod(factors.outputs[0].dims)
  if instruction.op == 'fusion':
    (called,) = instruction.called('calls')
    fused = classified.module.computations[called]
    for inner in fused.values():
      total.update(_count(classified, [*path, (fused, inner)]))
  return total


def _num_operations(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> int:
  """Returns the number of operations of a product."""
  left, right = (
    computation[name].outputs[0].dims for name in instruction.operands[:2]
  )
  output = instruction.outputs[0].dims
  attributes = instruction.attributes
  if instruction.op == 'dot':
    (axes,) = re.findall(r'lhs_contracting_dims=\{([\d,]*)\}', attributes)
    depth = math.prod(left[int(axis)] for axis in axes.split(',') if axis)
    return 2 * math.prod(output) * depth
  (labels,) = re.findall(r'dim_labels=([\w>-]+)', attributes)
  left_labels, right_labels, output_labels = re.split('_|->', labels)
  features = math.prod(
    size for size, label in zip(output, output_labels) if label in 'bf'
  )
  total = 2 * features * right[right_labels.index('i')]
  for label in filter(str.isdigit, output_labels):
    input_size = left[left_labels.index(label)]
    output_size = output[output_labels.index(label)]
    window = _window(instruction, int(label))
    total *= _num_pairs(input_size, output_size, window)
  return total


def _summed_product(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> hlo.Instruction | None:
  """Returns the multiplication whose results are summed, or None."""
  summand = computation[instruction.operands[0]]
  while summand.op in hlo.PASSING:
    summand = computation[summand.operands[0]]
  return summand if summand.op == 'multiply' else None


def _window(instruction: hlo.Instruction, axis: int) -> dict[str, int]:
  """Returns the window of a convolution along one spatial axis."""
  (text,) = re.findall(r'window=\{([^}]*)\}', instruction.attributes)
  fields = dict(item.split('=') for item in text.split())
  value = lambda name, default: int(
    fields[name].split('x')[axis] if name in fields else default
  )
  pads = fields['pad'].split('x')[axis] if 'pad' in fields else '0_0'
  return {
    'size': value('size', 1),
    'before': int(pads.split('_')[0]),
    **{name: value(name, 1) for name in ('stride', 'lhs_dilate', 'rhs_dilate')},
  }


def _num_pairs(
  input_size: int, output_size: int, window: dict[str, int]
) -> int:
  """Returns how often an entry of the kernel meets an input, along one axis.

  Batched matrix products are also convolutions, in which each output has a
  single pair.
  """
  dilation = window['lhs_dilate']
  positions = (
    output * window['stride'] + k * window['rhs_dilate'] - window['before']
    for output in range(output_size)
    for k in range(window['size'])
  )
  return sum(
    position % dilation == 0 and 0 <= position // dilation < input_size
    for position in positions
  )


def _kind(classified: totals.ClassifiedModule, path: _Path) -> str:
  """Returns the kind of a product: the first in `KINDS` of its arrays."""
  _, instruction = path[-1]
  kinds = [
    kind
    for name in instruction.operands[:2]
    for kind in _source_kinds(classified, _sibling(path, name))
  ]
  output_kind = _array_kind(classified, instruction.outputs[0])
  return min([*kinds, output_kind], key=totals.KINDS.index)


def _sibling(path: _Path, name: str) -> _Path:
  """Returns the path of another instruction of the same computation."""
  computation, _ = path[-1]
  return [*path[:-1], (computation, computation[name])]


def _array_kind(classified: totals.ClassifiedModule, array: hlo.Array) -> str:
  """Returns the kind of an array.

  Vectors are never weights, since they may have the shape of a norm's.
  """
  kind = classified.classify(array)
  is_matrix = sum(size > 1 for size in array.dims) > 1
  return kind if is_matrix or kind == totals.PROBS else totals.REST


def _source_kinds(
  classified: totals.ClassifiedModule, path: _Path
) -> list[str]:
  """Returns the kinds of the weights and KV caches that a value is part of."""
  _, instruction = path[-1]
  if not instruction.outputs:
    return []
  kind = _array_kind(classified, instruction.outputs[0])
  if kind in (totals.WEIGHTS, totals.CACHES):
    return [kind]
  if instruction.op == 'fusion':
    (called,) = instruction.called('calls')
    fused = classified.module.computations[called]
    return _source_kinds(classified, [*path, (fused, hlo.root(fused))])
  if instruction.op == 'parameter' and len(path) > 1:
    _, caller = path[-2]
    name = caller.operands[int(instruction.literal)]
    return _source_kinds(classified, _sibling(path[:-1], name))
  if instruction.op not in (*_RELABELING, 'concatenate'):
    return []
  sources = instruction.operands
  if instruction.op != 'concatenate':
    sources = sources[:1]
  return [
    kind
    for name in sources
    for kind in _source_kinds(classified, _sibling(path, name))
  ]
