"""What may be asked about: two distributions and a number of drafts."""

import jax
import jax.numpy as jnp
import numpy as np

from specjax.transport import chances

# How far a sum of probabilities may be from 1: float32 softmax of any size.
_TOLERANCE = 1e-4


def check(draft, target, num_drafts) -> None:
  """Raises a `ValueError` on input that is no pair of laws.

  Shapes are always checked; values only where they are known, which they are
  not while JAX traces.
  """
  laws = {'draft': draft, 'target': target}
  for name, law in laws.items():
    if np.ndim(law) != 1 or not np.size(law):
      raise ValueError(
        f'{name} must be a vector [V] with V >= 1, got shape {np.shape(law)}.'
      )
  if np.shape(draft) != np.shape(target):
    raise ValueError(
      'draft and target must be of one size, got shapes '
      f'{np.shape(draft)} and {np.shape(target)}.'
    )
  for name, law in laws.items():
    if not isinstance(law, jax.core.Tracer):
      _check_law(name, np.asarray(law, np.float64))
  if np.ndim(num_drafts):
    raise ValueError(
      f'num_drafts must be a scalar, got shape {np.shape(num_drafts)}.'
    )
  check_num_drafts(num_drafts)


def check_num_drafts(num_drafts) -> None:
  """Raises a `ValueError` unless all are integers of at least 1."""
  if not isinstance(num_drafts, jax.core.Tracer):
    values = np.asarray(num_drafts)
    if values.dtype.kind not in 'iu' or not (values >= 1).all():
      raise ValueError(f'num_drafts must be an integer >= 1, got {num_drafts}.')


def laws(draft, target) -> tuple[jax.Array, jax.Array]:
  """Returns both laws `[V]` in the precision of JAX, with a sum of 1."""
  both = jnp.asarray(draft, float), jnp.asarray(target, float)
  return tuple(law / chances.total(law) for law in both)


def _check_law(name, law):
  if not np.isfinite(law).all():
    raise ValueError(
      f'{name} must be finite, got {_first(law, ~np.isfinite(law))}.'
    )
  if (law < 0).any():
    raise ValueError(
      f'{name} must not be negative, got {_first(law, law < 0)}.'
    )
  if abs(law.sum() - 1) > _TOLERANCE:
    raise ValueError(
      f'{name} must sum to 1 within {_TOLERANCE}, got {law.sum():.6g}.'
    )


def _first(law, where):
  token = int(np.argmax(where))
  return f'{law[token]} at token {token}'
