"""Several arms in one round: only what was chosen runs, and results merge.

Arms read the caches and return what is to be written to them, so that a choice
among them copies no cache.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
from typing import Any
from typing import TypeVar

import jax
import jax.numpy as jnp

from specjax import padding

_Result = TypeVar('_Result')


def run_chosen(
  plays: Sequence[jax.Array],
  functions: Sequence[Callable[[], Any]],
  place: jax.Array | None = None,
) -> list[Any]:
  """Runs the functions of arms that some live row has chosen.

  Args:
    plays: `[B]` bool of each arm, the live rows that have chosen it.
    functions: of each arm. A single arm's always runs.
    place: `[]` int32, the only arm that rows have chosen; None if rows may have
      chosen several.

  Returns:
    What each arm's returned; zeros where nobody has chosen it.
  """
  if len(functions) == 1:
    return [functions[0]()]
  if place is None:
    return [_if_any(rows, each) for rows, each in zip(plays, functions)]
  shapes = [jax.eval_shape(each) for each in functions]

  def run_one(i):
    nothing = [*map(padding.zeros, shapes)]
    return [*nothing[:i], functions[i](), *nothing[i + 1 :]]

  branches = [functools.partial(run_one, i) for i in range(len(functions))]
  return jax.lax.switch(place, branches)


def merge(plays: Sequence[jax.Array], results: Sequence[_Result]) -> _Result:
  """Merges the results of arms, each from the rows that have chosen it.

  Args:
    plays: `[B]` bool of each arm.
    results: of each arm, pytrees `[B, ...]` that may differ in their sizes.

  Returns:
    One result, padded with zeros to the largest sizes.
  """
  if len(results) == 1:
    return results[0]
  shapes = padding.common_shapes(results)
  merged = padding.zeros(shapes)
  for rows, result in zip(plays, results):
    merged = where(rows, padding.pad_to(result, shapes), merged)
  return merged


@jax.vmap
def where(rows: jax.Array, new: Any, old: Any) -> Any:
  """Returns the rows of `new` where `rows` `[B]` is true, else of `old`."""
  return jax.tree.map(lambda new, old: jnp.where(rows, new, old), new, old)


def _if_any(rows, function):
  """Calls a function if any row wants it; else the result is zeros."""
  shapes = jax.eval_shape(function)
  return jax.lax.cond(rows.any(), function, lambda: padding.zeros(shapes))
