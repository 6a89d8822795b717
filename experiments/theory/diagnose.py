"""Whether the rejections of ways to decode are those that theory predicts.

Yin et al. (2024), Theorem 1, along each run.
"""

import functools
import math

import numpy as np

from experiments.common import compare
from specjax import theory

MAY_CHANGE = compare.MAY_CHANGE
# Of rounds, by which rejected drafts are counted.
FIELDS = 'num_accepted', 'num_emitted', 'depth'
_WARNING = (
  'Warning: {way}, {prompts}, {domain}: {seen} rejections, but {predicted:.1f} '
  '± {predicted_error:.1f} are predicted.'
)


def prepare(config):
  """Returns the ways and prompts; all ways must draft chains of a model."""
  prepared = compare.plan(config)
  for way in prepared.ways:
    _draft_model(prepared.family, way)
  return prepared


def run(config, workdir):
  """Returns a row for each way, set and domain; warns where one is flagged."""
  found = decode(config, workdir, _observe, fields=FIELDS)
  rows = [row for decoded in found for row in _rows(decoded)]
  for row in rows:
    if row['flagged']:
      print(_WARNING.format(**row))
  return rows


def decode(config, workdir, observe, **options):
  """Decodes by chains of a model; `observe(model, batch)` gives records."""
  made = prepare(config)
  models = [_draft_model(made.family, way) for way in made.ways]
  return [
    decoded
    for way, model in zip(made.ways, models)
    for decoded in compare.decode(
      config,
      workdir,
      made._replace(ways=[way]),
      observe=functools.partial(observe, model),
      **options,
    )
  ]


def starts(batch):
  """Returns `[B]` the lengths of a batch's prompts."""
  return batch.state.lengths - np.array([len(r.tokens) for r in batch.results])


def _draft_model(family, way):
  """The model of which a way drafts chains."""
  arm = way.arms[0]
  name = dict(arm.drafter.options).get('model')
  chain = arm.tree is not None and arm.tree.name == 'chain'
  if len(way.arms) > 1 or name not in family.drafters or not chain:
    raise ValueError(
      f"{way.place} must draft a chain with a model, as 'small:4' does, got "
      f'{way.label!r}.'
    )
  return family.drafters[name]


def _observe(model, batch):
  """The diagnosis of each row."""
  plan = batch.player.decoder.round_fn
  found = theory.diagnose(
    plan.target,
    model.functions,
    batch.player.decoder.params,
    starts(batch),
    batch.state.tokens,
    batch.infos,
    plan.sampling,
  )
  columns = [field.tolist() for field in found]
  return [dict(zip(found._fields, row)) for row in zip(*columns)]


def _rows(decoded):
  """Rows of all prompts and of each domain."""
  records = decoded.records
  for domain in ('all', *dict.fromkeys(each['label'] for each in records)):
    own = [each for each in records if domain in ('all', each['label'])]
    columns = ([r[name] for r in own] for name in theory.Diagnosis._fields)
    found = theory.Diagnosis(*map(np.array, columns))
    yield {
      'prompts': decoded.prompts.label,
      'domain': domain,
      'way': decoded.way.label,
      'tested': int(found.tested.sum()),
      'seen': int(found.seen.sum()),
      'predicted': float(found.predicted.sum()),
      'predicted_error': math.sqrt(found.variance.sum()),
      'deviation': found.deviation,
      'flagged': bool(found.flagged),
    }
