"""What a program multiplies: operations of its products, by what is read.

A multiplication and an addition are two operations, as makers of devices count
them. What is no product of matrices is too little to matter, and not counted.
"""

import collections
import math
import re

from specjax.compilation import hlo
from specjax.compilation import totals

_PRODUCTS = 'dot', 'convolution'
# What has the numbers of its first operand.
_SAME = (*hlo.PASSING, *hlo.SLICES, 'pad')


def of(counted: totals.Counted, computation: str) -> collections.Counter[str]:
  """Returns the operations of a computation, with all that it calls, by kind.

  A product with weights counts as theirs, one with a cache as its; what else
  makes logits as probabilities.
  """
  return totals.of(counted, computation, of_instruction)


def of_instruction(
  counted: totals.Counted, own: hlo.Computation, each: hlo.Instruction
) -> collections.Counter[str]:
  """Returns those of an instruction, with what is fused into it."""
  return _of(counted, [(own, each)])


def _of(counted, path):
  """Those of the last of instructions, each in a fusion that is before it."""
  own, each = path[-1]
  total: collections.Counter[str] = collections.Counter()
  if each.op in _PRODUCTS:
    total[_kind(counted, path)] += _operations(own, each)
  if each.op == 'reduce' and (factors := _summed(own, each)):
    # So the compiler for TPU multiplies a matrix with one vector.
    kind = _kind(counted, _beside(path, factors.name))
    total[kind] += 2 * math.prod(factors.outputs[0].dims)
  if each.op == 'fusion':
    (called,) = each.called('calls')
    inner = counted.module.computations[called]
    for instruction in inner.values():
      total.update(_of(counted, [*path, (inner, instruction)]))
  return total


def _operations(own, each):
  """How many a product takes."""
  left, right = (own[name].outputs[0].dims for name in each.operands[:2])
  made = each.outputs[0].dims
  if each.op == 'dot':
    (axes,) = re.findall(r'lhs_contracting_dims=\{([\d,]*)\}', each.attributes)
    depth = math.prod(left[int(axis)] for axis in axes.split(',') if axis)
    return 2 * math.prod(made) * depth
  (labels,) = re.findall(r'dim_labels=([\w>-]+)', each.attributes)
  of_left, of_right, of_made = re.split('_|->', labels)
  features = math.prod(
    size for size, label in zip(made, of_made) if label in 'bf'
  )
  total = 2 * features * right[of_right.index('i')]
  for label in filter(str.isdigit, of_made):
    sizes = left[of_left.index(label)], made[of_made.index(label)]
    total *= _pairs(*sizes, _window(each, int(label)))
  return total


def _summed(own, each):
  """The multiplication whose results are summed up, or None."""
  summed = own[each.operands[0]]
  while summed.op in hlo.PASSING:
    summed = own[summed.operands[0]]
  return summed if summed.op == 'multiply' else None


def _window(each, axis):
  """Of one axis of a convolution, its window."""
  (text,) = re.findall(r'window=\{([^}]*)\}', each.attributes)
  fields = dict(item.split('=') for item in text.split())
  of_axis = lambda name, default: int(
    fields[name].split('x')[axis] if name in fields else default
  )
  pads = fields['pad'].split('x')[axis] if 'pad' in fields else '0_0'
  return {
    'size': of_axis('size', 1),
    'before': int(pads.split('_')[0]),
    **{
      name: of_axis(name, 1) for name in ('stride', 'lhs_dilate', 'rhs_dilate')
    },
  }


def _pairs(num_read, num_made, window):
  """How often a number of the kernel meets one that is read, on one axis.

  Products of batches of matrices are convolutions, too, in which each of the
  numbers that are made is of one pair.
  """
  dilate = window['lhs_dilate']
  places = (
    made * window['stride'] + k * window['rhs_dilate'] - window['before']
    for made in range(num_made)
    for k in range(window['size'])
  )
  return sum(
    place % dilate == 0 and 0 <= place // dilate < num_read for place in places
  )


def _kind(counted, path):
  """What a product reads: weights before caches, and both before the rest."""
  _, each = path[-1]
  kinds = [
    kind
    for name in each.operands[:2]
    for kind in _kinds(counted, _beside(path, name))
  ]
  made = _kind_of_array(counted, each.outputs[0])
  return min([*kinds, made], key=totals.KINDS.index)


def _beside(path, name):
  """The path of another instruction of the same computation."""
  own, _ = path[-1]
  return [*path[:-1], (own, own[name])]


def _kind_of_array(counted, array):
  """What an array is; a vector may have the shape of a norm's weights."""
  kind = counted.kind(array)
  is_matrix = sum(size > 1 for size in array.dims) > 1
  return kind if is_matrix or kind == totals.PROBS else totals.REST


def _kinds(counted, path):
  """Kinds of the weights and caches that a value is a part of, or a copy."""
  _, each = path[-1]
  if not each.outputs:
    return []
  kind = _kind_of_array(counted, each.outputs[0])
  if kind in (totals.WEIGHTS, totals.CACHES):
    return [kind]
  if each.op == 'fusion':
    (called,) = each.called('calls')
    inner = counted.module.computations[called]
    return _kinds(counted, [*path, (inner, hlo.root(inner))])
  if each.op == 'parameter' and len(path) > 1:
    _, caller = path[-2]
    name = caller.operands[int(each.literal)]
    return _kinds(counted, _beside(path[:-1], name))
  sources = each.operands if each.op == 'concatenate' else each.operands[:1]
  if each.op not in (*_SAME, 'concatenate'):
    return []
  return [
    kind for name in sources for kind in _kinds(counted, _beside(path, name))
  ]
