"""The lossless goal."""

import jax

from specjax import base
from specjax import components


@components.component
class Target(base.Goal):
  """The target's distribution: decoding is lossless."""

  def __call__(
    self, target: jax.Array, draft: jax.Array, raw: base.RawProbs
  ) -> jax.Array:
    return target
