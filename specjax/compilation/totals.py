"""Sums a quantity over a loop's body and all that it calls."""

import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import re
from typing import Any
from typing import NamedTuple

from specjax.compilation import hlo

WEIGHTS, CACHES, PROBS, REST = 'weights', 'caches', 'probabilities', 'rest'
KINDS = WEIGHTS, CACHES, PROBS, REST
# Attributes that name the computations that an instruction runs.
CALLED = (
  *('body', 'condition', 'to_apply', 'calls', 'branch_computations'),
  *('true_computation', 'false_computation'),
)
_BRANCHES = CALLED[-3:]


class ClassifiedModule(NamedTuple):
  """A program, and the kinds of its arrays.

  Attributes:
    module: the program.
    classify: returns the kind of an array, one of `KINDS`.
  """

  module: hlo.Module
  classify: Callable[[hlo.Array], str]


# Counts a quantity in one instruction of a computation. It includes what is
# fused into the instruction, but not what the instruction calls.
CountFn = Callable[
  [ClassifiedModule, hlo.Computation, hlo.Instruction], collections.Counter[Any]
]


def total(
  classified: ClassifiedModule, name: str, count_fn: CountFn
) -> collections.Counter[Any]:
  """Returns the sum over a computation and all that it calls.

  Of the branches of a conditional, the one with the largest sum counts. Loops
  count as often as they run, or once if HLO does not contain their trip count.

  Args:
    classified: the program.
    name: name of the computation.
    count_fn: counts the quantity in one instruction.
  """
  result: collections.Counter[Any] = collections.Counter()
  computation = classified.module.computations[name]
  for instruction in computation.values():
    result.update(count_fn(classified, computation, instruction))
    result.update(_total_of_calls(classified, instruction, count_fn))
  return result


def loop_body(module: hlo.Module) -> str:
  """Returns the name of the main loop's body.

  Raises:
    ValueError: the entry and the computations that it calls have no loop.
  """
  bodies = list(_bodies(module, module.entry))
  if not bodies:
    raise ValueError('The program has no loop.')
  return max(bodies, key=lambda body: len(module.computations[body]))


def _bodies(module: hlo.Module, name: str) -> Iterator[str]:
  """Yields the bodies of loops in a computation, and in those that it calls.

  Compilers for CPUs put loops into called computations.
  """
  for instruction in module.computations[name].values():
    if instruction.op == 'while':
      yield instruction.called('body')[0]
    elif instruction.op == 'call':
      yield from _bodies(module, instruction.called('to_apply')[0])


def trip_count(module: hlo.Module, loop: hlo.Instruction) -> int | None:
  """Returns how often a loop runs, or None if HLO does not contain it."""
  match = re.search(r'known_trip_count\D*(\d+)', loop.attributes)
  if match:
    return int(match[1])
  (name,) = loop.called('condition')
  condition = module.computations[name]
  test = hlo.root(condition)
  if test.op == 'compare' and 'direction=LT' in test.attributes:
    for operand in test.operands:
      bound = condition.get(operand)
      if bound is not None and bound.op == 'constant':
        if bound.literal.isdigit():
          return int(bound.literal)
  return None


def _total_of_calls(
  classified: ClassifiedModule,
  instruction: hlo.Instruction,
  count_fn: CountFn,
) -> Mapping[Any, int]:
  """Returns the sum over the computations that an instruction calls."""
  module = classified.module
  if instruction.op == 'while':
    (body,) = instruction.called('body')
    num_iterations = trip_count(module, instruction)
    once = total(classified, body, count_fn)
    if num_iterations is None:
      return once
    return {key: num_iterations * value for key, value in once.items()}
  if instruction.op == 'conditional':
    branches = (
      total(classified, name, count_fn)
      for name in instruction.called(*_BRANCHES)
    )
    return max(branches, key=collections.Counter.total)
  if instruction.op in ('call', 'async-start'):
    (name,) = instruction.called('to_apply', 'calls')[:1]
    return total(classified, name, count_fn)
  return {}
