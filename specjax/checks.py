"""Checks of arguments, which end in a sentence."""

import jax
import numpy as np
from numpy import typing as npt


def check_range(
  name: str, values: npt.ArrayLike, low: float, high: float = np.inf
) -> None:
  """Raises a `ValueError` unless all values lie in `[low, high]`.

  Values are checked where they are known, which they are not while JAX traces.
  """
  if not isinstance(values, jax.core.Tracer):
    array = np.asarray(values, np.float64)
    if not ((low <= array) & (array <= high)).all():
      allowed = f'be >= {low}' if high == np.inf else f'lie in [{low}, {high}]'
      raise ValueError(f'{name} must {allowed}, got {values}.')
