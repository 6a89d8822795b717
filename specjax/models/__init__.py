"""Language models with one interface."""

from collections.abc import Callable

from specjax import base
from specjax.contrib.encoder_decoder import EncoderDecoder
from specjax.models.adapters import Transformer
from specjax.models.loading import Checkpoint
from specjax.models.loading import Head
from specjax.models.loading import load
from specjax.models.loading import load_head
from specjax.models.loading import read_config
from specjax.models.loading import save
from specjax.models.loading import save_head
from specjax.models.markov import Markov
from specjax.models.wrappers import ModelWrapper

__all__ = [
  'MODELS',
  'Checkpoint',
  'EncoderDecoder',
  'Head',
  'Markov',
  'ModelWrapper',
  'Transformer',
  'load',
  'load_head',
  'read_config',
  'save',
  'save_head',
]

MODELS: dict[str, Callable[..., base.LanguageModel]] = {
  'encoder_decoder': EncoderDecoder,
  'markov': Markov,
  'transformer': Transformer,
}
