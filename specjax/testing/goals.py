"""Checks of goals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import goals
from specjax.testing import building
from specjax.testing import values

# Arguments of the library's goals that have no default.
EXAMPLES: dict[building.Constructor, dict[str, Any]] = {
  **dict.fromkeys(building.library_entries(goals.GOALS), {'alpha': 0.25}),
  goals.Mixture: {'first': goals.Target(), 'second': goals.Chow(0.5)},
  goals.Target: {},
  goals.Typical: {},
}

_SIZE, _VOCAB_SIZE = 100, 6


def check_goal(goal_class: building.Constructor, /, **options: Any) -> None:
  """Checks a class of goals.

  A goal is a distribution for any two distributions, under `vmap`. Its numbers
  are data: they may be traced, so that a sweep over them compiles once. Equal
  arguments make equal goals.

  Args:
    goal_class: the class; it need not be in a table.
    **options: arguments of the goal. Goals of the library have examples of
      arguments without defaults.

  Raises:
    AssertionError: a property does not hold; the error is a sentence.
  """
  with building.error_context(goal_class):
    building.check_documented(goal_class)
    options = EXAMPLES.get(goal_class, {}) | options
    arguments = building.arguments(goal_class, {}, options)
    values.check_component(goal_class, arguments)
    _check(goal_class(**arguments))


def _check(goal: base.Goal) -> None:
  """Checks a goal."""
  target, draft = pairs()

  def evaluate(goal: base.Goal) -> jax.Array:
    return jax.vmap(goal)(target, draft, base.RawProbs(target, draft))

  both = jax.jit(lambda traced: (evaluate(goal), evaluate(traced)))
  shape, _ = jax.eval_shape(both, goal)
  building.require(
    building.is_like(shape, (_SIZE, _VOCAB_SIZE), jnp.float32),
    'A goal must return a distribution, [V] float32, got '
    f'{building.abstract(shape)} for [{_SIZE}, {_VOCAB_SIZE}].',
  )
  with jax.checking_leaks():
    for _ in range(2):  # New functions, which JAX traces again.
      jax.eval_shape(lambda traced: evaluate(traced), goal)
  probs, traced = jax.device_get(both(goal))
  building.require(
    (probs >= 0).all(), f'Probabilities must be >= 0, got {probs.min()}.'
  )
  sums = probs.sum(1)
  building.require_close(sums, np.ones(_SIZE), 1e-5, 'Goals must have mass 1')
  building.require_close(
    traced, probs, 1e-6, 'A goal must be the same if its numbers are traced'
  )


def pairs() -> np.ndarray:
  """Returns `[2, 100, V]` probabilities of target and draft."""
  rng = np.random.default_rng(16)
  probs = rng.dirichlet(np.full(_VOCAB_SIZE, 0.4), size=(2, _SIZE))
  return probs.astype(np.float32)
