"""Sweeps: a config runs several times, with changes of its fields.

`config.sweep` holds one dictionary of fields and values per run:

    'sweep': ({'batch_size': 1}, {'batch_size': 8, 'repeats': 5})
    'sweep': sweeps.product({'seed': (0, 1), 'batch_size': (1, 8)})

As a flag, it may also be a dictionary from fields to several values, which
means their product: --config.sweep="{'batch_size': (1, 8)}".
"""

from collections.abc import Mapping
from collections.abc import Sequence
import itertools
import json
from typing import Any

Change = dict[str, Any]


def product(values: Mapping[str, Sequence[Any]]) -> tuple[Change, ...]:
  """Returns a change for each combination of values.

  Args:
    values: the values of each field; names of nested fields are joined by dots.

  Raises:
    ValueError: there is no field, or a field has no values or one value twice.
  """
  if not values:
    raise ValueError('sweep must hold at least one field, got {}.')
  for name, options in values.items():
    if not isinstance(options, tuple | list) or not options:
      raise ValueError(f'sweep of {name} must hold values, got {options!r}.')
    _check_distinct(f'sweep of {name}', options)
  return tuple(
    dict(zip(values, combination))
    for combination in itertools.product(*values.values())
  )


def changes(sweep: Any) -> tuple[Change, ...]:
  """Returns the changes of a sweep, one per run.

  Args:
    sweep: a sequence of changes, or a dictionary that `product` takes.

  Raises:
    ValueError: the sweep is neither, or it is empty or has a change twice.
  """
  if hasattr(sweep, 'items'):
    return product(dict(sweep.items()))
  is_sequence = isinstance(sweep, tuple | list)
  if not is_sequence or not all(hasattr(change, 'items') for change in sweep):
    raise ValueError(
      "sweep must be a dictionary such as {'draft_length': (2, 4)} or a tuple "
      "of changes such as ({'draft_length': 2}, {'draft_length': 4}), got "
      f'{sweep!r}.'
    )
  if not sweep or not all(sweep):
    raise ValueError(f'sweep must hold at least one field, got {sweep!r}.')
  _check_distinct('sweep', sweep)
  return tuple(dict(change.items()) for change in sweep)


def _check_distinct(name: str, values: Sequence[Any]) -> None:
  """Raises `ValueError` if a value occurs twice."""
  encoded = [json.dumps(value, default=str) for value in values]
  for i, value in enumerate(values):
    if encoded[i] in encoded[:i]:
      raise ValueError(f'{name} holds {value!r} twice.')
