"""Profiles programs, and reduces the traces to kernels and times by kind."""

from collections.abc import Callable
from collections.abc import Iterable
import pathlib
import re
import tempfile
from typing import Any
from typing import NamedTuple

import jax

from specjax.decoding import timing

_PRODUCTS = 'gemm|nvjet|cutlass|cublas|fmha|conv(?!ert)|dot|ynn'
# Kinds of kernels, by their names; the first match counts.
_KINDS = {
  'host': re.compile('memcpy *[dh]2h|memcpy *h2d|infeed|outfeed', re.I),
  'product': re.compile(_PRODUCTS, re.I),
  'reduction': re.compile('reduc|softmax|sort|scan|top_?k|cumsum', re.I),
  'copy': re.compile('memcpy|memset|copy|slice|concat|transpose|pad', re.I),
  'other': re.compile(''),
}
# Events that contain other events.
_CONTROL = re.compile('(while|cond|call|end: )')
_NUM_LONGEST = 5


class Trace(NamedTuple):
  """Kernels that a program ran, and their times, by kind.

  Attributes:
    kernels: the number of kernels of each kind, including copies, or the mean
      over several runs.
    seconds: the total time of each kind.
    longest: the total time of the longest kernels, by name.
  """

  kernels: dict[str, float]
  seconds: dict[str, float]
  longest: dict[str, float]


def trace(function: Callable[[], Any]) -> Trace:
  """Calls a function and returns the kernels that it ran.

  `function` should have run before, as its compilation is traced otherwise.
  """
  with tempfile.TemporaryDirectory() as folder:
    with jax.profiler.trace(folder):
      timing.timed(function)
    paths = pathlib.Path(folder).rglob('*.xplane.pb')
    planes = [
      plane
      for path in paths
      for plane in jax.profiler.ProfileData.from_file(str(path)).planes
    ]
    return reduce(
      (event.name, event.duration_ns / 1e9)
      for line in _lines(planes)
      for event in line.events
      if _belongs_to_program(line, event)
    )


def reduce(events: Iterable[tuple[str, float]]) -> Trace:
  """Returns the trace of events: pairs of a kernel's name and its seconds."""
  kernels, seconds = dict.fromkeys(_KINDS, 0.0), dict.fromkeys(_KINDS, 0.0)
  longest: dict[str, float] = {}
  for name, duration in events:
    kind = next(k for k, pattern in _KINDS.items() if pattern.search(name))
    kernels[kind] += 1
    seconds[kind] += duration
    longest[name] = longest.get(name, 0.0) + duration
  ranked = sorted(longest.items(), key=lambda pair: -pair[1])
  return Trace(kernels, seconds, dict(ranked[:_NUM_LONGEST]))


def _lines(planes: Iterable[Any]) -> list[Any]:
  """Returns the lines with a device's work, which have each kernel once."""
  lines = [
    line
    for plane in planes
    if plane.name.startswith('/device:') or plane.name == '/host:CPU'
    for line in plane.lines
  ]
  # GPUs have a line per stream, TPUs a line of operations, CPUs one per thread.
  for name in ('Stream', 'XLA Ops'):
    if selected := [line for line in lines if line.name.startswith(name)]:
      return selected
  return lines


def _belongs_to_program(line: Any, event: Any) -> bool:
  if line.name.startswith('Stream'):
    return True
  in_program = any(name == 'hlo_op' for name, _ in event.stats)
  on_tpu = line.name.startswith('XLA Ops')
  return (in_program or on_tpu) and not _CONTROL.match(event.name)
