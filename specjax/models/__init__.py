"""Language models behind one interface."""

from specjax.models import adapters
from specjax.models import markov

MODELS = {
  'markov': markov.markov,
  'transformer': adapters.transformer,
}
