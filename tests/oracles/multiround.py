"""Multi-round rejection: the root step of Algorithm 4 of the theory paper."""

import numpy as np

from tests.oracles import candidates


def residuals(draft, target, num_drafts):
  """Returns the target after each rejection, and the rejection probabilities.

  Args:
    draft: `[V]` of all candidates, or `[n, V]`, a distribution for each.
    target: `[V]`.
    num_drafts: `n`.

  Returns:
    `[n + 1, V]` the target after 0, 1, ... n rejections, and `[n]` the
    probability that a candidate is rejected if all earlier ones were.
  """
  targets, rejected = [target], []
  for probs in np.broadcast_to(draft, (num_drafts, len(target))):
    excess = np.maximum(targets[-1] - probs, 0)
    mass = excess.sum()
    rejected.append(mass if mass > 1e-12 else 0.0)
    targets.append(excess / mass if mass > 1e-12 else targets[-1])
  return np.array(targets), np.array(rejected)


def rows(draft, target, num_drafts):
  """Returns `[V**n, V]` the token's distribution given all candidates."""
  targets, _ = residuals(draft, target, num_drafts)
  drafts = np.broadcast_to(draft, (num_drafts, len(target)))
  tests = [candidates.passing(*pair) for pair in zip(drafts, targets)]
  return candidates.in_sequence(tests, targets[-1], target)


def breakpoints(draft, target, tokens, slots, width):
  """Returns where the outcome steps, for each uniform: the draw, the tests.

  The first test is that of the first candidate, wherever it is.
  """
  del slots
  num = len(tokens)
  targets, _ = residuals(draft, target, num)
  drafts = np.broadcast_to(draft, (num, len(target)))
  index = np.arange(num), tokens
  tests = targets[index] / drafts[index]
  return [
    candidates.cumulative(targets[-1]),
    *tests[:, None],
    *[[]] * (width - num),
  ]
