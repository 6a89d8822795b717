"""What a round of large models takes on devices that are not there.

Their compilers make the programs, from shapes alone; nothing runs. A round
takes at least the time in which the memory reads and writes its bytes, and what
this makes of a block efficiency is predicted.
"""

import dataclasses
import functools
import os

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import compare
from experiments.common import hardware
from experiments.common import log
from experiments.common import plots
from experiments.common import results
from experiments.common import ways as ways_lib
from specjax import compilation
from specjax import families
from specjax import meshes
from specjax import models
from specjax.data import tokenizer as tokenizer_lib
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import heads
from specjax.models import loading
from specjax.theory import constant

_DTYPE = jnp.bfloat16
# Of what a plan tries.
_MOST_DEVICES = 64
# Of rows that have one: of ways that do not fit, and of rounds that have run.
_NOT_ALWAYS = ('lacking_gigabytes', 'measured_ms', 'share_of_copy')


def run(config, workdir):
  """Returns a row for each way on each device."""
  shapes = _shapes(config)
  family = abstract_family(shapes)
  ways = ways_lib.parse_all(config, list(family.drafters))
  found = [compilation.find(name) for name in config.devices]
  if config.run:
    for device in found:  # Before minutes are spent on them.
      hardware.devices(device)
  given = [(device, way) for device in found for way in ways]
  names = 'mesh', 'plan', 'run', 'batch_size', 'max_length'
  shared = {name: config.to_dict()[name] for name in names}
  units = [
    {'device': device.name, **way.settings, 'models': shapes, **shared}
    for device, way in given
  ]

  def compute(place):
    device, way = place
    if config.plan:
      return _planned(config, family, device, way)
    return _tried(config, family, device, way, config.mesh.model)

  outcomes = log.resume(workdir, units, compute, 'programs', given)
  absent = dict.fromkeys(_NOT_ALWAYS)
  rows = [
    {'device': device.name, 'way': way.label, **absent, **outcome}
    for (device, way), outcome in zip(given, outcomes)
  ]
  measured = _measured(config.measured, ways)
  return _predicted(rows, measured, config.acceptance)


def _shapes(config):
  """Fields of the target, which has a name or is read, and of its drafters."""
  if config.model in config.shapes:
    target = config.shapes[config.model].to_dict()
  elif os.path.exists(config.model):
    target = dataclasses.asdict(models.read_config(config.model))
  else:
    raise ValueError(
      f'model must be one of {", ".join(config.shapes)}, or the path of a '
      f'checkpoint, got {config.model!r}.'
    )
  return {'target': target, **config.drafters.to_dict()}


def _planned(config, family, device, way):
  """The row of the fewest devices on which a way fits, along 'model'."""
  row = {'fits': False}
  for doublings in range(_MOST_DEVICES.bit_length()):
    num = 2**doublings
    if family.target.config.num_heads % num:
      break
    several = compilation.several(device, config.mesh.data * num)
    row = _tried(config, family, several, way, num)
    row['device'] = several.name
    if row['fits']:
      break
  return row


def _tried(config, family, device, way, num_parts):
  """The row of a way, or how much memory it lacks."""
  build = functools.partial(_decoder, config, way, num_parts=num_parts)
  decoder = build(family, compilation.all_of(device))
  row = {'mesh': f'{config.mesh.data}x{num_parts}'}
  try:
    program = compilation.compile_decode(
      decoder, device, batch_size=config.batch_size
    )
  except compilation.DoesNotFit as error:
    return row | {'fits': False, 'lacking_gigabytes': error.lacking / 1e9}
  topology = decoder.round_fn.arms[0].drafter.topology
  if topology.num_nodes == topology.depth:
    row['draft_length'] = topology.depth  # Of a chain.
  row |= _row(program)
  if config.run:
    found = hardware.devices(device)
    decoder = build(family, found, fill=True)
    row |= _measured_on(decoder, config, program.num_bytes)
  return row


def _decoder(config, way, family, devices, *, num_parts, fill=False):
  """The decoder of a way on some devices, with numbers or without."""
  num_rows = config.mesh.data
  if num_rows * num_parts > 1:
    mesh = meshes.make(num_rows, num_parts, devices)
    split = config.mesh.split_drafters
    family = families.on_mesh(family, mesh, split_drafters=split)
  family = hardware.filled(family) if fill else family
  return ways_lib.build(way, family, config.max_length).decoder


def _measured_on(decoder, config, num_bytes):
  """What rounds take where they run, and the share of a copy's bandwidth."""
  seconds, bandwidth = hardware.round_seconds(
    decoder,
    config.batch_size,
    config.max_length,
    config.rounds,
    config.repeats,
  )
  return {
    'measured_ms': 1e3 * seconds,
    'copy_gigabytes_per_second': bandwidth / 1e9,
    'share_of_copy': num_bytes / seconds / bandwidth,
  }


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
      a `kind`; one is the 'target'. A drafter has the target's vocabulary.
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
      own = {'vocab_size': config.vocab_size, **fields}
      made[name] = _abstract_model(config_lib.from_dict(own))
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
    'fits': True,
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
  wanted = dict(measured.rows)
  rows = [row for file in measured.files for row in results.read(file)['rows']]
  labels = {way.label for way in ways}
  return {
    row['way']: row['block_efficiency']
    for row in rows
    if row['way'] in labels
    and all(row.get(name) == value for name, value in wanted.items())
  }


def _predicted(rows, measured, acceptance=None):
  """Adds what block efficiencies make of rounds.

  Of a way that was not measured, a chain accepts each token as often as it is
  assumed, if it is.
  """
  speeds = {}
  for row in rows:
    tokens, length = measured.get(row['way']), row.get('draft_length')
    if length == 0:
      tokens = 1.0
    elif tokens is None and acceptance and length is not None:
      tokens = constant.block_efficiency(acceptance, length)
    if tokens is not None and 'round_ms' in row:
      row['block_efficiency'] = tokens
      speed = 1e3 * tokens / row['round_ms']
      row['tokens_per_second'] = speed
      speeds[row['device'], row['way']] = speed
  for row in rows:
    own = speeds.get((row['device'], row['way']))
    plain = speeds.get((row['device'], compare.REFERENCE))
    if own and plain:
      row['speed_up'] = own / plain
  return rows
