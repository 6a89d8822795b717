"""k-Seq: SpecTr, Algorithm 2. The paper's `p` is the draft, `q` the target."""

import numpy as np

from tests.oracles import candidates


def factor(draft, target, num_drafts, steps=10):
  """Returns the division factor, by bisection from above (Lemma 4).

  Args:
    draft: `[V]`.
    target: `[V]`.
    num_drafts: `k`.
    steps: bisections; the coupling makes 10, and 60 find the root.
  """
  low, high = 1.0, float(max(num_drafts, 1))
  for _ in range(steps):
    middle = (low + high) / 2
    overlap = np.minimum(draft, target / middle).sum()
    if 1 - (1 - overlap) ** num_drafts <= middle * overlap:
      high = middle
    else:
      low = middle
  return high


def _residual(draft, target, num_drafts, rho):
  """Returns the residual `[V]` and the probability that no test passes."""
  covered = np.minimum(draft, target / rho)
  overlap = covered.sum()
  miss_prob = (1 - overlap) ** num_drafts
  share = (1 - miss_prob) / overlap if overlap else 0.0
  return np.maximum(target - share * covered, 0), miss_prob


def rows(draft, target, num_drafts, rho=None):
  """Returns `[V**n, V]` the token's distribution given all candidates.

  Args:
    draft: `[V]`.
    target: `[V]`.
    num_drafts: `n`.
    rho: the division factor; by default that of `factor`.
  """
  rho = rho or factor(draft, target, num_drafts)
  tests = [candidates.passing(rho * draft, target)] * num_drafts
  weights, _ = _residual(draft, target, num_drafts, rho)
  return candidates.in_sequence(tests, weights, target)


def breakpoints(draft, target, tokens, slots, width, rho=None):
  """Returns where the outcome steps, for each uniform: the draw, the tests.

  The residual is a difference, of which float32 keeps few digits where it is
  small: there, the breakpoints of the draw are blurred.
  """
  num = len(tokens)
  steps = [[] for _ in range(1 + width)]
  if not num:
    return [candidates.cumulative(target), *steps[1:]]
  rho = rho or factor(draft, target, num)
  weights, miss_prob = _residual(draft, target, num, rho)
  draws = candidates.cumulative(weights)
  blur = 3e-7 / max(miss_prob, 1e-9)
  steps[0] = np.concatenate([draws - blur, draws + blur])
  for token, slot in zip(tokens, slots):
    steps[1 + slot] = [target[token] / (rho * draft[token])]
  return steps
