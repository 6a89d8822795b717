"""Where the time of a program goes: a profiler's trace, reduced to a table."""

from collections.abc import Callable
import pathlib
import re
import tempfile
from typing import Any
from typing import NamedTuple

import jax

from specjax.decoding import timing

_PRODUCTS = 'gemm|nvjet|cutlass|cublas|fmha|conv(?!ert)|dot|ynn'
# What a kernel does, by its name; the first that is found counts.
_KINDS = {
  'host': re.compile('memcpy *[dh]2h|memcpy *h2d|infeed|outfeed', re.I),
  'product': re.compile(_PRODUCTS, re.I),
  'reduction': re.compile('reduc|softmax|sort|scan|top_?k|cumsum', re.I),
  'copy': re.compile('memcpy|memset|copy|slice|concat|transpose|pad', re.I),
  'other': re.compile(''),
}
# What other events are inside of.
_CONTROL = re.compile('(while|cond|call|end: )')
_NUM_LONGEST = 5


class Trace(NamedTuple):
  """Kernels that a program ran, and their times, by kind.

  Attributes:
    kernels: number of each kind, copies included, or the mean over several
      runs.
    seconds: how long those of each kind took.
    longest: names of kernels, and the seconds of all of that name.
  """

  kernels: dict[str, float]
  seconds: dict[str, float]
  longest: dict[str, float]


def of(function: Callable[[], Any]) -> Trace:
  """Calls a function and returns what was run; the trace itself is not kept.

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
    return reduced(
      (event.name, event.duration_ns / 1e9)
      for line in _lines(planes)
      for event in line.events
      if _is_of_program(line, event)
    )


def reduced(events) -> Trace:
  """Returns the trace of pairs of a kernel's name and its seconds."""
  kernels, seconds = dict.fromkeys(_KINDS, 0.0), dict.fromkeys(_KINDS, 0.0)
  longest: dict[str, float] = {}
  for name, duration in events:
    kind = next(kind for kind, named in _KINDS.items() if named.search(name))
    kernels[kind] += 1
    seconds[kind] += duration
    longest[name] = longest.get(name, 0.0) + duration
  ranked = sorted(longest.items(), key=lambda pair: -pair[1])
  return Trace(kernels, seconds, dict(ranked[:_NUM_LONGEST]))


def _lines(planes):
  """The lines on which a device's work stands: each kernel once."""
  lines = [
    line
    for plane in planes
    if plane.name.startswith('/device:') or plane.name == '/host:CPU'
    for line in plane.lines
  ]
  # GPUs have a line for each stream, TPUs one of operations, CPUs threads.
  for name in ('Stream', 'XLA Ops'):
    if found := [line for line in lines if line.name.startswith(name)]:
      return found
  return lines


def _is_of_program(line, event):
  if line.name.startswith('Stream'):
    return True
  in_program = any(name == 'hlo_op' for name, _ in event.stats)
  on_tpu = line.name.startswith('XLA Ops')
  return (in_program or on_tpu) and not _CONTROL.match(event.name)
