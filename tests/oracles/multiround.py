"""Multi-round rejection: the root step of Algorithm 4 of the theory paper."""

import numpy as np

from tests.oracles import candidates


def residuals(draft, target, num_drafts):
  """Returns what rejections leave of the target, and how likely each is.

  Args:
    draft: `[V]` of all candidates, or `[n, V]`, a distribution for each.
    target: `[V]`.
    num_drafts: `n`.

  Returns:
    `[n + 1, V]` the target after 0, 1, ... n rejections, and `[n]` the
    probability that a candidate is rejected if all earlier ones were.
  """
  left, rejected = [target], []
  for probs in np.broadcast_to(draft, (num_drafts, len(target))):
    excess = np.maximum(left[-1] - probs, 0)
    mass = excess.sum()
    rejected.append(mass if mass > 1e-12 else 0.0)
    left.append(excess / mass if mass > 1e-12 else left[-1])
  return np.array(left), np.array(rejected)


def rows(draft, target, num_drafts):
  """Returns `[V**n, V]` the token's distribution given all candidates."""
  left, _ = residuals(draft, target, num_drafts)
  drafts = np.broadcast_to(draft, (num_drafts, len(target)))
  tests = [candidates.passing(*pair) for pair in zip(drafts, left)]
  return candidates.in_sequence(tests, left[-1], target)


def breakpoints(draft, target, tokens, places, width):
  """Returns where the outcome steps, for each uniform: the draw, the tests.

  The first test is that of the first candidate, wherever it is.
  """
  del places
  num = len(tokens)
  left, _ = residuals(draft, target, num)
  drafts = np.broadcast_to(draft, (num, len(target)))
  at = np.arange(num), tokens
  tests = left[at] / drafts[at]
  return [
    candidates.cumulative(left[-1]),
    *tests[:, None],
    *[[]] * (width - num),
  ]
