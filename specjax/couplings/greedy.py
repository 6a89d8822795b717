"""The greedy rule: the most likely token, whatever was drafted."""

from typing import ClassVar

import jax

from specjax import base
from specjax import components
from specjax import sampling


@components.component
class Greedy(base.Coupling):
  """Picks the target's most likely token; the key and the draft are unused.

  The token has the target's distribution only where that is one-hot, as it is
  at temperature 0.
  """

  is_greedy: ClassVar[bool] = True

  def __call__(
    self,
    key: jax.Array,
    candidates: jax.Array,
    active: jax.Array,
    draft: jax.Array,
    target: jax.Array,
  ) -> tuple[jax.Array, jax.Array]:
    token = sampling.most_likely(target)
    return token, (active & (candidates == token)).any()
