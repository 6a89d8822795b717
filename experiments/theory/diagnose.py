"""Compares the rejections of methods with those that theory predicts.

The prediction is Theorem 1 of Yin et al. (2024), along each run.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import math
from typing import Any

import numpy as np

from experiments.common import compare
from experiments.common import methods as methods_lib
from experiments.common import runner
from specjax import families
from specjax import theory

MAY_CHANGE = compare.MAY_CHANGE
# Fields of rounds from which rejected draft tokens are counted.
FIELDS = 'num_accepted', 'num_emitted', 'depth'
_WARNING = (
  'Warning: {method}, {prompts}, {domain}: {seen} rejections, but '
  '{predicted:.1f} ± {predicted_error:.1f} are predicted.'
)


def prepare(config):
  """Returns the methods, which must draft chains with a model, and prompts."""
  setup = compare.prepare(config)
  for method in setup.methods:
    _draft_model(setup.family, method)
  return setup


def run(config, workdir):
  """Returns a row per method, prompt set and domain; warns of flagged rows."""
  results = decode(config, workdir, prepare(config), _observe, fields=FIELDS)
  rows = [row for decoded in results for row in _rows(decoded)]
  for row in rows:
    if row['flagged']:
      print(_WARNING.format(**row))
  return rows


def decode(config, workdir, setup, observe, **options):
  """Decodes with chains from a model, and records `observe(model, batch)`.

  Args:
    config: the config.
    workdir: the workdir of the run.
    setup: from `prepare`.
    observe: from the draft model and a batch, returns a record for each row.
    **options: See `compare.decode`.
  """
  models = [_draft_model(setup.family, method) for method in setup.methods]
  return [
    decoded
    for method, model in zip(setup.methods, models)
    for decoded in compare.decode(
      config,
      workdir,
      setup._replace(methods=[method]),
      observe=functools.partial(observe, model),
      **options,
    )
  ]


def over_texts(
  compute: Callable[..., Any],
  values: Sequence[float],
  model: families.Model,
  batch: runner.Batch,
) -> Any:
  """Returns sums over the texts of a batch, such as `theory.ledger`.

  Args:
    compute: a function of the target and the draft model, their parameters,
      the texts, the values and the sampling.
    values: what the sums depend on.
    model: the draft model.
    batch: the batch.
  """
  decoder = batch.compiled_method.decoder
  return compute(
    decoder.round_fn.target,
    model.model,
    (decoder.params.target, model.params),
    _starts(batch),
    batch.state.lengths,
    batch.state.tokens,
    values,
    decoder.round_fn.sampling,
  )


def _starts(batch: runner.Batch) -> np.ndarray:
  """Returns `[B]` the lengths of the prompts in a batch."""
  return batch.state.lengths - np.array([len(r.tokens) for r in batch.results])


def _draft_model(
  family: families.Family, method: methods_lib.Method
) -> families.Model:
  """Returns the model that a method drafts chains with."""
  arm = method.arms[0]
  is_model = arm.drafter.name == 'autoregressive'
  name = dict(arm.drafter.options).get('model') if is_model else None
  chain = arm.tree is not None and arm.tree.name == 'chain'
  if len(method.arms) > 1 or name not in family.drafters or not chain:
    raise ValueError(
      f"{method.location} must draft a chain with a model, such as 'small:4', "
      f'got {method.label!r}.'
    )
  return family.drafters[name]


def _observe(model: families.Model, batch: runner.Batch) -> list[runner.Record]:
  """Returns the diagnosis of each row."""
  round_fn = batch.compiled_method.decoder.round_fn
  diagnosis = theory.diagnose(
    round_fn.target,
    model.model,
    batch.compiled_method.decoder.params,
    _starts(batch),
    batch.state.tokens,
    batch.infos,
    round_fn.sampling,
  )
  columns = [field.tolist() for field in diagnosis]
  return [dict(zip(diagnosis._fields, row)) for row in zip(*columns)]


def _rows(decoded: compare.Decoded) -> Iterator[dict[str, Any]]:
  """Yields the rows of all prompts and of each domain."""
  records = decoded.records
  for domain in ('all', *dict.fromkeys(record['label'] for record in records)):
    selected = compare.select_domain(records, domain)
    columns = ([r[name] for r in selected] for name in theory.Diagnosis._fields)
    diagnosis = theory.Diagnosis(*map(np.array, columns))
    yield {
      'prompts': decoded.prompts.label,
      'domain': domain,
      'method': decoded.method.label,
      'tested': int(diagnosis.num_tests.sum()),
      'seen': int(diagnosis.num_rejections.sum()),
      'predicted': float(diagnosis.predicted_rejections.sum()),
      'predicted_error': math.sqrt(diagnosis.variance.sum()),
      'deviation': diagnosis.deviation,
      'flagged': bool(diagnosis.flagged),
    }
