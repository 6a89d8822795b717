"""Whether the rejections of methods are those that theory predicts.

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
  'Warning: {method}, {prompts}, {domain}: {seen} rejections, but '
  '{predicted:.1f} '
  '± {predicted_error:.1f} are predicted.'
)


def prepare(config):
  """Returns the methods, which must draft chains with a model, and prompts."""
  prepared = compare.plan(config)
  for method in prepared.methods:
    _draft_model(prepared.family, method)
  return prepared


def run(config, workdir):
  """Returns a row per method, prompt set and domain; warns of flagged rows."""
  found = decode(config, workdir, _observe, fields=FIELDS)
  rows = [row for decoded in found for row in _rows(decoded)]
  for row in rows:
    if row['flagged']:
      print(_WARNING.format(**row))
  return rows


def decode(config, workdir, observe, **options):
  """Decodes by chains of a model; `observe(model, batch)` gives records."""
  made = prepare(config)
  models = [_draft_model(made.family, method) for method in made.methods]
  return [
    decoded
    for method, model in zip(made.methods, models)
    for decoded in compare.decode(
      config,
      workdir,
      made._replace(methods=[method]),
      observe=functools.partial(observe, model),
      **options,
    )
  ]


def starts(batch):
  """Returns `[B]` the lengths of a batch's prompts."""
  return batch.state.lengths - np.array([len(r.tokens) for r in batch.results])


def _draft_model(family, method):
  """The model of which a method drafts chains."""
  arm = method.arms[0]
  name = dict(arm.drafter.options).get('model')
  chain = arm.tree is not None and arm.tree.name == 'chain'
  if len(method.arms) > 1 or name not in family.drafters or not chain:
    raise ValueError(
      f"{method.place} must draft a chain with a model, as 'small:4' does, got "
      f'{method.label!r}.'
    )
  return family.drafters[name]


def _observe(model, batch):
  """The diagnosis of each row."""
  plan = batch.compiled_method.decoder.round_fn
  found = theory.diagnose(
    plan.target,
    model.model,
    batch.compiled_method.decoder.params,
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
      'method': decoded.method.label,
      'tested': int(found.num_tests.sum()),
      'seen': int(found.num_rejections.sum()),
      'predicted': float(found.predicted_rejections.sum()),
      'predicted_error': math.sqrt(found.variance.sum()),
      'deviation': found.deviation,
      'flagged': bool(found.flagged),
    }
