"""Measures time: runs to be compared are interleaved in one process."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import platform
from typing import Any

import jax
import numpy as np
import tqdm

from specjax.compilation import command_buffers
from specjax.decoding import timing


def unit(settings: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a unit of work whose outcome depends on this device's speed."""
  return {**settings, 'measured_on': device()}


def progress(label: str) -> Callable[[Iterable[Any]], Iterable[Any]]:
  """Returns a progress bar for iterables.

  It is hidden without a label, and where the output is no terminal.
  """
  disable = None if label else True
  return functools.partial(tqdm.tqdm, desc=label, disable=disable)


def interleave(
  runs: Sequence[timing.Prepare],
  repeats: int,
  label: str = '',
  *,
  warm_up: bool = True,
) -> np.ndarray:
  """Returns `[repeats, F]` seconds of `F` interleaved runs.

  Args:
    runs: see `timing.interleaved`.
    repeats: how often each run is timed.
    label: the label of the progress bar; '' hides it.
    warm_up: whether each run is called once first, so that no compilation is
      timed.
  """
  return timing.interleaved(
    runs, repeats, warm_up=warm_up, progress=progress(label)
  )


def medians(
  functions: Sequence[Callable[[], Any]], *args: Any, **options: Any
) -> np.ndarray:
  """Returns `[F]` median seconds of functions that need no preparation.

  Args:
    functions: the functions to be timed.
    *args: further arguments of `interleave`.
    **options: further arguments of `interleave`.
  """
  runs = [lambda function=function: function for function in functions]
  return np.median(interleave(runs, *args, **options), axis=0)


def device() -> str:
  """Returns the name of the device that JAX computes on.

  With command buffers it counts as another device, as timings differ.
  """
  kind = jax.devices()[0].device_kind
  if kind == 'cpu':
    return f'{platform.machine()} {kind}, {jax.device_count()} device'
  return f'{kind}, command buffers' if command_buffers.are_enabled() else kind
