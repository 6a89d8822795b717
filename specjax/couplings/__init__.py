"""Couplings: how the next token is picked from candidates."""

from specjax.couplings import greedy
from specjax.couplings import maximal

COUPLINGS = {
  'greedy': greedy.greedy,
  'maximal': maximal.maximal,
}
