"""Block verification of one path (Sun et al. 2024): a prefix as a whole.

A path has `L` tokens that were drawn from `probs`, and targets after each.
"""

import numpy as np

from tests.oracles import candidates


def shares(tokens, probs, targets):
  """Returns the shares `[L + 1]`, p_0 to p_L."""
  prefix_shares = [1.0]
  for i, token in enumerate(tokens):
    prefix_shares.append(
      min(prefix_shares[-1] * targets[i, token] / probs[i, token], 1.0)
    )
  return np.array(prefix_shares)


def residuals(tokens, probs, targets, *, scaled=True):
  """Returns `[L + 1, V]` what the token after each prefix is drawn from.

  Args:
    tokens: `[L]`.
    probs: `[L, V]`.
    targets: `[L + 1, V]`.
    scaled: `p target - draft`, not `target - draft`.
  """
  share = shares(tokens, probs, targets) if scaled else np.ones(len(targets))
  inner = np.maximum(share[:-1, None] * targets[:-1] - probs, 0)
  return np.append(inner, targets[-1:], axis=0)


def passes(tokens, probs, targets):
  """Returns `[L + 1]`, the probability that each prefix passes."""
  share = shares(tokens, probs, targets)
  mass = residuals(tokens, probs, targets)[:-1].sum(axis=1)
  has_mass = mass > 1e-12
  inner = np.where(
    has_mass, mass / np.where(has_mass, mass + 1 - share[:-1], 1), 0
  )
  pass_probs = np.append(inner, share[-1])
  pass_probs[0] = 1
  return pass_probs


def endings(tokens, probs, targets, *, last=True, scaled=True):
  """Returns `[L + 1, V]` how likely so many tokens are kept, and the next one.

  Args:
    tokens: `[L]`.
    probs: `[L, V]`.
    targets: `[L + 1, V]`.
    last: the last prefix that passes is kept; otherwise the one before the
      first that does not.
    scaled: see `residuals`.
  """
  pass_probs = passes(tokens, probs, targets)
  fail_probs = np.append(1 - pass_probs, 1.0)
  kept_probs = [
    pass_probs[i] * fail_probs[i + 1 :].prod()
    if last
    else pass_probs[: i + 1].prod() * fail_probs[i + 1]
    for i in range(len(pass_probs))
  ]
  weights = residuals(tokens, probs, targets, scaled=scaled)
  sums = weights.sum(axis=1, keepdims=True)
  rows = np.where(sums > 0, weights / np.where(sums > 0, sums, 1), targets)
  return np.array(kept_probs)[:, None] * rows


def breakpoints(tokens, probs, targets, length):
  """Returns where the outcome steps, for each uniform: the draw, the tests.

  Args:
    tokens: `[L]`.
    probs: `[L, V]`.
    targets: `[L + 1, V]`.
    length: the depth of the tree, at least `L`: there is a test for each, and
      one for the empty prefix.
  """
  weights = residuals(tokens, probs, targets)
  draws = np.concatenate([candidates.cumulative(row) for row in weights])
  tests = [[] for _ in range(length + 1)]
  for i, chance in enumerate(passes(tokens, probs, targets)):
    tests[i] = [chance] if i else []
  return [draws, *tests]
