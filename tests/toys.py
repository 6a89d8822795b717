"""Until all tests import them where they are."""

from specjax.testing.toys import *  # noqa: F403
