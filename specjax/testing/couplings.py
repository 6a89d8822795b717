"""What every coupling keeps, one that is not lossless too."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.testing import building
from specjax.testing import values

_SIZE, _VOCAB_SIZE = 400, 5
# Cases that are also picked without a batch.
_NUM_ALONE = 5


def check_coupling(coupling_class: building.Factory, /, **options: Any) -> None:
  """Checks a class of couplings.

  It checks types under `jit` and `vmap`, which must not change the pick; that
  tokens are possible; that exactly the active candidates count as accepted; and
  that equal arguments make equal couplings. For the distribution, see
  `check_lossless`.

  Args:
    coupling_class: the class; it need not be in a table.
    **options: arguments of the coupling.

  Raises:
    AssertionError: a sentence says what must hold.
  """
  with building.about(coupling_class):
    building.check_documented(coupling_class)
    arguments = building.arguments(coupling_class, {}, options)
    values.check_component(coupling_class, arguments)
    for num_candidates in (1, 3):
      _check(coupling_class(**arguments), _instances(num_candidates))


def _check(coupling: base.Coupling, cases: tuple[Any, ...]) -> None:
  @jax.jit
  def pick(*cases):
    """In a batch, and some rows alone."""
    some = jax.tree.map(lambda leaf: leaf[:_NUM_ALONE], cases)
    alone = jax.lax.map(lambda case: coupling(*case), some)
    return jax.vmap(coupling)(*cases), alone

  _check_types(*jax.eval_shape(pick, *cases)[0])
  (tokens, accepted), alone = jax.device_get(pick(*cases))
  _, candidates, active, _, target = cases
  picked = (active & (candidates == tokens[:, None])).any(1)
  building.require(
    (accepted == picked).all(),
    'A token must be accepted exactly where an active candidate was picked.',
  )
  mass = np.take_along_axis(target, tokens[:, None], 1)
  building.require(
    (mass > 0).all(), 'Tokens must be possible: the target gave one no mass.'
  )
  for batch, rows in zip((tokens, accepted), alone):
    building.require(
      rows.shape == (_NUM_ALONE,), 'Token and accepted are scalars.'
    )
    building.require(
      (batch[:_NUM_ALONE] == rows).all(),
      'A batch must give what each of its rows gives alone.',
    )


def _check_types(tokens: Any, accepted: Any) -> None:
  building.require(
    building.is_like(tokens, (_SIZE,), jnp.int32),
    f'A token is a scalar int32, got {building.abstract(tokens)} in a batch of '
    f'{_SIZE}.',
  )
  building.require(
    building.is_like(accepted, (_SIZE,), jnp.bool_),
    f'Whether it is accepted is a scalar bool, got '
    f'{building.abstract(accepted)} in a batch of {_SIZE}.',
  )


def _instances(num_candidates: int) -> tuple[Any, ...]:
  """Returns random arguments of a coupling, one case per row."""
  rng = np.random.default_rng(6)
  draft, target = rng.dirichlet(np.full(_VOCAB_SIZE, 0.5), size=(2, _SIZE))
  # Some tokens are impossible.
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
