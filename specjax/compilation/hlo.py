"""Optimised HLO as compilers print it: computations of instructions."""

from collections.abc import Iterator
import math
import re
from typing import NamedTuple

# Bytes of a number; of what is not here, such as tokens, none.
_BYTES = {
  'pred': 1,
  **{f'{kind}4': 0.5 for kind in 'su'},
  **{f'{kind}8': 1 for kind in 'su'},
  **{f'{kind}{8 * size}': size for kind in 'suf' for size in (2, 4, 8)},
  **dict.fromkeys(('f8e4m3fn', 'f8e5m2', 'f8e4m3b11fnuz'), 1),
  **{'bf16': 2, 'c64': 8, 'c128': 16},
}
_ARRAY = re.compile(r'(\w+)\[([\d,]*)\](?:\{([^}]*)\})?')
_HEADER = re.compile(r'(ENTRY )?%?([\w.\-]+) \(.*\{$')
_NAME = re.compile(r'\s*(ROOT )?%?([\w.\-]+) = ')
_OPERATION = re.compile(r'([\w\-]+)\(')
_COMMENT = re.compile(r'/\*.*?\*/')
SLICES = 'slice', 'dynamic-slice', 'gather'
# What computes nothing: it names values, or runs other computations.
_FREE = frozenset(
  'parameter tuple get-tuple-element bitcast constant after-all iota domain '
  'opt-barrier add-dependency partition-id replica-id '
  'while conditional call async-start'.split()
)
# Custom calls that only name memory.
_NAMING = re.compile('AllocateBuffer|ConcatBitcast|AssumeGather')
# What a fusion computes number by number, of those that are asked for.
PASSING = 'bitcast', 'convert', 'reshape', 'transpose', 'copy'


class Array(NamedTuple):
  """One array of an instruction's output.

  Attributes:
    dtype: as HLO names it, such as 'bf16'.
    dims: its shape.
    num_bytes: that it takes, with what its layout adds to fill tiles.
    on_chip: it is not in the device's main memory.
  """

  dtype: str
  dims: tuple[int, ...]
  num_bytes: int
  on_chip: bool


class Instruction(NamedTuple):
  """One instruction.

  Attributes:
    name: in its computation.
    op: what it does, such as 'fusion'.
    outputs: its array, or those of its tuple.
    operands: names of what it reads.
    literal: the text between its parentheses.
    attributes: the text behind them.
    is_root: whether it is what the computation returns.
  """

  name: str
  op: str
  outputs: tuple[Array, ...]
  operands: tuple[str, ...]
  literal: str
  attributes: str
  is_root: bool

  def called(self, *keys: str) -> list[str]:
    """Returns the computations that attributes of such names name."""
    names: list[str] = []
    for key in keys:
      match = re.search(rf'\b{key}=(\{{[^}}]*\}}|%?[\w.\-]+)', self.attributes)
      if match:
        names += re.findall(r'[\w.\-]+', match[1])
    return names


Computation = dict[str, Instruction]


class Module(NamedTuple):
  """A program: its computations, and the name of the one that begins."""

  computations: dict[str, Computation]
  entry: str


def parse(text: str) -> Module:
  """Reads the text of a compiled program.

  Raises:
    ValueError: it has no entry.
  """
  computations: dict[str, Computation] = {}
  entry: str | None = None
  current: Computation | None = None
  for line in text.splitlines():
    if line[:1] not in (' ', '\t'):
      header = _HEADER.match(line)
      current = {} if header else None
      if header:
        computations[header[2]] = current = {}
        entry = header[2] if header[1] else entry
    elif current is not None and (instruction := _instruction(line)):
      current[instruction.name] = instruction
  if entry is None:
    raise ValueError('The text is no HLO module: it has no ENTRY.')
  return Module(computations, entry)


def root(computation: Computation) -> Instruction:
  """Returns the instruction whose value a computation returns."""
  return next(each for each in computation.values() if each.is_root)


def users(computation: Computation, name: str) -> Iterator[Instruction]:
  """Yields the instructions that read a value."""
  return (each for each in computation.values() if name in each.operands)


def only_names(each: Instruction) -> bool:
  """Returns whether an instruction is a custom call that only names memory."""
  return each.op == 'custom-call' and bool(_NAMING.search(each.attributes))


def works(each: Instruction) -> bool:
  """Returns whether an instruction computes or copies something by itself.

  Those that only wait for what others have started do not.
  """
  waits = each.op.endswith(('-done', '-update'))
  return not (each.op in _FREE or waits or only_names(each))


def _instruction(line):
  """An instruction, or None if the line is something else."""
  line = _COMMENT.sub('', line)
  begin = _NAME.match(line)
  if not begin:
    return None
  shape_end = _end_of_shape(line, begin.end())
  operation = _OPERATION.match(line, shape_end + 1)
  if not operation:
    return None
  end = _closing(line, operation.end() - 1)
  literal = line[operation.end() : end]
  return Instruction(
    name=begin[2],
    op=operation[1],
    outputs=tuple(
      _array(*each) for each in _ARRAY.findall(line[begin.end() : shape_end])
    ),
    operands=tuple(re.findall(r'%([\w.\-]+)', literal)),
    literal=literal,
    attributes=line[end + 1 :],
    is_root=bool(begin[1]),
  )


def _end_of_shape(line, start):
  if line[start] == '(':
    return _closing(line, start) + 1
  match = _ARRAY.match(line, start)
  return match.end() if match else line.index(' ', start)


def _closing(line, start):
  """Where the parenthesis that opens at `start` is closed."""
  depth = 0
  for match in re.compile(r'[()]').finditer(line, start):
    depth += 1 if match[0] == '(' else -1
    if not depth:
      return match.start()
  return len(line)


def _array(dtype, dims, layout):
  shape = tuple(int(each) for each in dims.split(',') if each)
  order, _, rest = layout.partition(':')
  padded = list(shape)
  tiles = re.match(r'T\(([\d,]*)\)', rest)
  if tiles and tiles[1]:
    # The layout names dimensions from the fastest on, the tile from behind.
    minor = [int(each) for each in order.split(',') if each]
    sizes = [int(each) for each in tiles[1].split(',')]
    for axis, size in zip(minor, reversed(sizes)):
      padded[axis] = -(-padded[axis] // size) * size
  num_bytes = math.ceil(math.prod(padded) * _BYTES.get(dtype, 0))
  return Array(dtype, shape, num_bytes, bool(re.search(r'S\([1-9]', rest)))
