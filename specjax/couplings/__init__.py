"""Couplings: how the next token is picked from candidates."""

from specjax import base
from specjax.couplings.greedy import greedy
from specjax.couplings.kseq import kseq
from specjax.couplings.kseq_distinct import kseq_distinct
from specjax.couplings.maximal import maximal
from specjax.couplings.multiround import multiround
from specjax.couplings.otm import otm
from specjax.couplings.otm_distinct import otm_distinct
from specjax.couplings.otm_table import otm_table

__all__ = [
  'COUPLINGS',
  'DISTINCT_COUPLINGS',
  'greedy',
  'kseq',
  'kseq_distinct',
  'maximal',
  'multiround',
  'otm',
  'otm_distinct',
  'otm_table',
]

COUPLINGS: dict[str, base.Coupling] = {
  'greedy': greedy,
  'kseq': kseq,
  'maximal': maximal,
  'multiround': multiround,
  'otm': otm,
  'otm_table': otm_table,
}

# Of candidates that are drawn without replacement.
DISTINCT_COUPLINGS: dict[str, base.Coupling] = {
  'kseq_distinct': kseq_distinct,
  'otm_distinct': otm_distinct,
}
