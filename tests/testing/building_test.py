"""Arguments of checks that are known for the library's components."""

from specjax import base
from specjax import goals
from specjax.testing import building


class Goal(base.Goal):
  """A goal that a user has added to the table."""


def test_components_of_users_receive_no_arguments_of_the_library():
  table = {'chow': goals.Chow, 'user': Goal}
  assert building.library_entries(table) == [goals.Chow]
