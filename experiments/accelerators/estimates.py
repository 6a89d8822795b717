"""Estimates round time and memory on TPU and GPU from compiled programs.

The devices' compilers run without the devices and need only shapes. A round
takes at least the time in which the memory transfers its bytes; the speed-up is
predicted from this time and a block efficiency. If such a device is available,
rounds can also be measured.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import os
from typing import Any
from typing import NamedTuple

import jax

from experiments.accelerators import hardware
from experiments.common import compare
from experiments.common import configs
from experiments.common import limits
from experiments.common import log
from experiments.common import measure
from experiments.common import methods as methods_lib
from experiments.common import plots
from experiments.common import results
from experiments.common import workdirs
from specjax import compilation
from specjax import decoding
from specjax import families
from specjax import meshes
from specjax import models
from specjax.theory import constant

# The largest number of devices that is tried to find a mesh.
_MOST_DEVICES = 64
# Columns that only some rows have: methods that do not fit, methods that do,
# targets that differ in depth, several devices, and measured rounds.
_OPTIONAL = (
  'lacking_gigabytes',
  'needs',
  *compilation.Launches._fields,
  'kernels_per_layer',
  'collectives',
  'collective_megabytes',
  'measured_ms',
  'predicted_over_measured',
  'share_of_copy',
  'least_gigabytes',
  'projected_speed_up',
)
# Compiled programs depend neither on whether they run nor on predictions.
MAY_CHANGE = (
  *('run', 'rounds', 'repeats', 'copied_megabytes', 'trace'),
  *('measured', 'acceptance'),
)


def prepare(config):
  """Returns what is compiled per target, device, batch size and method."""
  cases = _cases(config)
  _measured(config.measured, cases)  # Errors come before hours of compiling.
  return cases


def run(config, workdir):
  """Returns a row per method, batch size, device and target."""
  cases = prepare(config)
  names = 'mesh', 'find_mesh', 'max_length'
  shared = {name: config.to_dict()[name] for name in names}
  units = [
    {
      'device': case.device.name,
      'batch_size': case.batch_size,
      **case.method.settings,
      'models': case.target.shapes,
      **shared,
    }
    for case in cases
  ]
  compile_case = _with_smallest_mesh if config.find_mesh else _compiled
  compute = functools.partial(compile_case, config)
  if config.compile:
    logged = log.resume(workdir, units, compute, 'programs', cases)
    outcomes = list(limits.until_deadline(workdir, logged))
  else:
    outcomes = [_estimated(config, case) for case in cases]
  if config.run:
    outcomes = _with_rounds(config, workdir, units, cases, outcomes)
  absent = dict.fromkeys(_OPTIONAL)
  rows = [
    {
      'target': case.target.name,
      'device': case.device.name,
      'batch_size': case.batch_size,
      'method': case.method.label,
      **absent,
      **outcome,
    }
    for case, outcome in zip(cases, outcomes)
  ]
  _add_kernels_per_layer(rows, [case.target.shapes for case in cases])
  measured = _measured(config.measured, cases)
  return _with_predictions(rows, measured, config.acceptance)


class _Target(NamedTuple):
  """A target and its drafters, without parameters."""

  name: str
  shapes: dict[str, dict[str, Any]]  # config fields of each model
  family: families.Family


class _Case(NamedTuple):
  """One program to be compiled."""

  target: _Target
  device: compilation.Device
  batch_size: int
  method: methods_lib.Method


def _cases(config: Any) -> list[_Case]:
  """Returns all cases of a config."""
  configs.check_counts(config, ['batch_sizes', 'copied_megabytes'])
  if config.find_mesh and config.mesh.model is not None:
    raise ValueError(
      'mesh.model must be None with find_mesh, which searches it, got '
      f'{config.mesh.model}.'
    )
  devices = [compilation.find(name) for name in config.devices]
  if config.run:
    for device in devices:  # Errors come before the first compilation.
      hardware.devices(device)
  targets = [_target(config, name) for name in config.targets]
  for target, device in itertools.product(targets, devices):
    if not config.find_mesh:
      _check_mesh(config, target, device)
  return [
    _Case(target, device, batch_size, method)
    for target in targets
    for device in devices
    for batch_size in config.batch_sizes
    for method in methods_lib.parse_all(config, list(target.family.drafters))
  ]


def _check_mesh(
  config: Any, target: _Target, device: compilation.Device
) -> None:
  """Raises `ValueError` if the mesh does not fit the device or the target."""
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


def _target(config: Any, name: str) -> _Target:
  """Returns a target, by its name or its checkpoint, and its drafters."""
  if name in config.shapes:
    fields = config.shapes[name].to_dict()
  elif os.path.exists(path := os.path.expanduser(name)):
    fields = dataclasses.asdict(models.read_config(path))
  else:
    raise ValueError(
      f'targets must be among {", ".join(config.shapes)}, or paths of '
      f'checkpoints, got {name!r}.'
    )
  drafters = config.drafters.get(name, config.drafters.others)
  shapes = {'target': fields, **drafters.to_dict()}
  return _Target(name, shapes, hardware.abstract_family(shapes))


def _with_smallest_mesh(config: Any, case: _Case) -> dict[str, Any]:
  """Returns the row of the smallest mesh along 'model' that a method fits."""
  row: dict[str, Any] = {}
  for device in _growing_meshes(config, case):
    row = _compiled(config, case._replace(device=device))
    row['device'] = device.name
    if row['fits']:
      break
  return row


def _growing_meshes(config: Any, case: _Case) -> Iterator[compilation.Device]:
  """Yields growing numbers of devices, which divide the target's heads."""
  num_heads = case.target.family.target.config.num_heads
  for doublings in range(_MOST_DEVICES.bit_length()):
    num = 2**doublings
    if num_heads % num:
      return
    yield compilation.several(case.device, config.mesh.data * num)


def _compiled(config: Any, case: _Case) -> dict[str, Any]:
  """Compiles a case; returns its row, or how much memory it lacks."""
  jax.clear_caches()  # Programs of several targets would fill the memory.
  num_parts = _num_parts(config, case.device)
  row: dict[str, Any] = {'mesh': f'{config.mesh.data}x{num_parts}'}
  decoder = _decoder(config, case)
  try:
    program = compilation.compile_decode(
      decoder, case.device, batch_size=case.batch_size
    )
  except compilation.DoesNotFit as error:
    row |= {'fits': False, 'lacking_gigabytes': error.lacking / 1e9}
    return row if config.find_mesh else row | {'needs': _needed(config, case)}
  return row | _chain(decoder) | _row(program)


def _estimated(config: Any, case: _Case) -> dict[str, Any]:
  """Returns the row of a case that is not compiled."""
  decoder = _decoder(config, case)
  num_parts = _num_parts(config, case.device)
  mesh = f'{config.mesh.data}x{num_parts}'
  row: dict[str, Any] = {'mesh': mesh, 'fits': True, **_chain(decoder)}
  try:
    least = compilation.min_bytes(
      decoder, case.device, batch_size=case.batch_size
    )
  except compilation.DoesNotFit as error:
    return row | {'fits': False, 'lacking_gigabytes': error.lacking / 1e9}
  return row | {'least_gigabytes': least / 1e9}


def _chain(decoder: decoding.Decoder) -> dict[str, int]:
  """Returns the draft length of a chain; nothing for a tree."""
  topology = decoder.round_fn.arms[0].drafter.topology
  if topology.num_nodes == topology.depth:
    return {'draft_length': topology.depth}
  return {}


def _needed(config: Any, case: _Case) -> str:
  """Returns the fewest devices that hold parameters and KV caches, or ''."""
  config = config.copy_and_resolve_references()
  config.mesh.model = None
  for device in _growing_meshes(config, case):
    if _num_devices(device) <= _num_devices(case.device):
      continue  # These were too few.
    decoder = _decoder(config, case._replace(device=device))
    try:
      compilation.check_fits(decoder, device, batch_size=case.batch_size)
    except compilation.DoesNotFit:
      continue
    return device.name
  return ''


def _num_parts(config: Any, device: compilation.Device) -> int:
  """Returns the number of devices along 'model'; by default, all."""
  return config.mesh.model or max(1, _num_devices(device) // config.mesh.data)


def _num_devices(device: compilation.Device) -> int:
  """Returns the number of devices of a device name; CPUs count as one."""
  return 1 if device.platform == 'cpu' else len(compilation.jax_devices(device))


def _decoder(
  config: Any,
  case: _Case,
  devices: Sequence[Any] | None = None,
  *,
  fill: bool = False,
) -> decoding.Decoder:
  """Builds a decoder on some devices, with random parameters or only shapes."""
  devices = devices or compilation.jax_devices(case.device)
  num_rows, family = config.mesh.data, case.target.family
  num_parts = _num_parts(config, case.device)
  mesh = None
  if num_rows * num_parts > 1:
    mesh = meshes.make(num_rows, num_parts, devices)
  if case.device.platform == 'cuda':
    family = hardware.fused(family, mesh)
  if mesh is not None:
    split = config.mesh.split_drafters
    family = families.on_mesh(family, mesh, split_drafters=split)
  family = hardware.filled(family) if fill else family
  return methods_lib.build(case.method, family, config.max_length).decoder


def _with_rounds(
  config: Any,
  workdir: workdirs.Workdir,
  units: list[dict[str, Any]],
  cases: list[_Case],
  outcomes: list[dict[str, Any]],
) -> list[dict[str, Any]]:
  """Returns outcomes with the measured rounds of cases that fit."""
  names = 'rounds', 'repeats'
  settings = {name: config[name] for name in names} | {
    'measured_on': measure.device(),
    'xla_flags': os.environ.get('XLA_FLAGS', ''),
    'trace': config.trace,
  }
  # With find_mesh, the outcome has the device.
  fitting = {
    i: cases[i]._replace(
      device=compilation.find(outcome.get('device', cases[i].device.name))
    )
    for i, outcome in enumerate(outcomes)
    if outcome['fits']
  }
  fitting_units = [units[i] | settings for i in fitting]
  compute = functools.partial(_timed, config)
  logged = log.resume(
    workdir, fitting_units, compute, 'rounds', list(fitting.values())
  )
  measured = {
    i: timing | _bandwidth_shares(outcomes[i], timing)
    for i, timing in zip(fitting, limits.until_deadline(workdir, logged))
  }
  return [outcome | measured.get(i, {}) for i, outcome in enumerate(outcomes)]


def _bandwidth_shares(
  outcome: dict[str, Any], timing: dict[str, Any]
) -> dict[str, float]:
  """Returns the shares of a copy's and of the device's bandwidth in a round."""
  if not timing['fits']:
    return {}
  size = outcome.get('gigabytes', outcome.get('least_gigabytes'))
  per_second = 1e3 * size / timing['measured_ms']
  row = {'share_of_copy': per_second / timing['copy_gigabytes_per_second']}
  if 'round_ms' in outcome:
    ratio = outcome['round_ms'] / timing['measured_ms']
    row['predicted_over_measured'] = ratio
  return row


def _timed(config: Any, case: _Case) -> dict[str, Any]:
  """Measures a round and a copy on the available devices."""
  jax.clear_caches()
  devices = hardware.devices(case.device)
  try:
    decoder = _decoder(config, case, devices, fill=True)
    seconds, bandwidth = hardware.round_seconds(
      decoder,
      case.batch_size,
      config.max_length,
      config.rounds,
      config.repeats,
      config.copied_megabytes * 10**6,
    )
    kernels = _traced(config, case, decoder) if config.trace else {}
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


def _traced(
  config: Any, case: _Case, decoder: decoding.Decoder
) -> dict[str, Any]:
  """Profiles rounds; returns the number and times of kernels per round."""
  trace = hardware.traced_rounds(
    decoder, case.batch_size, config.max_length, config.rounds
  )
  return {
    'launched': sum(trace.kernels.values()),
    'busy_ms': 1e3 * sum(trace.seconds.values()),
    **{f'{kind}_ms': 1e3 * time for kind, time in trace.seconds.items()},
    'longest': ', '.join(
      f'{name} {1e3 * time:.3f}' for name, time in trace.longest.items()
    ),
  }


def figures(rows):
  """Draws bytes over the lower bound, and predicted speed-ups, by method."""
  labels = {
    'over_least': 'bytes per round over the lower bound',
    'speed_up': 'predicted speed-up over plain decoding',
    'projected_speed_up': 'speed-up for measured rounds, assumed acceptance',
  }
  labelled = [row | {'case': _case_label(row, rows)} for row in rows]
  return {
    column: plots.bars(known, 'case', column, 'method', ylabel=label)
    for column, label in labels.items()
    if (known := [row for row in labelled if row.get(column) is not None])
  }


def _case_label(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
  """Returns the columns that differ between rows, without the method."""
  columns = {'target': '', 'device': '', 'batch_size': 'batch '}
  return ', '.join(
    f'{unit}{row[column]}'
    for column, unit in columns.items()
    if len({other[column] for other in rows}) > 1
  )


def _row(program: compilation.Program) -> dict[str, Any]:
  """Returns the statistics of a compiled program, in the units of tables."""
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
  analysis = program.inspection
  if analysis.collectives:
    row['collectives'] = ', '.join(
      f'{num} {op}' for op, num in sorted(analysis.num_collectives.items())
    )
    row['collective_megabytes'] = sum(analysis.collectives.values()) / 1e6
  if program.device.bandwidth is not None:
    row['round_ms'] = 1e3 * program.seconds
  return row


def _add_kernels_per_layer(
  rows: list[dict[str, Any]], shapes: list[dict[str, Any]]
) -> None:
  """Adds kernels per layer, from targets that differ only in depth."""
  previous: dict[Any, tuple[Any, int]] = {}
  for row, row_shapes in zip(rows, shapes):
    if row['kernels'] is None:
      continue  # It does not fit.
    target = row_shapes['target']
    num_layers = target['num_layers']
    width = {**row_shapes, 'target': {**target, 'num_layers': None}}
    key = row['device'], row['batch_size'], row['method'], str(width)
    kernels, depth = previous.get(key, (row['kernels'], num_layers))
    if num_layers != depth:
      added = row['kernels'] - kernels
      row['kernels_per_layer'] = added / (num_layers - depth)
    previous[key] = row['kernels'], num_layers


def _measured(measured: Any, cases: Sequence['_Case']) -> dict[str, float]:
  """Reads measured block efficiencies, by the label of a method."""
  labels = {case.method.label for case in cases}
  where = dict(measured.rows)
  rows = [row for file in measured.files for row in results.read(file)['rows']]
  return {
    row['method']: row['block_efficiency']
    for row in rows
    if row['method'] in labels
    and all(row.get(name) == value for name, value in where.items())
  }


def _with_predictions(
  rows: list[dict[str, Any]],
  measured: dict[str, float],
  acceptance: float | None = None,
) -> list[dict[str, Any]]:
  """Adds speeds that follow from block efficiencies and round times.

  Args:
    rows: the rows, which are changed in place.
    measured: block efficiencies by the label of a method.
    acceptance: the assumed acceptance rate of chains that were not measured.
  """
  for row in rows:
    tokens, length = measured.get(row['method']), row.get('draft_length')
    if length == 0:
      tokens = 1.0
    elif tokens is None and acceptance and length is not None:
      tokens = constant.block_efficiency(acceptance, length)
    milliseconds = row.get('round_ms') or row.get('measured_ms')
    if milliseconds and tokens is not None:
      row['block_efficiency'] = tokens
  _add_speeds(rows, 'round_ms', 'tokens_per_second', 'speed_up')
  _add_speeds(
    rows, 'measured_ms', 'projected_tokens_per_second', 'projected_speed_up'
  )
  return rows


def _add_speeds(
  rows: list[dict[str, Any]], round_ms: str, speed: str, speed_up: str
) -> None:
  """Adds tokens per second, and the speed-up over plain decoding."""
  plain: dict[Any, float] = {}
  for row in rows:
    if 'block_efficiency' in row and row.get(round_ms):
      row[speed] = 1e3 * row['block_efficiency'] / row[round_ms]
      if row['method'] == compare.REFERENCE:
        plain[_key(row)] = row[speed]
  for row in rows:
    if speed in row and _key(row) in plain:
      row[speed_up] = row[speed] / plain[_key(row)]


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
  """Returns the columns that are equal for comparable methods."""
  return tuple(row[column] for column in ('target', 'device', 'batch_size'))
