"""Mixtures of two goals."""

from specjax import base
from specjax import checks
from specjax import registry
from specjax.goals import deferral
from specjax.goals import lossless


@registry.component(
  example={'first': lossless.target(), 'second': deferral.chow(0.5)}
)
def mixture(
  first: base.Goal, second: base.Goal, weight: float = 0.5
) -> base.Goal:
  """Builds the goal `(1 - weight) first + weight second`.

  Args:
    first: a goal.
    second: another.
    weight: of the second, in [0, 1].
  """
  checks.check_range('weight of mixture', weight, 0, 1)

  def goal(target, draft, raw=None):
    one = first(target, draft, raw)
    return (1 - weight) * one + weight * second(target, draft, raw)

  return goal
