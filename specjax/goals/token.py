"""Token rules: a draft token is kept or not by what the target thinks of it.

Speculative cascades (Narasimhan et al. 2024), Algorithm 6 and equations (13) to
(15). What the draft gives to tokens that are not kept is drawn from the target:
`goal(v) = draft(v) (1 - r(v)) + target(v) sum_u r(u) draft(u)`. Notation: the
paper's p is the target, its q is the draft. A larger `alpha` keeps more.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import registry


@registry.component(example={'alpha': 0.25})
def token_v1(alpha: float) -> base.Goal:
  """Builds the rule that keeps tokens of `draft(v) >= max target - alpha`.

  Args:
    alpha: in [-1, 1].
  """
  checks.check_range('alpha of token_v1', alpha, -1, 1)
  return _goal(lambda target, draft: draft < target.max() - alpha)


@registry.component(example={'alpha': 0.25})
def token_v2(alpha: float) -> base.Goal:
  """Builds the rule that keeps tokens of `target(v) >= max target - alpha`.

  Args:
    alpha: in [-1, 1].
  """
  checks.check_range('alpha of token_v2', alpha, -1, 1)
  return _goal(lambda target, draft: target < target.max() - alpha)


@registry.component(example={'alpha': 0.25})
def token_v3(alpha: float) -> base.Goal:
  """Builds the rule that keeps tokens of `target(v) >= (1 - alpha) max target`.

  The rule "[Token]" of the paper's main results.

  Args:
    alpha: in [0, 1]; 1 keeps every token.
  """
  checks.check_range('alpha of token_v3', alpha, 0, 1)
  return _goal(lambda target, draft: target < target.max() * (1 - alpha))


def _goal(
  defers: Callable[[jax.Array, jax.Array], jax.Array],
) -> base.Goal:
  """The goal of `r(v)`, by `(target, draft)` at temperature 1."""

  def goal(target, draft, raw=None):
    models = (target, draft) if raw is None else raw
    deferred = jnp.where(defers(*models), draft, 0.0)
    return draft - deferred + target * deferred.sum()

  return goal
