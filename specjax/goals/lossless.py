"""The lossless goal."""

from specjax import base
from specjax import registry


@registry.component
def target() -> base.Goal:
  """Builds the goal that is the target itself."""
  return lambda target, draft, raw=None: target
