"""Verification as optimal transport with membership cost (SpecTr).

Given `k` i.i.d. drafts, a coupling emits one token with the target model's
distribution, and that token should be one of the drafts as often as possible.
This package has the optimal plan as a linear program, the optimal acceptance
rate and an optimal plan in closed form, the acceptance rates of other
couplings, and bounds.
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
