"""Checks of components, for authors of components and for tests.

A check receives a component's class and raises an `AssertionError` that states
the violated property. It needs no table, no pytest and no trained model:

    from specjax import testing

    testing.check_bandit(MyBandit, beta=0.3)
    testing.check_goal(MyGoal, alpha=0.2)
    testing.check_lossless(MyCoupling())

A component is built with the options of the call, and with default arguments
for its kind if its class has fields with these names.
"""

from collections.abc import Callable

from specjax.testing import distributions
from specjax.testing import mistakes
from specjax.testing import rounds
from specjax.testing import toys
from specjax.testing.bandits import check_bandit
from specjax.testing.couplings import check_coupling
from specjax.testing.drafters import check_drafter
from specjax.testing.evaluation import check_metric
from specjax.testing.goals import check_goal
from specjax.testing.losslessness import check_lossless
from specjax.testing.models import check_model
from specjax.testing.rewards import check_reward
from specjax.testing.verifiers import check_verifier

__all__ = [
  'CHECKS',
  'check_bandit',
  'check_coupling',
  'check_drafter',
  'check_goal',
  'check_lossless',
  'check_metric',
  'check_model',
  'check_reward',
  'check_verifier',
  'distributions',
  'mistakes',
  'rounds',
  'toys',
]

# Checks by kind of component; every entry of the kind's table passes.
CHECKS: dict[str, Callable[..., None]] = {
  'bandit': check_bandit,
  'coupling': check_coupling,
  'drafter': check_drafter,
  'goal': check_goal,
  'metric': check_metric,
  'model': check_model,
  'reward': check_reward,
  'verifier': check_verifier,
}
