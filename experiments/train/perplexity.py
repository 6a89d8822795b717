"""Measures a family's held-out bits per byte, by model and domain."""

from experiments.common import log
from experiments.common import prompts as prompts_lib
from specjax.contrib import encoder_decoder_config
from specjax.data import examples as examples_lib
from specjax.evaluation import perplexity
from specjax.models import adapters


def run(config, workdir):
  """Returns a row per model and domain of the eval files."""
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
  """Returns a row per model and domain, with bits per byte of the responses.

  Args:
    workdir: the folder of the log.
    models: the models, by name.
    tokenizer: their tokenizer.
    data_dir: the folder with the eval files.
    row_length: tokens per row, or per prompt of an encoder-decoder.
    target_length: tokens per response of an encoder-decoder; defaults to
      `row_length`.
    domain: the domain of the responses.
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
  outcomes = log.resume(
    workdir, units, bits, 'bits per byte', list(models.values())
  )
  return [
    {'model': name, 'domain': domain, 'bits_per_byte': value}
    for name, by_domain in zip(models, outcomes)
    for domain, value in by_domain.items()
  ]
