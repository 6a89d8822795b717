"""Held-out bits per byte of a family, by model and domain."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from experiments.common import log
from specjax import families
from specjax.data import examples as examples_lib
from specjax.evaluation import perplexity
from specjax.models import adapters
from specjax.models import config as config_lib


def run(config, workdir):
  """Returns a row for every model and domain of the eval files."""
  family = families.load(config.family)
  models = {'target': family.target, **family.drafters}
  return rows(
    workdir, models, family.tokenizer, config.data_dir, config.row_length
  )


def rows(
  workdir: Any,
  models: Mapping[str, families.Model],
  tokenizer: Any,
  data_dir: str,
  row_length: int,
  *,
  target_length: int | None = None,
  domain: str | Sequence[str] = 'all',
) -> list[dict[str, Any]]:
  """Returns model, domain and bits per byte of the responses, a row for each.

  Args:
    workdir: of the log.
    models: by name.
    tokenizer: of all of them.
    data_dir: of the eval files.
    row_length: tokens of a row.
    target_length: an encoder-decoder's room for a response; as much, by
      default.
    domain: as in `examples.of_domain`.
  """
  examples = examples_lib.of_domain(
    examples_lib.read_split(data_dir, 'eval'), domain
  )

  def bits(unit):
    model = models[unit['bits per byte']]
    pairs = isinstance(model.config, config_lib.EncoderDecoderConfig)
    return perplexity.bits_per_byte(
      adapters.teacher_forced(model.config),
      model.params,
      tokenizer,
      examples,
      row_length,
      target_length=(target_length or row_length) if pairs else None,
    )

  units = [
    {
      'bits per byte': name,
      'data_dir': data_dir,
      'domain': domain,
      'lengths': [row_length, target_length],
    }
    for name in models
  ]
  by_model = zip(models, log.resume(workdir, units, bits, 'bits per byte'))
  return [
    {'model': name, 'domain': domain, 'bits_per_byte': value}
    for name, by_domain in by_model
    for domain, value in by_domain.items()
  ]
