"""The optimal transport for candidates without replacement.

Of the draws behind the candidates, some are marked, and marked draws are
i.i.d.: the one of highest priority is proposed. Draws count that are marked or
of a new token, and of each token the first draw that is not marked; there are
as many of them as candidates.
"""

import numpy as np

from tests.oracles import candidates
from tests.oracles import otm


def counts(draft, covered, num_drafts):
  """Returns `[n]` how likely 1, 2, ... of the draws that count are marked.

  Args:
    draft: `[V]` of the first candidate.
    covered: `[V]` how likely a draw is of each token, and marked.
    num_drafts: `n`.
  """
  marked, unmarked = covered.sum(), draft - covered
  count_probs = np.zeros(num_drafts + 1)

  def draw(unmarked_tokens, num_marked, chance):
    if len(unmarked_tokens) + num_marked == num_drafts:
      count_probs[num_marked] += chance
      return
    new = [i for i in range(len(draft)) if i not in unmarked_tokens]
    total = marked + unmarked[new].sum()
    draw(unmarked_tokens, num_marked + 1, chance * marked / total)
    for token in new:
      next_chance = chance * unmarked[token] / total
      if next_chance > 0:
        draw(unmarked_tokens | {token}, num_marked, next_chance)

  draw(frozenset(), 0, 1.0)
  return count_probs[1:]


def _steps(draft, covered, tokens, num_seen, unmarked):
  """Returns `[2n]`, the probability of each candidate as the next draw.

  The first `n` entries are marked draws, the others are unmarked ones.
  """
  weights = np.zeros((2, len(tokens)))
  for i, token in enumerate(tokens[: num_seen + 1]):
    mark_probs = np.array([covered[token], draft[token] - covered[token]])
    if i < num_seen:
      weights[:, i] = mark_probs * [1, i not in unmarked]
    else:
      new = max(1 - draft[list(tokens[:num_seen])].sum(), 0.0)
      weights[:, i] = new * mark_probs / draft[token]
  return weights.ravel() / weights.sum()


def _histories(draft, covered, tokens):
  """Returns `(indices, marked, chance)` for each history of draws."""
  size = len(tokens)
  histories = [((), (), 1.0)]
  for _ in range(size):
    longer = []
    for indices, marked, chance in histories:
      unmarked = {i for i, mark in zip(indices, marked) if not mark}
      num_seen = max(indices, default=-1) + 1
      weights = _steps(draft, covered, tokens, num_seen, unmarked)
      for pick in np.flatnonzero(weights):
        longer.append(
          (
            (*indices, int(pick) % size),
            (*marked, bool(pick < size)),
            chance * weights[pick],
          )
        )
    histories = longer
  return histories


def _make_plan(draft, target, covered, num_drafts):
  """Returns the plan for marked draws, and its proposal `[V]`."""
  total = covered.sum()
  marked = covered / total if total else covered
  plan = otm.make_plan(marked, target, counts(draft, covered, num_drafts))
  return plan, otm.proposal(plan, marked)


def rows(draft, target, num_drafts, covered):
  """Returns `[V**n, V]` the token's distribution given all candidates.

  Args:
    draft: `[V]` of the first candidate.
    target: `[V]`.
    num_drafts: `n`.
    covered: `[V]` how likely a draw is of each token, and marked.
  """
  plan, probs = _make_plan(draft, target, covered, num_drafts)
  ranks = np.stack([otm.rank_probs(plan, token) for token in range(len(draft))])
  pass_probs = candidates.passing(probs, target)
  every = candidates.tuples(len(draft), num_drafts)
  chances = candidates.probabilities(draft, num_drafts, distinct=True)
  accepted_probs = np.zeros((len(every), len(draft)))
  for row in np.flatnonzero(chances):
    for indices, marked, chance in _histories(draft, covered, every[row]):
      marked_tokens = every[row][np.array(indices)[np.array(marked, bool)]]
      if len(marked_tokens):
        won = otm.winners(ranks, marked_tokens[None])[0]
        np.add.at(
          accepted_probs[row],
          marked_tokens,
          chance * won * pass_probs[marked_tokens],
        )
  return candidates.completed(
    accepted_probs, np.maximum(target - probs, 0), target
  )


def breakpoints(draft, target, tokens, slots, width, covered):
  """Returns where the outcome steps, for each uniform.

  These are the test's, the draw's, for each draw that counts those of its
  priority, and one for what is drawn.
  """
  del slots
  num = len(tokens)
  steps = [[] for _ in range(2 + 4 * width)]
  if not num:
    steps[1] = candidates.cumulative(target)
    return steps
  plan, probs = _make_plan(draft, target, covered, num)
  steps[0] = target[tokens] / np.maximum(probs[tokens], 1e-300)
  steps[1] = candidates.cumulative(target - probs)
  for i in range(num):
    for token in tokens[: i + 1]:
      for j, points in enumerate(otm.rank_breakpoints(plan, token)):
        steps[2 + j * width + i].extend(points)
  for indices, marked, _ in _prefixes(draft, covered, tokens):
    unmarked = {i for i, mark in zip(indices, marked) if not mark}
    num_seen = max(indices, default=-1) + 1
    weights = _steps(draft, covered, tokens, num_seen, unmarked)
    axis = 2 + 3 * width + len(indices)
    steps[axis].extend(candidates.cumulative(weights))
  return steps


def _prefixes(draft, covered, tokens):
  """Returns all proper prefixes of the histories."""
  every = {
    (indices[:i], marked[:i])
    for indices, marked, _ in _histories(draft, covered, tokens)
    for i in range(len(tokens))
  }
  return [(*prefix, None) for prefix in every]
