"""Stop rules: where a drafter leaves the next token to the target.

Speculative cascades (Narasimhan et al. 2024), Algorithm 2: the deferral rules
of sequential cascades that depend only on the draft's distribution.
"""

import jax

from specjax import base
from specjax import checks
from specjax import components
from specjax.goals import deferral


@components.component
class Unsure(base.StopRule):
  """Stops where `max draft < 1 - alpha` (Chow's rule).

  Attributes:
    alpha: in [0, 1]; 0 stops everywhere.
  """

  alpha: float

  def __post_init__(self) -> None:
    checks.check_range('alpha of unsure', self.alpha, 0, 1)

  def __call__(self, raw_probs: jax.Array) -> jax.Array:
    """Returns `[...]` where to stop."""
    return deferral.unsure(raw_probs, self.alpha)


@components.component
class UnsureLog(base.StopRule):
  """Stops where the entropy of the draft exceeds `alpha`.

  Attributes:
    alpha: nats, at least 0.
  """

  alpha: float

  def __post_init__(self) -> None:
    checks.check_range('alpha of unsure_log', self.alpha, 0)

  def __call__(self, raw_probs: jax.Array) -> jax.Array:
    """Returns `[...]` where to stop."""
    return deferral.unsure_log(raw_probs, self.alpha)
