"""What a round of large models takes on devices that are not there.

Their compilers make the programs, from shapes alone; nothing runs. A round
takes at least the time in which the memory reads and writes its bytes, and what
this makes of a block efficiency is predicted.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import compare
from experiments.common import log
from experiments.common import plots
from experiments.common import results
from experiments.common import ways as ways_lib
from specjax import compilation
from specjax import families
from specjax import models
from specjax.data import tokenizer as tokenizer_lib
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import heads
from specjax.models import loading

_DTYPE = jnp.bfloat16


def run(config, workdir):
  """Returns a row for each way on each device."""
  family = abstract_family(config.models)
  ways = ways_lib.parse_all(config, list(family.drafters))
  found = [compilation.find(name) for name in config.devices]
  given = [(device, way) for device in found for way in ways]
  names = 'models', 'batch_size', 'max_length'
  said = config.to_dict()
  units = [
    {'device': device.name, **way.settings, **{n: said[n] for n in names}}
    for device, way in given
  ]

  def compute(place):
    device, way = place
    decoder = ways_lib.build(way, family, config.max_length).decoder
    return _row(
      compilation.compile_decode(decoder, device, batch_size=config.batch_size)
    )

  outcomes = log.resume(workdir, units, compute, 'programs', given)
  rows = [
    {'device': device.name, 'way': way.label, **outcome}
    for (device, way), outcome in zip(given, outcomes)
  ]
  return _predicted(rows, _measured(config.measured, ways))


def figures(rows):
  """Draws what is predicted of each way."""
  label = 'tokens a second over plain decoding, predicted'
  known = [row for row in rows if 'speed_up' in row]
  if not known:
    return {}
  return {
    'speed_up': plots.bars(known, 'device', 'speed_up', 'way', ylabel=label)
  }


def abstract_family(shapes) -> families.Family:
  """Returns a family of models without numbers.

  Args:
    shapes: by name, fields of a model's config, or of `heads.configure`, with
      a `kind`; one is the 'target'.
  """
  config = config_lib.from_dict(dict(shapes['target']))
  params = adapters.abstract_params(config)
  made = {}
  for name, fields in shapes.items():
    if name == 'target':
      continue
    if 'kind' in fields:
      made[name] = _abstract_head(config, params, dict(fields))
    else:
      made[name] = _abstract_model(config_lib.from_dict(dict(fields)))
  # Of which only the stop tokens are read.
  tokenizer = tokenizer_lib.train(['any'], 260)
  return families.Family(tokenizer, _abstract_model(config), made, [])


def _abstract_model(config):
  return families.Model(
    config,
    adapters.language_model(config, _DTYPE),
    _in_dtype(adapters.abstract_params(config)),
  )


def _abstract_head(target, params, fields):
  config = heads.configure(fields.pop('kind'), target, **fields)
  tokens = np.arange(config.layer.head_size or 0)
  begin = lambda key, params: heads.begin(key, config, target, params, tokens)
  shapes = jax.eval_shape(begin, jax.random.key(0), params)
  return models.Head(config, heads.functions(config, _DTYPE), _in_dtype(shapes))


def _in_dtype(shapes):
  """Shapes of parameters in the type that they are computed with."""
  cast = lambda leaf: loading.in_dtype(leaf, _DTYPE)
  return jax.eval_shape(functools.partial(jax.tree.map, cast), shapes)


def _row(program):
  """What a program shows, in units of tables."""
  row = {
    'fits': program.fits,
    'peak_gigabytes': program.memory.peak / 1e9,
    'gigabytes': program.num_bytes / 1e9,
    'over_least': program.num_bytes / program.least,
    **{
      f'{kind}_gigabytes': (program.read[kind] + program.written[kind]) / 1e9
      for kind in program.read
    },
    'gigaflop': sum(program.operations.values()) / 1e9,
    **{
      f'{kind}_gigaflop': number / 1e9
      for kind, number in program.operations.items()
    },
  }
  if program.device.bandwidth is not None:
    row['round_ms'] = 1e3 * program.seconds
  return row


def _measured(measured, ways):
  """Block efficiencies that were measured, by way."""
  if not measured.file:
    return {}
  wanted = dict(measured.rows)
  rows = results.read(measured.file)['rows']
  labels = {way.label for way in ways}
  return {
    row['way']: row['block_efficiency']
    for row in rows
    if row['way'] in labels
    and all(row.get(name) == value for name, value in wanted.items())
  }


def _predicted(rows, measured):
  """Adds what block efficiencies make of rounds."""
  speeds = {}
  for row in rows:
    if row['way'] in measured and 'round_ms' in row:
      row['block_efficiency'] = measured[row['way']]
      speed = 1e3 * row['block_efficiency'] / row['round_ms']
      row['tokens_per_second'] = speed
      speeds[row['device'], row['way']] = speed
  for row in rows:
    own = speeds.get((row['device'], row['way']))
    plain = speeds.get((row['device'], compare.REFERENCE))
    if own and plain:
      row['speed_up'] = own / plain
  return rows
