"""The maximal coupling: SpecTr, Algorithm 1, with the first candidate."""

import numpy as np

from tests.oracles import candidates


def rows(draft, target, num_drafts):
  """Returns `[V**n, V]` the token's distribution given all candidates."""
  tests = np.zeros((num_drafts, len(draft)))
  tests[:1] = candidates.passing(draft, target)
  weights = np.maximum(target - draft, 0)
  return candidates.in_sequence(tests, weights, target)


def breakpoints(draft, target, tokens, slots, width):
  """Returns where the outcome steps, for each uniform: the test, the draw."""
  del slots, width
  if not len(tokens):
    return [[], candidates.cumulative(target)]
  ratio = target[tokens[0]] / draft[tokens[0]]
  return [[ratio], candidates.cumulative(target - draft)]
