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


# Of an instruction of a computation, without what it calls but for fused ones.
OfInstruction = Callable[
  [Counted, hlo.Computation, hlo.Instruction], collections.Counter[Any]
]


def of(
  counted: Counted, computation: str, of_instruction: OfInstruction
) -> collections.Counter[Any]:
  """Returns the sum over a computation, with all that it calls.

  Of branches, the one with the most; loops run as often as HLO knows, else
  once.
  """
  total: collections.Counter[Any] = collections.Counter()
  own = counted.module.computations[computation]
  for each in own.values():
    total.update(of_instruction(counted, own, each))
    total.update(_of_called(counted, each, of_instruction))
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


def trip_count(module: hlo.Module, loop: hlo.Instruction) -> int | None:
  """Returns how often a loop runs; None if HLO does not know."""
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
  return None


def _of_called(counted, each, of_instruction):
  """The sum over what an instruction calls, as often as it does."""
  module = counted.module
  if each.op == 'while':
    (body,) = each.called('body')
    times = trip_count(module, each)
    once = of(counted, body, of_instruction)
    if times is None:
      return once
    return {key: times * value for key, value in once.items()}
  if each.op == 'conditional':
    branches = (
      of(counted, name, of_instruction) for name in each.called(*_BRANCHES)
    )
    return max(branches, key=collections.Counter.total)
  if each.op in ('call', 'async-start'):
    (name,) = each.called('to_apply', 'calls')[:1]
    return of(counted, name, of_instruction)
  return {}
