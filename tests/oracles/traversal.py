"""Traversal verification (Weng et al. 2025): from the leaves to the root.

The tree is given by the parent of each node, level by level; -1 is the root.
"""

from typing import NamedTuple

import numpy as np

from tests.oracles import candidates


class Ending(NamedTuple):
  """Where a round may end: after the root or a node."""

  node: int  # -1 is the root
  prob: float  # that the node passes its test, if it is tested
  weights: np.ndarray  # [V] what the next token is drawn from


def traverse(tokens, parents, probs, targets, valid, *, update=None):
  """Returns the `Ending` of the nodes and the root, in the order of the tests.

  Args:
    tokens: `[N]`.
    parents: `[N]`.
    probs: `[N, V]` what each node was drawn from.
    targets: `[N + 1, V]` after the root and each node.
    valid: `[N]` bool; the others are not tested.
    update: the function `(share, target, draft) -> (share, target)` that
      follows a rejection; by default, the right one.
  """
  update = update or after_rejection
  parents = pooled(tokens, parents, valid)
  tests = []

  def visit(node, share):
    target = targets[node + 1]
    for child in np.flatnonzero(np.equal(parents, node)):
      if valid[child]:
        token = tokens[child]
        ratio = target[token] / probs[child, token]
        visit(child, min(share * ratio, 1.0))
        share, target = update(share, target, probs[child])
    tests.append(Ending(node, share if node >= 0 else 1.0, target))

  visit(-1, 1.0)
  return tests


def pooled(tokens, parents, valid):
  """Returns `[N]` parents, of which equal siblings are only the first one."""
  spelled, first, new_parents = {-1: ()}, {(): -1}, []
  for node, (token, parent) in enumerate(zip(tokens, parents)):
    new_parents.append(first.get(spelled[parent], parent))
    spelled[node] = (*spelled[parent], token)
    if valid[node]:
      first.setdefault(spelled[node], node)
  return new_parents


def after_rejection(share, target, draft):
  """Returns what is left of a node's share and target without a child."""
  excess = np.maximum(share * target - draft, 0)
  mass = excess.sum()
  if mass < 1e-9:
    return 0.0, target
  return mass / (mass + 1 - share), excess / mass


def endings(tests, num_nodes):
  """Returns `[N + 1, V]` how likely a round ends after each, and with what."""
  probs = np.zeros((num_nodes + 1, len(tests[0].weights)))
  reached = 1.0
  for node, prob, weights in tests:
    probs[node + 1] = reached * prob * weights
    reached *= 1 - prob
  return probs


def breakpoints(tests, num_nodes):
  """Returns where the outcome steps, for each uniform: the draw, the tests."""
  steps = [[] for _ in range(num_nodes)]
  for node, prob, _ in tests[:-1]:
    steps[node] = [prob]
  draws = [candidates.cumulative(weights) for *_, weights in tests]
  return [np.concatenate(draws), *steps]
