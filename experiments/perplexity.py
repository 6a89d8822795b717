"""Held-out bits per byte of a family, by model and domain."""

from experiments import results
from specjax import families
from specjax.data import examples as examples_lib
from specjax.evaluation import perplexity


def run(config, workdir):
  """Writes a row for every model and domain of the eval files."""
  family = families.load(config.family)
  models = {'target': family.target, **family.drafters}
  results.write(
    workdir,
    rows(models, family.tokenizer, config.data_dir, config.row_length),
  )


def rows(models, tokenizer, data_dir, row_length):
  """Returns rows of model, domain and bits per byte of the responses."""
  examples = examples_lib.read_split(data_dir, 'eval')
  return [
    {'model': name, 'domain': domain, 'bits_per_byte': bits}
    for name, model in models.items()
    for domain, bits in perplexity.bits_per_byte(
      model.functions, model.params, tokenizer, examples, row_length
    ).items()
  ]
