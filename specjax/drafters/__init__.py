"""Drafters: how token trees are proposed."""

from specjax.drafters import autoregressive
from specjax.drafters import ensemble
from specjax.drafters import none
from specjax.drafters import prompt_lookup
from specjax.drafters import retrieval
from specjax.drafters import suffix
from specjax.drafters import windowed

DRAFTERS = {
  'autoregressive': autoregressive.autoregressive,
  'ensemble': ensemble.ensemble,
  'none': none.none,
  'prompt_lookup': prompt_lookup.prompt_lookup,
  'retrieval': retrieval.retrieval,
  'suffix': suffix.suffix,
  'windowed': windowed.windowed,
}
