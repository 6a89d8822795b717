"""Parses optimized HLO, the text of compiled programs."""

from collections.abc import Iterator
import math
import re
from typing import NamedTuple

# Bytes per entry of each type; types that are missing, such as tokens, have 0.
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
# Operations that compute nothing: they name values or call computations.
_FREE = frozenset(
  'parameter tuple get-tuple-element bitcast constant after-all iota domain '
  'opt-barrier add-dependency partition-id replica-id '
  'while conditional call async-start'.split()
)
# Custom calls that only name memory.
_NAMING = re.compile('AllocateBuffer|ConcatBitcast|AssumeGather')
# Operations that a fusion computes only for the entries that are used.
PASSING = 'bitcast', 'convert', 'reshape', 'transpose', 'copy'


class Array(NamedTuple):
  """An array in an instruction's output.

  Attributes:
    dtype: HLO's name of its type, such as 'bf16'.
    dims: its shape.
    num_bytes: its size, including padding to tiles.
    on_chip: whether it is outside of the device's main memory.
  """

  dtype: str
  dims: tuple[int, ...]
  num_bytes: int
  on_chip: bool


class Instruction(NamedTuple):
  """An instruction of a computation.

  Attributes:
    name: its name, which is unique in the computation.
    op: its operation, such as 'fusion'.
    outputs: its array, or the arrays of its tuple.
    operands: names of the values that it reads.
    literal: the text between its parentheses.
    attributes: the text after them.
    is_root: whether the computation returns its value.
  """

  name: str
  op: str
  outputs: tuple[Array, ...]
  operands: tuple[str, ...]
  literal: str
  attributes: str
  is_root: bool

  def called(self, *keys: str) -> list[str]:
    """Returns the names of the computations in attributes.

    Args:
      *keys: names of the attributes.
    """
    names: list[str] = []
    for key in keys:
      match = re.search(rf'\b{key}=(\{{[^}}]*\}}|%?[\w.\-]+)', self.attributes)
      if match:
        names += re.findall(r'[\w.\-]+', match[1])
    return names


Computation = dict[str, Instruction]


class Module(NamedTuple):
  """A program.

  Attributes:
    computations: its computations, by name.
    entry: name of the computation that runs first.
  """

  computations: dict[str, Computation]
  entry: str


def parse(text: str) -> Module:
  """Parses the text of a compiled program.

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
    raise ValueError('The text is not an HLO module: it has no ENTRY.')
  return Module(computations, entry)


def root(computation: Computation) -> Instruction:
  """Returns the instruction whose value a computation returns."""
  return next(entry for entry in computation.values() if entry.is_root)


def users(computation: Computation, name: str) -> Iterator[Instruction]:
  """Yields the instructions that read a value."""
  return (entry for entry in computation.values() if name in entry.operands)


def only_names(instruction: Instruction) -> bool:
  """Returns whether an instruction is a custom call that only names memory."""
  is_naming = _NAMING.search(instruction.attributes) is not None
  return instruction.op == 'custom-call' and is_naming


def is_kernel(instruction: Instruction) -> bool:
  """Returns whether an instruction itself computes or copies something.

  Instructions that only wait for asynchronous ones do not.
  """
  is_waiting = instruction.op.endswith(('-done', '-update'))
  is_free = instruction.op in _FREE or is_waiting
  return not (is_free or only_names(instruction))


def _instruction(line: str) -> Instruction | None:
  """Parses a line; returns None if it is not an instruction."""
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
      _array(*groups)
      for groups in _ARRAY.findall(line[begin.end() : shape_end])
    ),
    operands=tuple(re.findall(r'%([\w.\-]+)', literal)),
    literal=literal,
    attributes=line[end + 1 :],
    is_root=bool(begin[1]),
  )


def _end_of_shape(line: str, start: int) -> int:
  """Returns the position after the shape that begins at `start`."""
  if line[start] == '(':
    return _closing(line, start) + 1
  match = _ARRAY.match(line, start)
  return match.end() if match else line.index(' ', start)


def _closing(line: str, start: int) -> int:
  """Returns the position of the parenthesis that closes the one at `start`."""
  depth = 0
  for match in re.compile(r'[()]').finditer(line, start):
    depth += 1 if match[0] == '(' else -1
    if not depth:
      return match.start()
  return len(line)


def _array(dtype: str, dims: str, layout: str) -> Array:
  """Parses the type, the shape and the layout of an array."""
  shape = tuple(int(size) for size in dims.split(',') if size)
  order, _, tiling = layout.partition(':')
  padded = list(shape)
  tiles = re.match(r'T\(([\d,]*)\)', tiling)
  if tiles and tiles[1]:
    # Axes are listed from the fastest to the slowest, tiles in reverse.
    minor_to_major = [int(axis) for axis in order.split(',') if axis]
    sizes = [int(size) for size in tiles[1].split(',')]
    for axis, size in zip(minor_to_major, reversed(sizes)):
      padded[axis] = -(-padded[axis] // size) * size
  num_bytes = math.ceil(math.prod(padded) * _BYTES.get(dtype, 0))
  return Array(dtype, shape, num_bytes, bool(re.search(r'S\([1-9]', tiling)))
