"""Stop rules: where a drafter leaves the next token to the target.

`Unsure` and `UnsureLog` are the deferral rules of sequential cascades that
depend only on the draft's distribution (Narasimhan et al. 2024, Algorithm 2).
The thresholds of all rules are data: arms that differ only in a threshold, or
in a `Length`, share compiled programs.
"""

import jax
import jax.numpy as jnp

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

  def __call__(self, position: base.DraftPosition) -> jax.Array:
    """Returns `[B, W]` bool, where to stop."""
    return deferral.unsure(position.raw_probs, self.alpha)


@components.component
class UnsureLog(base.StopRule):
  """Stops where the entropy of the draft exceeds `alpha`.

  This is also the rule of SVIP (Zhang et al. 2024, arXiv:2411.18462), which
  stops where the square root of the entropy exceeds `h`, for `alpha = h**2`;
  and that of AdaEDL (Agrawal et al. 2024, arXiv:2410.18351), which stops where
  `1 - sqrt(gamma * entropy) < lambda`, for `alpha = (1 - lambda)**2 / gamma`.
  Where AdaEDL adapts `lambda` to the acceptance rate, a bandit can select
  among arms with several `alpha`, which share one program.

  Attributes:
    alpha: nats, at least 0.
  """

  alpha: float

  def __post_init__(self) -> None:
    checks.check_range('alpha of unsure_log', self.alpha, 0)

  def __call__(self, position: base.DraftPosition) -> jax.Array:
    """Returns `[B, W]` bool, where to stop."""
    return deferral.unsure_log(position.raw_probs, self.alpha)


@components.component
class Margin(base.StopRule):
  """Stops where the two likeliest tokens differ by less than `alpha`.

  Attributes:
    alpha: difference of two probabilities, in [0, 1].
  """

  alpha: float

  def __post_init__(self) -> None:
    checks.check_range('alpha of margin', self.alpha, 0, 1)

  def __call__(self, position: base.DraftPosition) -> jax.Array:
    """Returns `[B, W]` bool, where to stop."""
    first, second = jnp.moveaxis(jax.lax.top_k(position.raw_probs, 2)[0], -1, 0)
    return first - second < self.alpha


@components.component
class PathProbability(base.StopRule):
  """Stops where the draft's probability of the drafted path is below `alpha`.

  EAGLE-2 (Li et al. 2024, Section 4.1) estimates the probability that a path is
  accepted in this way.

  Attributes:
    alpha: in [0, 1]; at least one token is drafted.
  """

  alpha: float

  def __post_init__(self) -> None:
    checks.check_range('alpha of path_probability', self.alpha, 0, 1)

  def __call__(self, position: base.DraftPosition) -> jax.Array:
    """Returns `[B, W]` bool, where to stop."""
    return position.path_probs < self.alpha


@components.component
class Length(base.StopRule):
  """Stops after `length` tokens: a draft length that is data.

  Attributes:
    length: at least 0; the tree's depth is the largest that has an effect.
  """

  length: int

  def __post_init__(self) -> None:
    checks.check_integers('length', self.length, 0)

  def __call__(self, position: base.DraftPosition) -> jax.Array:
    """Returns `[B, W]` bool, where to stop."""
    return jnp.full(position.path_probs.shape, position.depth >= self.length)
