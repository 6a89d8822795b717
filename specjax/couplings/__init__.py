"""Couplings: how the next token is picked from candidates."""

from collections.abc import Callable

from specjax import base
from specjax.couplings.greedy import Greedy
from specjax.couplings.kseq import KSeq
from specjax.couplings.kseq_distinct import KSeqDistinct
from specjax.couplings.maximal import Maximal
from specjax.couplings.multiround import Multiround
from specjax.couplings.otm import OTM
from specjax.couplings.otm_distinct import OTMDistinct
from specjax.couplings.otm_table import OTMTable

__all__ = [
  'COUPLINGS',
  'DISTINCT_COUPLINGS',
  'Greedy',
  'KSeq',
  'KSeqDistinct',
  'Maximal',
  'Multiround',
  'OTM',
  'OTMDistinct',
  'OTMTable',
]

COUPLINGS: dict[str, Callable[..., base.Coupling]] = {
  'greedy': Greedy,
  'kseq': KSeq,
  'maximal': Maximal,
  'multiround': Multiround,
  'otm': OTM,
  'otm_table': OTMTable,
}

# For candidates that are drawn without replacement.
DISTINCT_COUPLINGS: dict[str, Callable[..., base.Coupling]] = {
  'kseq_distinct': KSeqDistinct,
  'otm_distinct': OTMDistinct,
}
