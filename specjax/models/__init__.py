"""Language models behind one interface."""

from specjax.models import adapters
from specjax.models import markov

MODELS = {
  'encoder_decoder': adapters.encoder_decoder,
  'markov': markov.markov,
  'transformer': adapters.transformer,
}
