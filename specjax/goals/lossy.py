"""Lossy speculative decoding: drafts are accepted more often than they may be.

Leviathan et al. (2023) and Tran-Thien (2023), as in speculative cascades
(Narasimhan et al. 2024), Table 1 and Lemma 2. Notation: the paper's p is the
target, its q is the draft.
"""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import bisection
from specjax import checks
from specjax import registry

_STEPS = 32  # Of bisection: float32 has no more digits.


@registry.component(example={'alpha': 0.25})
def lossy(alpha: float, beta: float | None = None) -> base.Goal:
  """Builds the goal `max(min(draft, target / (1 - alpha)), target / beta)`.

  By Lemma 2, to accept against it is to accept with `min(1, target / ((1 -
  alpha) draft))`, and to replace what is rejected by a sample of `max(target /
  beta - draft, 0)`. At temperature 0 it is the target, whatever `alpha` is.

  Args:
    alpha: in [0, 1); 0 is the target.
    beta: by default, what makes the goal sum to 1 at each position. A number,
      at least `1 - alpha`, does not (with 1, the mass is 1 or more): no arm
      takes such a goal, but there is the verifier 'lossy' for that.
  """
  _check(alpha, beta)

  def goal(target, draft, raw=None):
    del raw
    most = jnp.minimum(draft, target / (1 - alpha))
    share = _share(target, draft, most) if beta is None else 1 / beta
    return jnp.maximum(most, target * share)

  return goal


def _check(alpha, beta):
  checks.check_range('alpha of lossy', alpha, 0)
  if not isinstance(alpha, jax.core.Tracer) and not alpha < 1:
    raise ValueError(f'alpha of lossy must be < 1, got {alpha}.')
  if beta is None or any(
    isinstance(each, jax.core.Tracer) for each in (alpha, beta)
  ):
    return
  if not beta >= 1 - alpha:
    raise ValueError(
      f'beta of lossy must be >= 1 - alpha = {1 - alpha:g}, got {beta}.'
    )


def _share(target, draft, most):
  """Returns `1 / beta` of mass 1: what is rejected is what is replaced."""
  rejected = (draft - most).sum()
  replaced = lambda share: jnp.maximum(target * share - draft, 0.0).sum()
  _, share = bisection.bisect(
    lambda share: ~(replaced(share) >= rejected),
    jnp.float32(0),
    jnp.float32(1),
    _STEPS,
  )
  return share
