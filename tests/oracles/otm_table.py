"""The optimal transport with membership cost: SpecTr, linear program (4)."""

import numpy as np
from scipy import optimize
from scipy import sparse

from tests.oracles import candidates


def best(draft, target, num_drafts, *, distinct=False):
  """Returns the optimal acceptance and a transport plan, `[V**n, V]`.

  Args:
    draft: `[V]`.
    target: `[V]`.
    num_drafts: `n`.
    distinct: candidates are drawn without replacement.
  """
  mass = candidates.probabilities(draft, num_drafts, distinct=distinct)
  mass, target = mass / mass.sum(), target / target.sum()
  # Only mass on the candidates counts, so this is a maximum flow.
  row, token = np.nonzero(candidates.membership(len(draft), num_drafts))
  index = np.arange(len(row))
  ends = np.concatenate([row, len(mass) + token])
  solution = optimize.linprog(
    -np.ones(len(row)),
    A_ub=sparse.csr_array((np.ones(len(ends)), (ends, np.tile(index, 2)))),
    b_ub=np.append(mass, target),
    method='highs',
  )
  assert solution.success, solution.message
  plan = np.zeros((len(mass), len(target)))
  plan[row, token] = solution.x
  # The remaining mass of both sides may be coupled in any way.
  row_slack = np.maximum(mass - plan.sum(axis=1), 0)
  column_slack = np.maximum(target - plan.sum(axis=0), 0)
  if row_slack.sum() > 0:
    plan += np.outer(row_slack, column_slack) / row_slack.sum()
  return -solution.fun, plan


def rows(draft, target, num_drafts, plan=None):
  """Returns `[V**n, V]` the token's distribution given all candidates.

  Args:
    draft: `[V]`.
    target: `[V]`.
    num_drafts: `n`.
    plan: `[V**n, V]`; several may be optimal.
  """
  plan = best(draft, target, num_drafts)[1] if plan is None else plan
  sums = plan.sum(axis=1, keepdims=True)
  return np.where(sums > 0, plan / np.where(sums > 0, sums, 1), target)


def breakpoints(draft, target, tokens, slots, width, plan=None):
  """Returns where the outcome steps, for the only uniform: the draw."""
  del slots, width
  if not len(tokens):
    return [candidates.cumulative(target)]
  table = rows(draft, target, len(tokens), plan)
  index = np.ravel_multi_index(tuple(tokens), (len(draft),) * len(tokens))
  return [candidates.cumulative(table[index])]
