"""What a round of large models takes on devices that are not there.

Their compilers make the programs, from shapes alone, without the device. A
round takes at least the time in which the memory reads and writes its bytes,
and the speed-up is predicted from that and a block efficiency. Where such a
device is there, rounds are also measured.
"""

import dataclasses
import functools
import itertools
import os
from typing import Any
from typing import NamedTuple

import jax

from experiments.common import compare
from experiments.common import configs
from experiments.common import hardware
from experiments.common import limits
from experiments.common import log
from experiments.common import measure
from experiments.common import methods as methods_lib
from experiments.common import plots
from experiments.common import results
from specjax import compilation
from specjax import families
from specjax import meshes
from specjax import models
from specjax.theory import constant

# Of what a plan tries.
_MOST_DEVICES = 64
# Of rows that have one: of methods that do not fit, or do; of targets that
# differ in depth; of several devices; and of rounds that have run.
_NOT_ALWAYS = (
  *('lacking_gigabytes', 'needs'),
  *(*compilation.Launches._fields, 'kernels_per_layer'),
  *('collectives', 'collective_megabytes'),
  *('measured_ms', 'predicted_over_measured', 'share_of_copy'),
  *('least_gigabytes', 'projected_speed_up'),
)
# What programs are is the same, whether they run or not.
MAY_CHANGE = 'run', 'rounds', 'repeats', 'copied_megabytes', 'trace'


def prepare(config):
  """Returns what is compiled per target, device, batch size and method."""
  return _tries(config)


def run(config, workdir):
  """Returns a row for each method, batch size, device and target."""
  tries = prepare(config)
  names = 'mesh', 'plan', 'max_length'
  shared = {name: config.to_dict()[name] for name in names}
  units = [
    {
      'device': each.device.name,
      'batch_size': each.batch_size,
      **each.method.settings,
      'models': each.target.shapes,
      **shared,
    }
    for each in tries
  ]
  compute = functools.partial(_planned if config.plan else _tried, config)
  if config.compile:
    found = log.resume(workdir, units, compute, 'programs', tries)
    outcomes = list(limits.in_time(workdir, found))
  else:
    outcomes = [_not_compiled(config, each) for each in tries]
  if config.run:
    outcomes = _with_rounds(config, workdir, units, tries, outcomes)
  absent = dict.fromkeys(_NOT_ALWAYS)
  rows = [
    {
      'target': each.target.name,
      'device': each.device.name,
      'batch_size': each.batch_size,
      'method': each.method.label,
      **absent,
      **outcome,
    }
    for each, outcome in zip(tries, outcomes)
  ]
  _add_kernels_per_layer(rows, [each.target.shapes for each in tries])
  measured = _measured(config.measured, {row['method'] for row in rows})
  return _predicted(rows, measured, config.acceptance)


class _Target(NamedTuple):
  """A target and its drafters, without numbers."""

  name: str
  shapes: dict[str, dict[str, Any]]  # fields of each config
  family: families.Family


class _Try(NamedTuple):
  """What is compiled, for a number of rows."""

  target: _Target
  device: compilation.Device
  batch_size: int
  method: methods_lib.Method


def _tries(config):
  """All that a config asks for."""
  configs.check_counts(config, ['batch_sizes', 'copied_megabytes'])
  if config.plan and config.mesh.model is not None:
    raise ValueError(
      'mesh.model is what a plan looks for, and must be None with plan, got '
      f'{config.mesh.model}.'
    )
  devices = [compilation.find(name) for name in config.devices]
  if config.run:
    for device in devices:  # Before minutes are spent on them.
      hardware.devices(device)
  targets = [_target(config, name) for name in config.targets]
  for target, device in itertools.product(targets, devices):
    if not config.plan:
      _check_mesh(config, target, device)
  return [
    _Try(target, device, batch_size, method)
    for target in targets
    for device in devices
    for batch_size in config.batch_sizes
    for method in methods_lib.parse_all(config, list(target.family.drafters))
  ]


def _check_mesh(config, target, device):
  """Refuses a mesh before minutes are spent on others."""
  num, data = _num_devices(device), config.mesh.data
  if config.mesh.model is None and (data & (data - 1) or num % data):
    raise ValueError(
      f'mesh.data must be a power of two that divides the {num} devices of '
      f'{device.name}, got {data}.'
    )
  num_parts = _num_parts(config, device)
  num_heads = target.family.target.config.num_heads
  if num_heads % num_parts:
    raise ValueError(
      f'mesh.model must divide the {num_heads} attention heads of '
      f'{target.name}, got {num_parts} on {device.name}.'
    )


def _target(config, name):
  """The target of a name, or of a checkpoint, and its drafters."""
  if name in config.shapes:
    fields = config.shapes[name].to_dict()
  elif os.path.exists(path := os.path.expanduser(name)):
    fields = dataclasses.asdict(models.read_config(path))
  else:
    raise ValueError(
      f'targets must be of {", ".join(config.shapes)}, or paths of '
      f'checkpoints, got {name!r}.'
    )
  drafters = config.drafters.get(name, config.drafters.others)
  shapes = {'target': fields, **drafters.to_dict()}
  return _Target(name, shapes, hardware.abstract_family(shapes))


def _planned(config, planned):
  """The row of the fewest devices on which a method fits, along 'model'."""
  row = {}
  for device in _more_and_more(config, planned):
    row = _tried(config, planned._replace(device=device))
    row['device'] = device.name
    if row['fits']:
      break
  return row


def _more_and_more(config, tried):
  """Devices of a kind, of which 'model' divides the target's heads."""
  num_heads = tried.target.family.target.config.num_heads
  for doublings in range(_MOST_DEVICES.bit_length()):
    num = 2**doublings
    if num_heads % num:
      return
    yield compilation.several(tried.device, config.mesh.data * num)


def _tried(config, tried):
  """The row of a method, or how much memory it lacks, and what would do."""
  jax.clear_caches()  # Programs of one target after the other fill the memory.
  num_parts = _num_parts(config, tried.device)
  row = {'mesh': f'{config.mesh.data}x{num_parts}'}
  decoder = _decoder(config, tried)
  try:
    program = compilation.compile_decode(
      decoder, tried.device, batch_size=tried.batch_size
    )
  except compilation.DoesNotFit as error:
    row |= {'fits': False, 'lacking_gigabytes': error.lacking / 1e9}
    return row if config.plan else row | {'needs': _needed(config, tried)}
  return row | _chain(decoder) | _row(program)


def _not_compiled(config, tried):
  """The row of a method that no compiler is asked about."""
  decoder = _decoder(config, tried)
  num_parts = _num_parts(config, tried.device)
  row = {'mesh': f'{config.mesh.data}x{num_parts}', 'fits': True}
  row |= _chain(decoder)
  try:
    least = compilation.min_bytes(
      decoder, tried.device, batch_size=tried.batch_size
    )
  except compilation.DoesNotFit as error:
    return row | {'fits': False, 'lacking_gigabytes': error.lacking / 1e9}
  return row | {'least_gigabytes': least / 1e9}


def _chain(decoder):
  """The draft length of a chain; nothing of a tree."""
  topology = decoder.round_fn.arms[0].drafter.topology
  if topology.num_nodes == topology.depth:
    return {'draft_length': topology.depth}
  return {}


def _needed(config, tried):
  """The fewest devices that hold parameters and caches; '' if none do."""
  config = config.copy_and_resolve_references()
  config.mesh.model = None
  for device in _more_and_more(config, tried):
    if _num_devices(device) <= _num_devices(tried.device):
      continue  # They were too few.
    decoder = _decoder(config, tried._replace(device=device))
    try:
      compilation.check_fits(decoder, device, batch_size=tried.batch_size)
    except compilation.DoesNotFit:
      continue
    return device.name
  return ''


def _num_parts(config, device):
  """How many devices stand along 'model': all, if the config does not say."""
  return config.mesh.model or max(1, _num_devices(device) // config.mesh.data)


def _num_devices(device):
  """How many devices a name stands for; CPUs count as one."""
  return 1 if device.platform == 'cpu' else len(compilation.jax_devices(device))


def _decoder(config, tried, devices=None, *, fill=False):
  """The decoder of a method on some devices, with numbers or without."""
  devices = devices or compilation.jax_devices(tried.device)
  num_rows, family = config.mesh.data, tried.target.family
  num_parts = _num_parts(config, tried.device)
  mesh = None
  if num_rows * num_parts > 1:
    mesh = meshes.make(num_rows, num_parts, devices)
  if tried.device.platform == 'cuda':
    family = hardware.fused(family, mesh)
  if mesh is not None:
    split = config.mesh.split_drafters
    family = families.on_mesh(family, mesh, split_drafters=split)
  family = hardware.filled(family) if fill else family
  return methods_lib.build(tried.method, family, config.max_length).decoder


def _with_rounds(config, workdir, units, tries, outcomes):
  """Outcomes with what rounds take where they run; of those that fit."""
  names = 'rounds', 'repeats'
  here = {name: config[name] for name in names} | {
    'measured_on': measure.device(),
    'xla_flags': os.environ.get('XLA_FLAGS', ''),
    'trace': config.trace,
  }
  # Of a plan, the device is among what was found.
  fitting = {
    i: tries[i]._replace(
      device=compilation.find(each.get('device', tries[i].device.name))
    )
    for i, each in enumerate(outcomes)
    if each['fits']
  }
  own = [units[i] | here for i in fitting]
  compute = functools.partial(_timed, config)
  found = log.resume(workdir, own, compute, 'rounds', list(fitting.values()))
  timed = limits.in_time(workdir, found)
  added = {
    i: each | _shares(outcomes[i], each) for i, each in zip(fitting, timed)
  }
  return [each | added.get(i, {}) for i, each in enumerate(outcomes)]


def _shares(outcome, timed):
  """Of what bounds a round by its bytes, the shares that it reaches."""
  if not timed['fits']:
    return {}
  size = outcome.get('gigabytes', outcome.get('least_gigabytes'))
  per_second = 1e3 * size / timed['measured_ms']
  row = {'share_of_copy': per_second / timed['copy_gigabytes_per_second']}
  if 'round_ms' in outcome:
    found = outcome['round_ms'] / timed['measured_ms']
    row['predicted_over_measured'] = found
  return row


def _timed(config, tried):
  """What a round takes on the devices that are there, and a copy beside it."""
  jax.clear_caches()
  found = hardware.devices(tried.device)
  try:
    decoder = _decoder(config, tried, found, fill=True)
    seconds, bandwidth = hardware.round_seconds(
      decoder,
      tried.batch_size,
      config.max_length,
      config.rounds,
      config.repeats,
      config.copied_megabytes * 10**6,
    )
    kernels = _traced(config, tried, decoder) if config.trace else {}
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    return {'measured_on': measure.device(), 'fits': False}
  return {
    'measured_on': measure.device(),
    'fits': True,
    'measured_ms': 1e3 * seconds,
    'copy_gigabytes_per_second': bandwidth / 1e9,
    **kernels,
  }


def _traced(config, tried, decoder):
  """Where the time of a round goes, as the profiler has it."""
  found = hardware.traced_rounds(
    decoder, tried.batch_size, config.max_length, config.rounds
  )
  return {
    'launched': sum(found.kernels.values()),
    'busy_ms': 1e3 * sum(found.seconds.values()),
    **{f'{kind}_ms': 1e3 * each for kind, each in found.seconds.items()},
    'longest': ', '.join(
      f'{name} {1e3 * each:.3f}' for name, each in found.longest.items()
    ),
  }


def figures(rows):
  """Draws bytes over the least, and what is predicted of each method."""
  labels = {
    'over_least': 'bytes of a round over the least',
    'speed_up': 'speed-up over plain decoding, predicted',
    'projected_speed_up': 'speed-up, measured rounds, assumed acceptance',
  }
  named = [row | {'place': _place(row, rows)} for row in rows]
  return {
    column: plots.bars(known, 'place', column, 'method', ylabel=label)
    for column, label in labels.items()
    if (known := [row for row in named if row.get(column) is not None])
  }


def _place(row, rows):
  """What tells a row from others, but for its method."""
  columns = {'target': '', 'device': '', 'batch_size': 'batch '}
  return ', '.join(
    f'{unit}{row[column]}'
    for column, unit in columns.items()
    if len({each[column] for each in rows}) > 1
  )


def _row(program):
  """What a program shows, in units of tables."""
  row = {
    'fits': True,
    'peak_gigabytes': program.memory.peak / 1e9,
    'gigabytes': program.num_bytes / 1e9,
    'over_least': program.num_bytes / program.min_bytes,
    **program.launches._asdict(),
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
  found = program.inspection
  if found.collectives:
    row['collectives'] = ', '.join(
      f'{num} {op}' for op, num in sorted(found.num_collectives.items())
    )
    row['collective_megabytes'] = sum(found.collectives.values()) / 1e6
  if program.device.bandwidth is not None:
    row['round_ms'] = 1e3 * program.seconds
  return row


def _add_kernels_per_layer(rows, shapes):
  """Adds kernels per layer, from targets that differ in depth alone."""
  before = {}
  for row, own in zip(rows, shapes):
    if row['kernels'] is None:
      continue  # It does not fit.
    num_layers = own['target']['num_layers']
    width = {**own, 'target': {**own['target'], 'num_layers': None}}
    place = row['device'], row['batch_size'], row['method'], str(width)
    kernels, others = before.get(place, (row['kernels'], num_layers))
    if num_layers != others:
      added = row['kernels'] - kernels
      row['kernels_per_layer'] = added / (num_layers - others)
    before[place] = row['kernels'], num_layers


def _measured(measured, labels):
  """Block efficiencies that were measured, by the label of a method."""
  wanted = dict(measured.rows)
  rows = [row for file in measured.files for row in results.read(file)['rows']]
  return {
    row['method']: row['block_efficiency']
    for row in rows
    if row['method'] in labels
    and all(row.get(name) == value for name, value in wanted.items())
  }


def _predicted(rows, measured, acceptance=None):
  """Adds what block efficiencies make of rounds.

  Of a method that was not measured, a chain accepts each token as often as it
  is assumed, if it is.
  """
  for row in rows:
    tokens, length = measured.get(row['method']), row.get('draft_length')
    if length == 0:
      tokens = 1.0
    elif tokens is None and acceptance and length is not None:
      tokens = constant.block_efficiency(acceptance, length)
    timed = row.get('round_ms') or row.get('measured_ms')
    if timed and tokens is not None:
      row['block_efficiency'] = tokens
  _add_speeds(rows, 'round_ms', 'tokens_per_second', 'speed_up')
  _add_speeds(
    rows, 'measured_ms', 'projected_tokens_per_second', 'projected_speed_up'
  )
  return rows


def _add_speeds(rows, round_ms, speed, speed_up):
  """Adds tokens a second of what rounds take, and over plain decoding."""
  plain = {}
  for row in rows:
    if 'block_efficiency' in row and row.get(round_ms):
      row[speed] = 1e3 * row['block_efficiency'] / row[round_ms]
      if row['method'] == compare.REFERENCE:
        plain[_of(row)] = row[speed]
  for row in rows:
    if speed in row and _of(row) in plain:
      row[speed_up] = row[speed] / plain[_of(row)]


def _of(row):
  """What the methods of a row are compared on."""
  return tuple(row[column] for column in ('target', 'device', 'batch_size'))
