"""One oracle for each rule: its exact distribution, independent of the library.

An oracle is a module with two functions of NumPy float64 arrays:

  rows(draft, target, num_drafts): `[V**n, V]`, the distribution of the token
    for every tuple of candidates, in the order of `np.ndindex`.
  breakpoints(draft, target, tokens, slots, width): where the outcome of the
    coupling steps, for each uniform that it draws, given the active candidates
    `tokens` in `slots` of `width`.

A coupling that has an oracle here is proved exactly (`couplings_test`), on
trees (`verifiers/tree_walk_test`), by samples and against the theory.
"""

from tests.oracles import candidates
from tests.oracles import kseq
from tests.oracles import kseq_distinct
from tests.oracles import maximal
from tests.oracles import multiround
from tests.oracles import otm
from tests.oracles import otm_distinct
from tests.oracles import otm_table

ORACLES = {
  'kseq': kseq,
  'maximal': maximal,
  'multiround': multiround,
  'otm': otm,
  'otm_table': otm_table,
}
# For candidates that are drawn without replacement.
DISTINCT_ORACLES = {
  'kseq_distinct': kseq_distinct,
  'otm_distinct': otm_distinct,
}


def acceptance(name, draft, target, num_drafts, **choices):
  """Returns how likely the token is one of the candidates."""
  distinct = name in DISTINCT_ORACLES
  oracle = (DISTINCT_ORACLES if distinct else ORACLES)[name]
  rows = oracle.rows(draft, target, num_drafts, **choices)
  member = candidates.membership(len(draft), num_drafts)
  probs = candidates.probabilities(draft, num_drafts, distinct=distinct)
  return probs @ (rows * member).sum(axis=1)
