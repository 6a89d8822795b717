"""Drafters: how token trees are proposed."""

from collections.abc import Callable

from specjax import base
from specjax.drafters.autoregression import autoregressive
from specjax.drafters.deferred import deferred
from specjax.drafters.dynamic_tree import dynamic_tree
from specjax.drafters.early_exit import early_exit
from specjax.drafters.ensemble import ensemble
from specjax.drafters.feature_head import feature_head
from specjax.drafters.medusa import medusa
from specjax.drafters.none import none
from specjax.drafters.prompt_lookup import prompt_lookup
from specjax.drafters.retrieval import retrieval
from specjax.drafters.stops import unsure
from specjax.drafters.stops import unsure_log
from specjax.drafters.suffix import suffix
from specjax.drafters.windowed import windowed

__all__ = [
  'DRAFTERS',
  'STOPS',
  'autoregressive',
  'deferred',
  'dynamic_tree',
  'early_exit',
  'ensemble',
  'feature_head',
  'medusa',
  'none',
  'prompt_lookup',
  'retrieval',
  'suffix',
  'unsure',
  'unsure_log',
  'windowed',
]

DRAFTERS: dict[str, Callable[..., base.Drafter]] = {
  'autoregressive': autoregressive,
  'deferred': deferred,
  'dynamic_tree': dynamic_tree,
  'early_exit': early_exit,
  'ensemble': ensemble,
  'feature_head': feature_head,
  'medusa': medusa,
  'none': none,
  'prompt_lookup': prompt_lookup,
  'retrieval': retrieval,
  'suffix': suffix,
  'windowed': windowed,
}

# Where an autoregressive drafter hands over to the target.
STOPS: dict[str, Callable[..., base.Stop]] = {
  'unsure': unsure,
  'unsure_log': unsure_log,
}
