"""Language models behind one interface."""

from collections.abc import Callable

from specjax import base
from specjax.models.adapters import encoder_decoder
from specjax.models.adapters import transformer
from specjax.models.loading import Checkpoint
from specjax.models.loading import Head
from specjax.models.loading import load
from specjax.models.loading import load_head
from specjax.models.loading import read_config
from specjax.models.loading import save
from specjax.models.loading import save_head
from specjax.models.markov import markov

__all__ = [
  'MODELS',
  'Checkpoint',
  'Head',
  'encoder_decoder',
  'load',
  'load_head',
  'markov',
  'read_config',
  'save',
  'save_head',
  'transformer',
]

MODELS: dict[str, Callable[..., base.LanguageModel]] = {
  'encoder_decoder': encoder_decoder,
  'markov': markov,
  'transformer': transformer,
}
