"""Whether the rejections of ways to decode are those that theory predicts.

Yin et al. (2024), Theorem 1, along each run.
"""

import functools
import math

import jax
import numpy as np

from experiments.common import compare
from experiments.common import runner
from experiments.common import ways
from specjax import families
from specjax import theory

MAY_CHANGE = compare.MAY_CHANGE
# Of rounds, which a diagnosis needs.
_FIELDS = 'num_accepted', 'num_emitted', 'depth'


def run(config, workdir):
  """Returns a row for each way, set and domain; warns where one is flagged."""
  made = compare.plan(config)
  rows = []
  models = [draft_model(made.family, way) for way in made.ways]
  for way, model in zip(made.ways, models):
    own = made._replace(ways=[way])
    observe = functools.partial(_observe, model)
    rows += [
      row
      for decoded in compare.decode(
        config, workdir, own, fields=_FIELDS, observe=observe
      )
      for row in _rows(decoded)
    ]
  for row in rows:
    if row['flagged']:
      print(_warning(row))
  return rows


def draft_model(family: families.Family, way: ways.Way) -> families.Model:
  """Returns the model of which a way drafts chains.

  Raises:
    ValueError: it drafts otherwise.
  """
  arm = way.arms[0]
  name = dict(arm.drafter.options).get('model')
  chain = arm.tree is not None and arm.tree.name == 'chain'
  if len(way.arms) > 1 or name not in family.drafters or not chain:
    raise ValueError(
      f"{way.place} must draft a chain with a model, as 'small:4' does, got "
      f'{way.label!r}.'
    )
  return family.drafters[name]


def starts(batch: runner.Batch) -> np.ndarray:
  """Returns `[B]` the lengths of a batch's prompts."""
  emitted = [len(result.tokens) for result in batch.results]
  return np.array(batch.state.lengths) - emitted


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
  return [
    dict(zip(found._fields, row))
    for row in zip(*(field.tolist() for field in found))
  ]


def _rows(decoded):
  """Rows of all prompts and of each domain."""
  way, prompts, records = decoded
  domains = np.array([record['label'] for record in records])
  found = theory.Diagnosis(
    *(
      np.array([record[name] for record in records])
      for name in theory.Diagnosis._fields
    )
  )
  for domain in ('all', *dict.fromkeys(domains.tolist())):
    chosen = (domains == domain) | (domain == 'all')
    part = jax.tree.map(lambda field, rows=chosen: field[rows], found)
    yield {
      'prompts': prompts.label,
      'domain': domain,
      'way': way.label,
      'tested': int(part.tested.sum()),
      'seen': int(part.seen.sum()),
      'predicted': float(part.predicted.sum()),
      'predicted_error': math.sqrt(part.variance.sum()),
      'deviation': part.deviation,
      'flagged': bool(part.flagged),
    }


def _warning(row):
  return (
    f'Warning: {row["way"]}, {row["prompts"]}, {row["domain"]}: {row["seen"]} '
    f'rejections, but {row["predicted"]:.1f} ± {row["predicted_error"]:.1f} '
    'are predicted.'
  )
