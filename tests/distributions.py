"""Until all tests import them where they are."""

from specjax.testing.distributions import *  # noqa: F403
from tests.parts import *  # noqa: F403
