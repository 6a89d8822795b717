"""What a loop's body takes, with all that it calls, as often as it runs."""

import collections
from collections.abc import Callable
import re
from typing import Any
from typing import NamedTuple

from specjax.compilation import hlo

WEIGHTS, CACHES, PROBS, REST = 'weights', 'caches', 'probabilities', 'rest'
KINDS = WEIGHTS, CACHES, PROBS, REST
# Of an array, which of `KINDS` it is.
Kind = Callable[[hlo.Array], str]
# Attributes that name what an instruction runs.
CALLED = (
  *('body', 'condition', 'to_apply', 'calls', 'branch_computations'),
  *('true_computation', 'false_computation'),
)
_BRANCHES = CALLED[-3:]


class Counted(NamedTuple):
  """A program, and how its arrays are told apart."""

  module: hlo.Module
  kind: Kind


# Of an instruction that calls nothing but fused ones, in its computation.
OfLeaf = Callable[
  [Counted, hlo.Computation, hlo.Instruction], collections.Counter[Any]
]


def of(
  counted: Counted, computation: str, of_leaf: OfLeaf
) -> collections.Counter[Any]:
  """Returns the sum over a computation, with all that it calls.

  Of branches, the one with the most; loops run as often as HLO knows, else
  once.
  """
  total: collections.Counter[Any] = collections.Counter()
  own = counted.module.computations[computation]
  for each in own.values():
    total.update(_of_instruction(counted, own, each, of_leaf))
  return total


def loop_body(module: hlo.Module) -> str:
  """Returns the body of the loop that a program mainly is.

  Raises:
    ValueError: there is no loop in its entry, nor in what that calls.
  """
  bodies = list(_bodies(module, module.entry))
  if not bodies:
    raise ValueError('The program has no loop.')
  return max(bodies, key=lambda body: len(module.computations[body]))


def _bodies(module, computation):
  """The bodies of its loops, and of those in what it calls, as CPUs do."""
  for each in module.computations[computation].values():
    if each.op == 'while':
      yield each.called('body')[0]
    elif each.op == 'call':
      yield from _bodies(module, each.called('to_apply')[0])


def _of_instruction(counted, own, each, of_leaf):
  """The sum over one instruction."""
  module = counted.module
  if each.op == 'while':
    (body,) = each.called('body')
    times, once = _trip_count(module, each), of(counted, body, of_leaf)
    return {key: times * value for key, value in once.items()}
  if each.op == 'conditional':
    branches = (of(counted, name, of_leaf) for name in each.called(*_BRANCHES))
    return max(branches, key=collections.Counter.total)
  if each.op in ('call', 'async-start'):
    (name,) = each.called('to_apply', 'calls')[:1]
    return of(counted, name, of_leaf)
  return of_leaf(counted, own, each)


def _trip_count(module, loop):
  """How often a loop runs; once, if HLO does not know."""
  known = re.search(r'known_trip_count\D*(\d+)', loop.attributes)
  if known:
    return int(known[1])
  (condition,) = loop.called('condition')
  own = module.computations[condition]
  test = hlo.root(own)
  if test.op == 'compare' and 'direction=LT' in test.attributes:
    for name in test.operands:
      bound = own.get(name)
      if bound is not None and bound.op == 'constant':
        if bound.literal.isdigit():
          return int(bound.literal)
  return 1
