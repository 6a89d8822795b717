"""Drafters: how token trees are proposed."""

from collections.abc import Callable

from specjax import base
from specjax.drafters.autoregressive import Autoregressive
from specjax.drafters.block_head import BlockHeadDrafter
from specjax.drafters.deferred import Deferred
from specjax.drafters.dynamic_tree import DynamicTree
from specjax.drafters.early_exit import EarlyExit
from specjax.drafters.ensemble import Ensemble
from specjax.drafters.feature_head import FeatureHeadDrafter
from specjax.drafters.lookahead import Lookahead
from specjax.drafters.lookup_or import LookupOr
from specjax.drafters.medusa import Medusa
from specjax.drafters.no_drafter import NoDrafter
from specjax.drafters.parallel import Parallel
from specjax.drafters.prompt_lookup import PromptLookup
from specjax.drafters.rescored import Rescored
from specjax.drafters.retrieval import Retrieval
from specjax.drafters.stateless import StatelessDrafter
from specjax.drafters.stops import Length
from specjax.drafters.stops import Margin
from specjax.drafters.stops import PathProbability
from specjax.drafters.stops import Unsure
from specjax.drafters.stops import UnsureLog
from specjax.drafters.suffix import Suffix
from specjax.drafters.token_recycling import TokenRecycling
from specjax.drafters.windowed import Windowed

__all__ = [
  'Autoregressive',
  'BlockHeadDrafter',
  'DRAFTERS',
  'Deferred',
  'DynamicTree',
  'EarlyExit',
  'Ensemble',
  'FeatureHeadDrafter',
  'Length',
  'Lookahead',
  'LookupOr',
  'Margin',
  'Medusa',
  'NoDrafter',
  'Parallel',
  'PathProbability',
  'PromptLookup',
  'Rescored',
  'Retrieval',
  'STOPS',
  'StatelessDrafter',
  'Suffix',
  'TokenRecycling',
  'Unsure',
  'UnsureLog',
  'Windowed',
]

DRAFTERS: dict[str, Callable[..., base.Drafter]] = {
  'autoregressive': Autoregressive,
  'block_head': BlockHeadDrafter,
  'deferred': Deferred,
  'dynamic_tree': DynamicTree,
  'early_exit': EarlyExit,
  'ensemble': Ensemble,
  'feature_head': FeatureHeadDrafter,
  'lookahead': Lookahead,
  'lookup_or': LookupOr,
  'medusa': Medusa,
  'none': NoDrafter,
  'parallel': Parallel,
  'prompt_lookup': PromptLookup,
  'rescored': Rescored,
  'retrieval': Retrieval,
  'suffix': Suffix,
  'token_recycling': TokenRecycling,
  'windowed': Windowed,
}

# Rules for where a drafter leaves the next token to the target.
STOPS: dict[str, Callable[..., base.StopRule]] = {
  'length': Length,
  'margin': Margin,
  'path_probability': PathProbability,
  'unsure': Unsure,
  'unsure_log': UnsureLog,
}
