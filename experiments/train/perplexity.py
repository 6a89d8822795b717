"""Held-out bits per byte of a family, by model and domain."""

from experiments.common import log
from experiments.common import prompts as prompts_lib
from specjax.contrib import encoder_decoder_config
from specjax.data import examples as examples_lib
from specjax.evaluation import perplexity
from specjax.models import adapters


def run(config, workdir):
  """Returns a row for every model and domain of the eval files."""
  family = prompts_lib.load_family(config)
  models = family.models
  return rows(
    workdir, models, family.tokenizer, config.data_dir, config.row_length
  )


def rows(
  workdir,
  models,
  tokenizer,
  data_dir,
  row_length,
  target_length=None,
  domain='all',
):
  """Returns model, domain and bits per byte of the responses, a row for each.

  An encoder-decoder has room for `target_length` tokens of a response; for
  `row_length`, as of a prompt, by default.
  """
  examples = examples_lib.read_split(data_dir, 'eval')
  examples = examples_lib.select_domain(examples, domain)

  def bits(model):
    pairs = isinstance(
      model.config, encoder_decoder_config.EncoderDecoderConfig
    )
    return perplexity.bits_per_byte(
      adapters.teacher_forced(model.config),
      model.params,
      tokenizer,
      examples,
      row_length,
      target_length=(target_length or row_length) if pairs else None,
    )

  shared = {'data_dir': data_dir, 'domain': domain}
  shared['lengths'] = [row_length, target_length]
  units = [{'bits per byte': name, **shared} for name in models]
  given = list(models.values())
  outcomes = log.resume(workdir, units, bits, 'bits per byte', given)
  return [
    {'model': name, 'domain': domain, 'bits_per_byte': value}
    for name, by_domain in zip(models, outcomes)
    for domain, value in by_domain.items()
  ]
