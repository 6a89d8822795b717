"""Checks that components are values whose numbers are data."""

from collections.abc import Iterator
import dataclasses
import inspect
from typing import Any

import jax
import numpy as np

from specjax import trees
from specjax.testing import building


def check_component(
  component_class: building.Constructor, arguments: dict[str, Any]
) -> None:
  """Checks that a component is a value whose numbers are data.

  Args:
    component_class: the class of the component.
    arguments: arguments of the component.

  Raises:
    AssertionError: the class is not decorated with `components.component`,
      equal arguments make different components, different arguments make equal
      ones, or a floating-point number is not a leaf.
  """
  component = component_class(**arguments)
  structure: Any = jax.tree.structure(component)
  building.require(
    dataclasses.is_dataclass(component)
    and not jax.tree_util.all_leaves([component]),
    'Components must be decorated with components.component, so that they are '
    'values whose numbers JAX can trace.',
  )
  bound = inspect.signature(component_class).bind(**arguments)
  bound.apply_defaults()
  for key, value in bound.arguments.items():
    for equal_value in _equal_values(value) or [value]:
      equal = component_class(**arguments | {key: equal_value})
      building.require(
        equal == component and hash(equal) == hash(component),
        'Equal arguments must make equal components, also '
        f'{key}={equal_value!r}.',
      )
    another = _build_different(component_class, arguments, key, value)
    building.require(
      another != component, f'Another {key} must make another component.'
    )
    numbers = value if isinstance(value, list) else [value]
    if all(isinstance(number, float) for number in numbers):
      building.require(
        structure == jax.tree.structure(another),
        f'{key} is a number, which must be data: a field without '
        'components.static.',
      )


def _equal_values(value: Any) -> list[Any]:
  """Returns equal values of other types."""
  if isinstance(value, float):
    return [value, np.float64(value)]
  if not isinstance(value, list):
    return []
  numbers = isinstance(value[0], int | float)
  return [[*value], tuple(value), *([np.array(value)] if numbers else [])]


def _build_different(
  component_class: building.Constructor,
  arguments: dict[str, Any],
  key: str,
  value: Any,
) -> Any:
  """Returns a component that differs in one argument, or None."""
  for change in _changes(value):
    try:
      return component_class(**arguments | {key: change})
    except ValueError:  # Out of range.
      continue
  return None


def _changes(value: Any) -> Iterator[Any]:
  """Yields similar values, some of which may be out of range."""
  if isinstance(value, bool):
    yield not value
  elif isinstance(value, int):
    yield from (value + 1, value - 1)
  elif isinstance(value, float):
    yield from (value + 0.01, value - 0.01)
  elif isinstance(value, trees.Topology):
    yield trees.chain(3)
  elif dataclasses.is_dataclass(value) and not isinstance(value, type):
    for field in dataclasses.fields(value):
      for change in _changes(getattr(value, field.name)):
        try:
          changed = dataclasses.replace(value, **{field.name: change})
        except ValueError:  # Out of range.
          continue
        yield changed
  elif isinstance(value, list):
    yield from ([*value[1:], change] for change in _changes(value[0]))
    yield [*value, *value]
