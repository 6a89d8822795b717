"""Verification as optimal transport with membership cost (SpecTr).

Given `k` i.i.d. drafts, output one token with the target's distribution so that
it is one of the drafts as often as possible: the best plan by linear program,
its value and a plan in closed form, what other rules reach, and bounds.
"""

from specjax.transport.acceptance import kseq_acceptance
from specjax.transport.acceptance import multiround_acceptance
from specjax.transport.acceptance import optimal_acceptance
from specjax.transport.acceptance import otm_acceptance
from specjax.transport.bounds import acceptance_bounds
from specjax.transport.bounds import union_bound
from specjax.transport.linear_program import Plan
from specjax.transport.linear_program import solve_linear_program

__all__ = [
  'Plan',
  'acceptance_bounds',
  'kseq_acceptance',
  'multiround_acceptance',
  'optimal_acceptance',
  'otm_acceptance',
  'solve_linear_program',
  'union_bound',
]
