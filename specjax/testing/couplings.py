"""Checks of couplings, lossless or not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.testing import building
from specjax.testing import values

_SIZE, _VOCAB_SIZE = 400, 5
# Number of cases that are also evaluated without a batch.
_NUM_SINGLE = 5


def check_coupling(
  coupling_class: building.Constructor, /, **options: Any
) -> None:
  """Checks a class of couplings.

  It checks types under `jit` and `vmap`, which must not change the pick; that
  tokens are possible; that exactly the active candidates count as accepted; and
  that equal arguments make equal couplings. For the distribution, see
  `check_lossless`.

  Args:
    coupling_class: the class; it need not be in a table.
    **options: arguments of the coupling.

  Raises:
    AssertionError: a property does not hold; the error is a sentence.
  """
  with building.error_context(coupling_class):
    building.check_documented(coupling_class)
    arguments = building.arguments(coupling_class, {}, options)
    values.check_component(coupling_class, arguments)
    for num_candidates in (1, 3):
      _check(coupling_class(**arguments), _instances(num_candidates))


def _check(coupling: base.Coupling, cases: tuple[Any, ...]) -> None:
  """Checks a coupling."""

  @jax.jit
  def pick(*cases: Any) -> tuple[Any, Any]:
    """Evaluates cases in a batch, and the first ones also one by one."""
    first_cases = jax.tree.map(lambda leaf: leaf[:_NUM_SINGLE], cases)
    single = jax.lax.map(lambda case: coupling(*case), first_cases)
    return jax.vmap(coupling)(*cases), single

  _check_types(*jax.eval_shape(pick, *cases)[0])
  (tokens, accepted), single = jax.device_get(pick(*cases))
  _, candidates, active, _, target = cases
  picked = (active & (candidates == tokens[:, None])).any(1)
  building.require(
    (accepted == picked).all(),
    'A token must be accepted exactly if it is an active candidate.',
  )
  mass = np.take_along_axis(target, tokens[:, None], 1)
  building.require(
    (mass > 0).all(), 'All tokens must have mass under the target.'
  )
  for batch, rows in zip((tokens, accepted), single):
    building.require(
      rows.shape == (_NUM_SINGLE,), 'Token and accepted must be scalars.'
    )
    building.require(
      (batch[:_NUM_SINGLE] == rows).all(),
      'Results in a batch must equal those of single rows.',
    )


def _check_types(tokens: Any, accepted: Any) -> None:
  """Checks shapes and types of a batch of results."""
  building.require(
    building.is_like(tokens, (_SIZE,), jnp.int32),
    f'A token must be a scalar int32, got {building.abstract(tokens)} in a '
    f'batch of {_SIZE}.',
  )
  building.require(
    building.is_like(accepted, (_SIZE,), jnp.bool_),
    'accepted must be a scalar bool, got '
    f'{building.abstract(accepted)} in a batch of {_SIZE}.',
  )


def _instances(num_candidates: int) -> tuple[Any, ...]:
  """Returns random arguments of a coupling, one case per row."""
  rng = np.random.default_rng(6)
  draft, target = rng.dirichlet(np.full(_VOCAB_SIZE, 0.5), size=(2, _SIZE))
  # Some tokens have no mass.
  target[::2] *= target[::2] > target[::2].min(axis=1, keepdims=True)
  target /= target.sum(axis=1, keepdims=True)
  candidates = rng.integers(_VOCAB_SIZE, size=(_SIZE, num_candidates))
  return (
    jax.random.split(jax.random.key(7), _SIZE),
    candidates.astype(np.int32),
    rng.random((_SIZE, num_candidates)) < 0.6,
    draft.astype(np.float32),
    target.astype(np.float32),
  )
