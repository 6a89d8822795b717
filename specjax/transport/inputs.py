"""Checks of the arguments: two distributions and a number of drafts."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy import typing as npt

from specjax.transport import numerics

# Allowed error in a sum of probabilities. It admits a float32 softmax over any
# vocabulary.
_TOLERANCE = 1e-4


def check(
  draft: npt.ArrayLike,
  target: npt.ArrayLike,
  num_drafts: npt.ArrayLike,
  distinct: bool = False,
) -> None:
  """Raises a `ValueError` unless the arguments are valid.

  Shapes are always checked. Values are checked only if they are known, that is,
  not while JAX traces.

  Args:
    draft: `[V]`.
    target: `[V]`.
    num_drafts: `k`.
    distinct: whether the drafts are drawn without replacement, so that there
      are no more of them than tokens that `draft` can draw.
  """
  pair = {'draft': draft, 'target': target}
  for name, probs in pair.items():
    if np.ndim(probs) != 1 or not np.size(probs):
      raise ValueError(
        f'{name} must be a vector [V] with V >= 1, got shape {np.shape(probs)}.'
      )
  if np.shape(draft) != np.shape(target):
    raise ValueError(
      'draft and target must be of one size, got shapes '
      f'{np.shape(draft)} and {np.shape(target)}.'
    )
  for name, probs in pair.items():
    if not isinstance(probs, jax.core.Tracer):
      _check_distribution(name, np.asarray(probs, np.float64))
  if np.ndim(num_drafts):
    raise ValueError(
      f'num_drafts must be a scalar, got shape {np.shape(num_drafts)}.'
    )
  if not isinstance(num_drafts, jax.core.Tracer):
    number = np.asarray(num_drafts)
    if number.dtype.kind not in 'iu' or number < 1:
      raise ValueError(f'num_drafts must be an integer >= 1, got {num_drafts}.')
    if distinct and not isinstance(draft, jax.core.Tracer):
      num_tokens = np.count_nonzero(np.asarray(draft))
      if number > num_tokens:
        raise ValueError(
          f'num_drafts must be <= {num_tokens}, the number of tokens of draft '
          f'that can be drawn without replacement, got {num_drafts}.'
        )


def normalized(
  draft: jax.typing.ArrayLike, target: jax.typing.ArrayLike
) -> tuple[jax.Array, jax.Array]:
  """Returns both `[V]` in JAX's default float type, scaled to a sum of 1."""
  draft, target = jnp.asarray(draft, float), jnp.asarray(target, float)
  return draft / numerics.pairwise_sum(draft), target / numerics.pairwise_sum(
    target
  )


def _check_distribution(name: str, probs: np.ndarray) -> None:
  """Raises a `ValueError` unless `probs` is a distribution."""
  if not np.isfinite(probs).all():
    raise ValueError(
      f'{name} must be finite, got {_first(probs, ~np.isfinite(probs))}.'
    )
  if (probs < 0).any():
    raise ValueError(
      f'{name} must not be negative, got {_first(probs, probs < 0)}.'
    )
  if abs(probs.sum() - 1) > _TOLERANCE:
    raise ValueError(
      f'{name} must sum to 1 within {_TOLERANCE}, got {probs.sum():.6g}.'
    )


def _first(probs: np.ndarray, where: np.ndarray) -> str:
  """Returns a description of the first probability where `where` is true."""
  token = int(np.argmax(where))
  return f'{probs[token]} at token {token}'
