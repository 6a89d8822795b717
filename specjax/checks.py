"""Checks of arguments, whose errors are sentences."""

from typing import Any

import jax
import numpy as np


def check_range(
  name: str, values: Any, low: float, high: float = np.inf
) -> None:
  """Raises a `ValueError` unless all values lie in `[low, high]`.

  Tracers, and the placeholders with which JAX fills pytrees, are not checked.

  Args:
    name: name of the argument, for the error.
    values: a number, an array, or a sequence of numbers.
    low: smallest allowed value.
    high: largest allowed value.
  """
  if is_known(values):
    array = np.asarray(values, np.float64)
    if not ((low <= array) & (array <= high)).all():
      allowed = f'be >= {low}' if high == np.inf else f'lie in [{low}, {high}]'
      raise ValueError(f'{name} must {allowed}, got {values}.')


def check_integers(
  name: str, values: Any, low: float, high: float = np.inf
) -> None:
  """Raises a `ValueError` unless known values are integers in `[low, high]`.

  The type of JAX arrays is not checked, as functions on pytrees change it.

  Args:
    name: name of the argument, for the error.
    values: an integer, an array, or a sequence of integers.
    low: smallest allowed value.
    high: largest allowed value.
  """
  if is_known(values) and not isinstance(values, jax.Array):
    array = np.asarray(values)
    if array.size and not np.issubdtype(array.dtype, np.integer):
      allowed = 'hold integers' if array.ndim else 'be an integer'
      raise ValueError(f'{name} must {allowed}, got {array.tolist()!r}.')
  check_range(name, values, low, high)


def check_positive(name: str, values: Any) -> None:
  """Raises a `ValueError` unless all known values are > 0 and finite."""
  if is_known(values):
    array = np.asarray(values, np.float64)
    if not ((array > 0) & np.isfinite(array)).all():
      raise ValueError(f'{name} must be > 0 and finite, got {array}.')


def is_known(values: Any) -> bool:
  """Returns whether all values are numbers, not tracers or placeholders.

  Args:
    values: a number, an array, or a sequence of them.
  """
  if isinstance(values, list | tuple):
    return all(map(is_known, values))
  if isinstance(values, jax.core.Tracer):
    return False
  return isinstance(
    values, str | bool | int | float | np.generic | np.ndarray | jax.Array
  )


def num_entries(values: Any) -> int | None:
  """Returns the length of a sequence, or of an array's last axis.

  Args:
    values: a sequence or an array; the result is None for a placeholder.
  """
  if isinstance(values, list | tuple):
    return len(values)
  shape = getattr(values, 'shape', ())
  return shape[-1] if shape else None
