"""What a round launches: kernels, conditionals, and loops of unknown length.

On a GPU, a kernel takes some microseconds to start, however little it computes.
For each conditional, and for each iteration of a loop whose length is unknown,
the host waits for a number from the device, unless they are part of a command
buffer (a CUDA graph). Counts of bytes contain neither.
"""

import collections
from typing import NamedTuple

from specjax.compilation import hlo
from specjax.compilation import totals


class Launches(NamedTuple):
  """What a round launches, of a program that is mainly a loop.

  Of the branches of a conditional, the one with the most counts; the body of
  an inner loop counts as often as it runs, and once if its length is unknown.

  Attributes:
    kernels: instructions that compute or copy something: fusions, calls of
      libraries, copies and updates.
    conditionals: choices among branches that depend on data.
    inner_loops: loops inside of the round whose length depends on data.
  """

  kernels: int
  conditionals: int
  inner_loops: int


def of(counted: totals.Counted, computation: str) -> Launches:
  """Returns what a computation launches, with all that it calls."""
  total = totals.of(counted, computation, of_instruction)
  return Launches(*(total[field] for field in Launches._fields))


def of_instruction(
  counted: totals.Counted, own: hlo.Computation, each: hlo.Instruction
) -> collections.Counter[str]:
  """Returns what an instruction launches, without what it calls."""
  del own
  of_unknown_length = (
    each.op == 'while' and totals.trip_count(counted.module, each) is None
  )
  return collections.Counter(
    kernels=int(hlo.works(each)),
    conditionals=int(each.op == 'conditional'),
    inner_loops=int(of_unknown_length),
  )
