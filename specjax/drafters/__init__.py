"""Drafters: how token trees are proposed."""

from specjax.drafters import autoregressive
from specjax.drafters import none

DRAFTERS = {
  'autoregressive': autoregressive.autoregressive,
  'none': none.none,
}
