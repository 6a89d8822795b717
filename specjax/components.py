"""Defines components: frozen dataclasses whose numbers are data.

A component is a pytree. Its numbers are leaves, so that one compiled program
serves every value of them; whatever changes shapes or the program itself is
static. Equality, hashing and the sharing of compiled programs then follow
JAX's own rules.
"""

from collections.abc import Hashable
from collections.abc import Iterable
import dataclasses
from typing import Any
from typing import TypeVar
from typing import dataclass_transform

import jax
import numpy as np

_Class = TypeVar('_Class', bound=type)


def static(**options: Any) -> Any:
  """Declares a field that is part of a component's identity, not of its data.

  Args:
    **options: passed to `dataclasses.field`, for example `default`.
  """
  return dataclasses.field(metadata={'static': True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(static,))
def component(cls: _Class) -> _Class:
  """Makes a class a frozen dataclass and registers it as a pytree.

  Fields are leaves, or trees of leaves, unless they are declared by `static`,
  whose values must be hashable.

  JAX also builds components from tracers and placeholders. `__post_init__` must
  check only concrete numbers, as `checks.check_range` does.

  Args:
    cls: class with annotated fields.
  """
  frozen_class: Any = dataclasses.dataclass(frozen=True)(cls)
  data: list[str] = []
  metadata: list[str] = []
  floats = {
    field.name
    for field in dataclasses.fields(frozen_class)
    if field.type in (float, float | None)
  }
  for field in dataclasses.fields(frozen_class):
    is_static = field.metadata.get('static', False)
    (metadata if is_static else data).append(field.name)

  def flatten(instance: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    leaves = tuple(
      _as_float(getattr(instance, name))
      if name in floats
      else getattr(instance, name)
      for name in data
    )
    # JAX compares the metadata of two nodes, but not their classes: structures
    # that `register_dataclass` makes of two classes with equal fields are
    # equal, and their components could share one program.
    values = (getattr(instance, name) for name in metadata)
    return leaves, (frozen_class, *values)

  def flatten_with_keys(
    instance: Any,
  ) -> tuple[tuple[tuple[Any, Any], ...], tuple[Any, ...]]:
    leaves, structure = flatten(instance)
    keys = map(jax.tree_util.GetAttrKey, data)
    return tuple(zip(keys, leaves)), structure

  def unflatten(structure: tuple[Any, ...], leaves: Iterable[Any]) -> Any:
    fields = dict(zip(data, leaves)) | dict(zip(metadata, structure[1:]))
    return frozen_class(**fields)

  jax.tree_util.register_pytree_with_keys(
    frozen_class, flatten_with_keys, unflatten, flatten
  )
  return frozen_class


def identity(tree: Any) -> Hashable:
  """Returns a key that is equal for trees of the same numbers and arrays.

  Arrays are the same if they are one object.
  """
  leaves, structure = jax.tree.flatten(tree)
  is_number = lambda leaf: isinstance(leaf, int | float)
  keys = [leaf if is_number(leaf) else id(leaf) for leaf in leaves]
  return structure, tuple(keys)


def _as_float(value: Any) -> Any:
  """Returns an int as a float, so that both share one program."""
  return float(value) if type(value) is int else value


def freeze_sequences(instance: Any, *names: str) -> None:
  """Turns fields of a component that are sequences into tuples.

  It is called in `__post_init__`: lists and NumPy vectors have no hash, and
  equal ones must make equal components. JAX's arrays and placeholders are not
  changed; a placeholder of an array may be an int, such as an axis.

  Args:
    instance: the component that is being built.
    *names: names of its fields.

  Raises:
    ValueError: a field is a float, or a static field is an int.
  """
  is_static = {
    field.name: field.metadata.get('static', False)
    for field in dataclasses.fields(instance)
  }
  for name in names:
    values = getattr(instance, name)
    numbers = int | float | np.number if is_static[name] else float
    if isinstance(values, numbers):
      raise ValueError(f'{name} must be a sequence, got {values!r}.')
    if isinstance(values, np.ndarray) and values.ndim == 1:
      values = values.tolist()
    if isinstance(values, list):
      object.__setattr__(instance, name, tuple(values))
