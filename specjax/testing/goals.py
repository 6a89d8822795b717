"""What every goal keeps."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.testing import building
from specjax.testing import values

_SIZE, _VOCAB_SIZE = 100, 6


def check_goal(factory: building.Factory, /, **options: Any) -> None:
  """Checks a factory of goals.

  A goal is a distribution for any two distributions, under `vmap`; numbers of
  the goal may be traced, so that a sweep over them compiles once; equal
  arguments give one object.

  Args:
    factory: builds the goal; it need not be in a table.
    **options: what it is built with, beside its example.

  Raises:
    AssertionError: a sentence says what must hold.
  """
  with building.about(factory):
    building.check_documented(factory)
    chosen = building.arguments(factory, {}, options)
    _check(factory, chosen)
    values.check_value(factory, chosen)


def _check(factory: building.Factory, chosen: dict[str, Any]) -> None:
  target, draft = pairs()

  def made(**traced):
    return jax.vmap(factory(**chosen | traced))(target, draft)

  numbers = {key: x for key, x in chosen.items() if isinstance(x, float)}
  both = jax.jit(lambda **traced: (made(), made(**traced)))
  like, _ = jax.eval_shape(both, **numbers)
  building.require(
    building.is_like(like, (_SIZE, _VOCAB_SIZE), jnp.float32),
    f'A goal is a distribution, [V] float32, got {building.abstract(like)} '
    f'for [{_SIZE}, {_VOCAB_SIZE}].',
  )
  with jax.checking_leaks():
    for _ in range(2):  # Functions that JAX has not traced yet.
      jax.eval_shape(lambda **traced: made(**traced), **numbers)
  goals, traced = jax.device_get(both(**numbers))
  building.require(
    (goals >= 0).all(), f'The mass of tokens must be >= 0, got {goals.min()}.'
  )
  sums = goals.sum(1)
  building.require_close(sums, np.ones(_SIZE), 1e-5, 'Goals must have mass 1')
  building.require_close(
    traced,
    goals,
    1e-6,
    f'A goal must be the same where {", ".join(numbers)} are traced',
  )


def pairs() -> np.ndarray:
  """Returns `[2, 100, V]` probabilities of target and draft."""
  rng = np.random.default_rng(16)
  made = rng.dirichlet(np.full(_VOCAB_SIZE, 0.4), size=(2, _SIZE))
  return made.astype(np.float32)
