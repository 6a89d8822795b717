"""The optimal transport in closed form: the candidate of highest priority.

Tokens are sorted by `target / draft`, and each has the interval of ranks that
is as long as its draft mass. Of `n` ranks the highest wins, so a rank `s` wins
with density `n s**(n - 1)`. The proposal is the best one that ranks can make:
no set of tokens is proposed less often than all candidates are in it. Tokens
that win too seldom in their interval swap ranks with those that win too often.
"""

from typing import NamedTuple

import numpy as np

from tests.oracles import candidates


class Plan(NamedTuple):
  """How ranks are drawn; `M` atoms, which are tokens in a small vocabulary."""

  atom: np.ndarray  # [V]
  fraction: np.ndarray  # [V] how likely a token belongs to the next atom
  win_density: np.ndarray  # [M] mean density of a win in an atom's interval
  proposal_ratio: np.ndarray  # [M] the same over the ranks that it draws
  deficit_cdf: np.ndarray  # [M] cumulative mass of ranks that atoms take ...
  surplus_cdf: np.ndarray  # [M] ... and that they give away


def make_plan(draft, target, counts):
  """Returns the plan for a number of i.i.d. candidates.

  Args:
    draft: `[V]`.
    target: `[V]`.
    counts: the number of candidates; or `[J]` the probabilities of 1, 2, ... J.
  """
  counts = np.eye(counts)[-1] if np.ndim(counts) == 0 else np.array(counts)
  won = lambda mass: sum(
    count * mass ** (i + 1) for i, count in enumerate(counts)
  )
  ratio = np.divide(
    target, draft, out=np.full(len(draft), np.inf), where=draft > 0
  )
  ratio = np.minimum(ratio, len(counts))
  order = np.argsort(ratio, kind='stable')
  mass, ratio = draft[order], ratio[order]
  mass = mass / max(mass.sum(), 1e-300)
  cumulative_mass = np.cumsum(mass)
  win_density = np.diff(won(cumulative_mass), prepend=0.0) / np.maximum(
    mass, 1e-300
  )
  total = counts.sum()
  cuts = np.cumsum(mass * ratio) + total - won(cumulative_mass)
  num_cut = np.argmin(cuts) + 1 if cuts.min() < total else 0
  inside = won(cumulative_mass[num_cut - 1]) if num_cut else 0.0
  proposal_ratio = np.append(
    _raised(mass[:num_cut], ratio[:num_cut], inside),
    -_raised(mass[num_cut:], -ratio[num_cut:], inside - total),
  )
  shift = mass * (proposal_ratio - win_density)
  return Plan(
    atom=np.argsort(order),
    fraction=np.zeros(len(draft)),
    win_density=win_density,
    proposal_ratio=proposal_ratio,
    deficit_cdf=np.cumsum(np.maximum(shift, 0)),
    surplus_cdf=np.cumsum(np.maximum(-shift, 0)),
  )


def _raised(mass, ratio, total):
  """`max(ratio, floor)` with the floor that makes the mass `total`."""
  if not len(mass) or mass @ ratio >= total:
    return ratio
  low, high = ratio.min(), max(ratio.max(), 0.0) + 1
  high = max(high, total / max(mass.sum(), 1e-300))
  for _ in range(80):
    floor = (low + high) / 2
    if mass @ np.maximum(ratio, floor) < total:
      low = floor
    else:
      high = floor
  return np.maximum(ratio, high)


def acceptance(draft, target, num_drafts):
  """Returns the best acceptance: the minimum cut, over prefixes of ratios."""
  with np.errstate(divide='ignore', invalid='ignore'):
    order = np.argsort(np.where(draft > 0, target / draft, np.inf))
  return best_cut(draft, target, num_drafts, order)


def best_cut(draft, target, num_drafts, order):
  """Returns the minimum over the prefixes of an order of tokens."""
  drafts, targets = np.cumsum(draft[order]), np.cumsum(target[order])
  slack = targets / targets[-1] - (drafts / drafts[-1]) ** num_drafts
  return 1 + min(slack.min(), 0.0)


def _interval(plan, atom):
  """Returns the start and end of an atom's share, and the other kind's sums."""
  lacks = plan.proposal_ratio[atom] > plan.win_density[atom]
  sums, other_sums = plan.deficit_cdf, plan.surplus_cdf
  sums, other_sums = (sums, other_sums) if lacks else (other_sums, sums)
  return sums[atom - 1] if atom else 0.0, sums[atom], other_sums


def _swaps(plan, atom):
  """`[M]` how likely an atom takes the rank of a partner."""
  distance = np.abs(plan.win_density - plan.win_density[atom])
  short = abs(plan.proposal_ratio[atom] - plan.win_density[atom])
  return np.minimum(short / np.where(distance > 0, distance, np.inf), 1)


def rank_probs(plan, token):
  """Returns `[M]` how likely a token draws a rank in each atom's interval."""
  probs, fraction = np.zeros(len(plan.win_density)), plan.fraction[token]
  first_atom = plan.atom[token]
  for atom, share in (
    (first_atom, 1 - fraction),
    (min(first_atom + 1, len(probs) - 1), fraction),
  ):
    start, end, other_sums = _interval(plan, atom)
    moved = np.zeros(len(probs))
    if end > start and share:
      edges = np.clip(other_sums, start, end)
      moved = np.diff(edges, prepend=start) / (end - start)
      moved = moved * _swaps(plan, atom)
    probs += share * moved
    probs[atom] += share * (1 - moved.sum())
  return probs


def proposal(plan, draft):
  """Returns `[V]` the distribution of the candidate of highest priority."""
  following = np.minimum(plan.atom + 1, len(plan.proposal_ratio) - 1)
  low, high = plan.proposal_ratio[plan.atom], plan.proposal_ratio[following]
  return draft * (low + plan.fraction * (high - low))


def winners(ranks, tokens):
  """Returns `[m, n]` how likely each candidate has the highest priority.

  Args:
    ranks: `[V, M]` of all tokens.
    tokens: `[m, n]` tuples of candidates; of equal ranks the first one wins.
  """
  mass_below = np.cumsum(ranks, axis=1) - ranks
  won = []
  for i, column in enumerate(tokens.T):
    probs = ranks[column]
    for j, other_column in enumerate(tokens.T):
      if j != i:
        probs = (
          probs * (mass_below + ranks if j > i else mass_below)[other_column]
        )
    won.append(probs.sum(axis=1))
  return np.stack(won, axis=1)


def proposed(draft, target, num_drafts, plan=None):
  """Returns `[V**n, V]` what is proposed of all candidates, and `[V]` ever."""
  plan = plan or make_plan(draft, target, num_drafts)
  ranks = np.stack([rank_probs(plan, token) for token in range(len(draft))])
  tokens = candidates.tuples(len(draft), num_drafts)
  probs = np.zeros((len(tokens), len(draft)))
  for column, won in zip(tokens.T, winners(ranks, tokens).T):
    np.add.at(probs, (np.arange(len(tokens)), column), won)
  return probs, proposal(plan, draft)


def rows(draft, target, num_drafts, plan=None):
  """Returns `[V**n, V]` the token's distribution given all candidates.

  Args:
    draft: `[V]`.
    target: `[V]`.
    num_drafts: `n`.
    plan: A plan to use instead, such as one with fewer atoms than tokens.
  """
  proposal_probs, probs = proposed(draft, target, num_drafts, plan)
  accepted_probs = proposal_probs * candidates.passing(probs, target)
  return candidates.completed(
    accepted_probs, np.maximum(target - probs, 0), target
  )


def breakpoints(draft, target, tokens, slots, width, plan=None):
  """Returns where the outcome steps, for each uniform.

  These are the test's, the draw's, and for each candidate one for its atom,
  one for its partner and one for the swap.
  """
  steps = [[] for _ in range(2 + 3 * width)]
  if not len(tokens):
    steps[1] = candidates.cumulative(target)
    return steps
  plan = plan or make_plan(draft, target, len(tokens))
  probs = proposal(plan, draft)
  steps[0] = target[tokens] / np.maximum(probs[tokens], 1e-300)
  steps[1] = candidates.cumulative(target - probs)
  for token, slot in zip(tokens, slots):
    for i, points in enumerate(rank_breakpoints(plan, token)):
      steps[2 + i * width + slot] = points
  return steps


def rank_breakpoints(plan, token):
  """Returns the breakpoints of a candidate's atom, partner and swap.

  In float32, a partner is known no better than the sums that it is among, and a
  swap than the wins whose differences it depends on: where these are small, the
  breakpoints are blurred.
  """
  partners, swaps = [], []
  last_atom = len(plan.win_density) - 1
  atoms = {plan.atom[token]}
  if plan.fraction[token]:
    atoms.add(min(plan.atom[token] + 1, last_atom))
  for atom in atoms:
    start, end, other_sums = _interval(plan, atom)
    if end <= start:
      continue
    inside = other_sums[(other_sums > start) & (other_sums < end)]
    edges = np.concatenate([[start], inside, [end]])
    partners.extend(
      _blurred((edges - start) / (end - start), 1e-7 / (end - start))
    )
    first_partner, last_partner = np.searchsorted(other_sums, [start, end])
    partner_atoms = np.arange(first_partner, min(last_partner, last_atom) + 1)
    distance = np.abs(plan.win_density - plan.win_density[atom])[partner_atoms]
    error = 1e-7 * plan.win_density.max() / np.where(distance > 0, distance, 1)
    swaps.extend(_blurred(_swaps(plan, atom)[partner_atoms], error))
  return [plan.fraction[token]], partners, swaps


def _blurred(steps, error):
  """Steps, or what surrounds those with an error that is not small."""
  error = np.where(error > 1e-6, error, 0)
  return np.concatenate([steps - error, steps + error])
