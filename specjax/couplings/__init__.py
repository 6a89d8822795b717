"""Couplings: how the next token is picked from candidates."""

from specjax.couplings import greedy
from specjax.couplings import kseq
from specjax.couplings import maximal
from specjax.couplings import multiround
from specjax.couplings import otm
from specjax.couplings import otm_table

COUPLINGS = {
  'greedy': greedy.greedy,
  'kseq': kseq.kseq,
  'maximal': maximal.maximal,
  'multiround': multiround.multiround,
  'otm': otm.otm,
  'otm_table': otm_table.otm_table,
}
