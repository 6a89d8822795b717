"""Goal distributions: what is sampled instead of the target."""

from specjax import base
from specjax.goals import target

GOALS = {
  'target': target.target,
}


def resolve(goal: str | base.Goal) -> base.Goal:
  """Returns a goal, or the one that a name of `GOALS` stands for."""
  if isinstance(goal, str):
    return base.lookup(GOALS, 'goal', goal)()
  return goal


def checked(goal: base.Goal, tree: base.DraftTree) -> base.Goal:
  """Returns the goal, if the tree says all that it needs.

  Raises:
    ValueError: it is not the target, and the tree has no `leaf_probs`.
  """
  lossless = goal is target.target()
  if not lossless and tree.topology.num_nodes and tree.leaf_probs is None:
    raise ValueError('A goal other than the target needs leaf_probs.')
  return goal
