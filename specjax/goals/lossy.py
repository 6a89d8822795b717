"""Lossy speculative decoding: drafts are accepted more often than is lossless.

Leviathan et al. (2023) and Tran-Thien (2023), as in speculative cascades
(Narasimhan et al. 2024), Table 1 and Lemma 2. Notation: the paper's p is the
target, its q is the draft.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import bisection
from specjax import checks
from specjax import components

_STEPS = 32  # Of bisection: float32 has no more digits.


@components.component
class Lossy(base.Goal):
  """The goal `max(min(draft, target / (1 - alpha)), target / beta)`.

  By Lemma 2, to accept against it is to accept with `min(1, target / ((1 -
  alpha) draft))`, and to replace a rejected draft by a sample of `max(target /
  beta - draft, 0)`. At temperature 0 it is the target, whatever `alpha` is.

  Attributes:
    alpha: in [0, 1); 0 is the target.
    beta: by default, the number at which the goal sums to 1 at each position. A
      number that is given, at least `1 - alpha`, does not do that (with 1, the
      mass is 1 or more): no arm takes such a goal, but the verifier 'lossy'
      does.
  """

  alpha: float
  beta: float | None = None

  def __post_init__(self) -> None:
    checks.check_range('alpha of Lossy', self.alpha, 0)
    if checks.is_known(self.alpha) and not np.all(self.alpha < 1):
      raise ValueError(f'alpha of Lossy must be < 1, got {self.alpha}.')
    if self.beta is None or not checks.is_known((self.alpha, self.beta)):
      return
    # Numbers such as 0.3 and 1 - 0.7 differ in their last digits.
    if not np.all(np.asarray(self.beta) >= (1 - np.asarray(self.alpha)) - 1e-9):
      raise ValueError(
        f'beta of Lossy must be >= 1 - alpha = {1 - self.alpha}, got '
        f'{self.beta}.'
      )

  def __call__(
    self, target: jax.Array, draft: jax.Array, raw: base.RawProbs
  ) -> jax.Array:
    kept = jnp.minimum(draft, target / (1 - self.alpha))
    if self.beta is None:
      return jnp.maximum(kept, target * _share(target, draft, kept))
    return jnp.maximum(kept, target * (1 / self.beta))


def _share(target: jax.Array, draft: jax.Array, kept: jax.Array) -> jax.Array:
  """Returns `1 / beta` of mass 1: what is rejected is what is replaced."""
  rejected = (draft - kept).sum()
  replaced = lambda share: jnp.maximum(target * share - draft, 0.0).sum()
  _, share = bisection.bisect(
    lambda share: ~(replaced(share) >= rejected),
    jnp.float32(0),
    jnp.float32(1),
    _STEPS,
  )
  return share
