"""Mixtures of two goals."""

import jax

from specjax import base
from specjax import checks
from specjax import components


@components.component
class Mixture(base.Goal):
  """The goal `(1 - weight) first + weight second`.

  Attributes:
    first: a goal.
    second: a goal.
    weight: weight of the second goal, in [0, 1].
  """

  first: base.Goal
  second: base.Goal
  weight: float = 0.5

  def __post_init__(self) -> None:
    checks.check_range('weight of Mixture', self.weight, 0, 1)

  def __call__(
    self, target: jax.Array, draft: jax.Array, raw: base.RawProbs
  ) -> jax.Array:
    first = self.first(target, draft, raw)
    second = self.second(target, draft, raw)
    return (1 - self.weight) * first + self.weight * second
