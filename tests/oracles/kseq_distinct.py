"""k-Seq for candidates without replacement: all draws behind them are tested.

Tokens are drawn again and again until the last candidate, the `n`-th different
token, has been tested; repeated draws are tested as well.
"""

import numpy as np

from tests.oracles import candidates


def rows(draft, target, num_drafts, rho):
  """Returns `[V**n, V]` the token's distribution given all candidates.

  Args:
    draft: `[V]` of the first candidate.
    target: `[V]`.
    num_drafts: `n`.
    rho: the division factor.
  """
  covered = np.minimum(draft, target / rho)
  kept_probs = _accepted_probs(draft, target, num_drafts, rho)
  chances = candidates.probabilities(draft, num_drafts, distinct=True)
  accepted = chances @ kept_probs.sum(axis=1)
  overlap = covered.sum()
  taken_mass = covered * (accepted / overlap if overlap else 0.0)
  return candidates.completed(
    kept_probs, np.maximum(target - taken_mass, 0), target
  )


def accepted(draft, target, num_drafts, rho):
  """Returns the probability that a draw passes its test."""
  chances = candidates.probabilities(draft, num_drafts, distinct=True)
  return chances @ _accepted_probs(draft, target, num_drafts, rho).sum(axis=1)


def _accepted_probs(draft, target, num_drafts, rho):
  """Returns `[V**n, V]`, how likely a draw of each token passes."""
  pass_probs = candidates.passing(rho * draft, target)
  covered = np.minimum(draft, target / rho)
  tokens = candidates.tuples(len(draft), num_drafts)
  kept_probs, index = (
    np.zeros((len(tokens), len(draft))),
    np.arange(len(tokens)),
  )
  reached = np.ones(len(tokens))
  for i, column in enumerate(tokens.T):
    kept_probs[index, column] += reached * pass_probs[column]
    reached = reached * (1 - pass_probs[column])
    if i + 1 < num_drafts:
      seen_covered = covered[tokens[:, : i + 1]]
      repeat_prob = _repeat_prob(draft, seen_covered, tokens[:, : i + 1])
      shares = seen_covered / np.maximum(
        seen_covered.sum(axis=1, keepdims=True), 1e-300
      )
      for j in range(i + 1):
        kept_probs[index, tokens[:, j]] += reached * repeat_prob * shares[:, j]
      reached = reached * (1 - repeat_prob)
  return kept_probs


def _repeat_prob(draft, seen_covered, tokens):
  """Returns `[m]`, how likely a repeat passes before a new token is drawn."""
  repeat_mass = seen_covered.sum(axis=1)
  new = np.maximum(1 - draft[tokens].sum(axis=1), 0)
  return repeat_mass / np.maximum(repeat_mass + new, 1e-300)


def breakpoints(draft, target, tokens, slots, width, rho):
  """Returns where the outcome steps, for each uniform.

  These are the draw's, and for each candidate one for its test, one for
  repeated draws before the next candidate, and one for which of them passed.
  The library integrates how often a draw passes, right to a few 1e-6, by which
  the breakpoints of the draw are blurred.
  """
  del slots
  num = len(tokens)
  steps = [[] for _ in range(1 + 3 * width)]
  if not num:
    return [candidates.cumulative(target), *steps[1:]]
  covered = np.minimum(draft, target / rho)
  pass_probs = accepted(draft, target, num, rho)
  draws = candidates.cumulative(target - pass_probs / covered.sum() * covered)
  blur = 4e-6 / max(1 - pass_probs, 1e-9)
  steps[0] = np.concatenate([draws - blur, draws + blur])
  for i, token in enumerate(tokens):
    prefix = np.array(tokens[: i + 1])[None]
    prefix_covered = covered[prefix]
    steps[1 + i] = [target[token] / (rho * draft[token])]
    if i + 1 < num:
      steps[1 + width + i] = _repeat_prob(draft, prefix_covered, prefix)
      steps[1 + 2 * width + i] = candidates.cumulative(prefix_covered[0])
  return steps
