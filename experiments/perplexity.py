"""Held-out bits per byte of a family, by model and domain."""

from experiments import results
from specjax import families
from specjax.data import examples as examples_lib
from specjax.evaluation import perplexity
from specjax.models import adapters
from specjax.models import config as config_lib


def run(config, workdir):
  """Writes a row for every model and domain of the eval files."""
  family = families.load(config.family)
  models = {'target': family.target, **family.drafters}
  results.write(
    workdir,
    rows(models, family.tokenizer, config.data_dir, config.row_length),
  )


def rows(
  models, tokenizer, data_dir, row_length, target_length=None, domain='all'
):
  """Returns rows of model, domain and bits per byte of the responses.

  `target_length` is an encoder-decoder's room for a response.
  """
  examples = examples_lib.read_split(data_dir, 'eval')
  examples = examples_lib.of_domain(examples, domain)
  table = []
  for name, model in models.items():
    pairs = isinstance(model.config, config_lib.EncoderDecoderConfig)
    bits_by_domain = perplexity.bits_per_byte(
      adapters.teacher_forced(model.config),
      model.params,
      tokenizer,
      examples,
      row_length,
      target_length=(target_length or row_length) if pairs else None,
    )
    table += [
      {'model': name, 'domain': each, 'bits_per_byte': bits}
      for each, bits in bits_by_domain.items()
    ]
  return table
