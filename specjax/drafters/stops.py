"""Where a drafter hands over to the target: the rules of sequential cascades.

Speculative cascades (Narasimhan et al. 2024), Algorithm 2: the rules that look
at the draft's distribution alone.
"""

from specjax import base
from specjax import checks
from specjax import registry
from specjax.goals import deferral


@registry.component(example={'alpha': 0.25})
def unsure(alpha: float) -> base.Stop:
  """Builds the rule that stops where `max draft < 1 - alpha`: Chow's.

  Args:
    alpha: in [0, 1]; 0 stops everywhere.
  """
  checks.check_range('alpha of unsure', alpha, 0, 1)
  return lambda probs: deferral.unsure(probs, alpha)


@registry.component(example={'alpha': 0.25})
def unsure_log(alpha: float) -> base.Stop:
  """Builds the rule that stops where the draft's entropy exceeds `alpha`.

  Args:
    alpha: nats, at least 0.
  """
  checks.check_range('alpha of unsure_log', alpha, 0)
  return lambda probs: deferral.unsure_log(probs, alpha)
