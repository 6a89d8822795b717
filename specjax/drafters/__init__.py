"""Drafters: how token trees are proposed."""

from collections.abc import Callable

from specjax import base
from specjax.drafters.autoregression import autoregressive
from specjax.drafters.ensemble import ensemble
from specjax.drafters.none import none
from specjax.drafters.prompt_lookup import prompt_lookup
from specjax.drafters.retrieval import retrieval
from specjax.drafters.suffix import suffix
from specjax.drafters.windowed import windowed

__all__ = [
  'DRAFTERS',
  'autoregressive',
  'ensemble',
  'none',
  'prompt_lookup',
  'retrieval',
  'suffix',
  'windowed',
]

DRAFTERS: dict[str, Callable[..., base.Drafter]] = {
  'autoregressive': autoregressive,
  'ensemble': ensemble,
  'none': none,
  'prompt_lookup': prompt_lookup,
  'retrieval': retrieval,
  'suffix': suffix,
  'windowed': windowed,
}
