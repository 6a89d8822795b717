"""Goal distributions: what is sampled instead of the target."""

from specjax.goals import target

GOALS = {
  'target': target.target,
}
