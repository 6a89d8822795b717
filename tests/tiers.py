"""Selects which cases of a parametrized test run in the first tier."""

from collections.abc import Iterable
from typing import Any

import pytest


def cases(values: Iterable[Any], *first_tier: Any) -> list[Any]:
  """Returns values for `pytest.mark.parametrize`; most are marked as slow.

  Args:
    values: all cases; a tuple holds the values of several arguments.
    *first_tier: the cases that also run without `--all`.

  Raises:
    ValueError: a case of the first tier is not among the values.
  """
  values = list(values)
  unknown = [case for case in first_tier if case not in values]
  if unknown:
    raise ValueError(f'first_tier must be among {values}, got {unknown}.')
  return [
    pytest.param(
      *(case if isinstance(case, tuple) else (case,)),
      marks=() if case in first_tier else pytest.mark.slow,
    )
    for case in values
  ]
