"""What mypy must refuse: an ignored error that is none is an error itself.

`python -m mypy` checks this file with the package; nothing runs it.
"""

import jax

from specjax import base


class First(base.Coupling):
  """Lacks the other arguments of a coupling, and what it returns."""

  def __call__(  # type: ignore[override]
    self, key: jax.Array, candidates: jax.Array
  ) -> jax.Array:
    return candidates[0]


def pick(key: jax.Array, candidates: jax.Array) -> jax.Array:
  """Is a function, and no coupling."""
  del key
  return candidates[0]


coupling: base.Coupling = pick  # type: ignore[assignment]
