"""Clocks: what is compared takes turns within one process."""

from collections.abc import Callable
from collections.abc import Sequence
import platform
import time
from typing import Any

import jax
import numpy as np
import tqdm

from specjax.compilation import command_buffers

# Prepares a run, off the clock, and returns what the clock is of.
Prepare = Callable[[], Callable[[], Any]]


def in_turns(
  runs: Sequence[Prepare],
  repeats: int,
  label: str = '',
  *,
  warm_up: bool = True,
) -> np.ndarray:
  """Returns `[repeats, F]` seconds; the runs take turns, there and back.

  So a drift of the machine's speed meets all of them alike. With `warm_up`,
  each is played once before, so that no compilation is timed; progress is shown
  if there is a label.
  """
  seconds = np.zeros((repeats, len(runs)))
  for prepare in runs if warm_up else ():
    timed(prepare())
  order = list(range(len(runs)))
  for row in tqdm.tqdm(seconds, desc=label, disable=not label):
    for i in order:
      row[i] = timed(runs[i]())[1]
    order.reverse()
  return seconds


def medians(
  functions: Sequence[Callable[[], Any]], *args: Any, **options: Any
) -> np.ndarray:
  """Returns `[F]` median seconds of functions that need no preparation.

  What follows them is as in `in_turns`.
  """
  runs = [lambda function=function: function for function in functions]
  return np.median(in_turns(runs, *args, **options), axis=0)


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
  """Returns what a call returns, and the seconds until that is there."""
  began = time.perf_counter()
  value = jax.block_until_ready(function())
  return value, time.perf_counter() - began


def device() -> str:
  """Returns the name of the device that JAX computes on.

  With command buffers, it counts as another one: clocks differ.
  """
  kind = jax.devices()[0].device_kind
  if kind == 'cpu':
    return f'{platform.machine()} {kind}, {jax.device_count()} device'
  return f'{kind}, command buffers' if command_buffers.are_enabled() else kind
