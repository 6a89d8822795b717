"""Drafters: how token trees are proposed."""

from specjax.drafters import autoregressive
from specjax.drafters import none
from specjax.drafters import prompt_lookup
from specjax.drafters import retrieval
from specjax.drafters import suffix

DRAFTERS = {
  'autoregressive': autoregressive.autoregressive,
  'none': none.none,
  'prompt_lookup': prompt_lookup.prompt_lookup,
  'retrieval': retrieval.retrieval,
  'suffix': suffix.suffix,
}
