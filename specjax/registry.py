"""Looks up entries of tables by their names."""

from collections.abc import Mapping
from typing import TypeVar

_Entry = TypeVar('_Entry')


def lookup(table: Mapping[str, _Entry], kind: str, name: str | None) -> _Entry:
  """Returns `table[name]`, or raises a `ValueError` that lists the names."""
  if name is None or name not in table:
    raise ValueError(
      f'Unknown {kind} {name!r}. Known: {", ".join(sorted(table))}.'
    )
  return table[name]
