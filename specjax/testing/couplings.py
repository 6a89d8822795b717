"""What every coupling keeps, one that is not lossless too."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.testing import building

_SIZE, _VOCAB_SIZE = 400, 5


def check_coupling(coupling: base.Coupling) -> None:
  """Checks a coupling: a function, of which there are no options.

  Types under `jit` and `vmap`, which must not change what is picked; tokens are
  possible; accepted is what was picked of the active candidates. For its
  distribution, see `check_lossless`.

  Args:
    coupling: it need not be in a table.

  Raises:
    AssertionError: a sentence says what must hold.
  """
  with building.about(coupling):
    building.check_documented(coupling)
    for num_candidates in (1, 3):
      _check(coupling, _instances(num_candidates))


def _check(coupling: base.Coupling, cases: tuple[Any, ...]) -> None:
  tokens, accepted = jax.jit(jax.vmap(coupling))(*cases)
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
  single = jax.jit(coupling)
  for i in range(5):
    token, kept = single(*(each[i] for each in cases))
    building.require(
      (token, kept) == (tokens[i], accepted[i]),
      'A batch must give what each of its rows gives alone.',
    )
    building.require(
      token.shape == kept.shape == (), 'Token and accepted are scalars.'
    )


def _instances(num_candidates: int) -> tuple[Any, ...]:
  """Random arguments of a coupling, one case a row."""
  rng = np.random.default_rng(6)
  draft, target = rng.dirichlet(np.full(_VOCAB_SIZE, 0.5), size=(2, _SIZE))
  # Some tokens are impossible.
  target[::2] *= target[::2] > target[::2].min(axis=1, keepdims=True)
  target /= target.sum(axis=1, keepdims=True)
  candidates = rng.integers(_VOCAB_SIZE, size=(_SIZE, num_candidates))
  return (
    jax.random.split(jax.random.key(7), _SIZE),
    jnp.asarray(candidates, jnp.int32),
    jnp.asarray(rng.random((_SIZE, num_candidates)) < 0.6),
    jnp.asarray(draft, jnp.float32),
    jnp.asarray(target, jnp.float32),
  )
