"""Counts launches of a round: kernels, conditionals, and unbounded loops.

On a GPU, a kernel takes some microseconds to start, however little it computes.
For each conditional, and for each iteration of a loop with an unknown trip
count, the host waits for a number from the device, unless they are part of a
command buffer (a CUDA graph). Counts of bytes contain neither.
"""

import collections
from typing import NamedTuple

from specjax.compilation import hlo
from specjax.compilation import totals


class Launches(NamedTuple):
  """The launches of a round.

  Of the branches of a conditional, the one with the most launches counts. The
  body of an inner loop counts as often as it runs, and once if its trip count
  is unknown.

  Attributes:
    kernels: instructions that compute or copy something: fusions, calls of
      libraries, copies and updates.
    conditionals: choices among branches that depend on data.
    inner_loops: loops inside of the round whose trip count depends on data.
  """

  kernels: int
  conditionals: int
  inner_loops: int


def count(classified: totals.ClassifiedModule, name: str) -> Launches:
  """Returns the launches of a computation and of all that it calls.

  Args:
    classified: the program.
    name: name of the computation.
  """
  total = totals.total(classified, name, count_instruction)
  return Launches(*(total[field] for field in Launches._fields))


def count_instruction(
  classified: totals.ClassifiedModule,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> collections.Counter[str]:
  """Returns the launches of an instruction, without those of its calls."""
  del computation
  is_unbounded = (
    instruction.op == 'while'
    and totals.trip_count(classified.module, instruction) is None
  )
  return collections.Counter(
    kernels=int(hlo.is_kernel(instruction)),
    conditionals=int(instruction.op == 'conditional'),
    inner_loops=int(is_unbounded),
  )
