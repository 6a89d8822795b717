"""Language models behind one interface."""

from collections.abc import Callable

from specjax import base
from specjax.models.adapters import encoder_decoder
from specjax.models.adapters import transformer
from specjax.models.loading import Checkpoint
from specjax.models.loading import load
from specjax.models.loading import save
from specjax.models.markov import markov

__all__ = [
  'MODELS',
  'Checkpoint',
  'encoder_decoder',
  'load',
  'markov',
  'save',
  'transformer',
]

MODELS: dict[str, Callable[..., base.LanguageModel]] = {
  'encoder_decoder': encoder_decoder,
  'markov': markov,
  'transformer': transformer,
}
