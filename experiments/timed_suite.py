"""Runs several configs one after another, each with a time limit.

`config.parts` are runs, in the order of their names. Each part is a dictionary:

    config           the path of a config, with its argument if there is one
    fields           values of its fields, nested as they are in the config
    small            further values with `config.small`, for a rehearsal
    minutes          the time limit
    command_buffers  whether XLA runs whole decodes as CUDA graphs

Each part has a folder in the workdir and resumes where it stopped. A part that
runs out of time keeps its finished work, and the next one starts. Results and
parameters are copied to the folder `kept`, next to a summary of all parts.

Each part is a separate process: it has its XLA flags before JAX starts, can be
killed at any time, and frees the device's memory when it ends. Hence this
process never uses the device.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import Any
from typing import NamedTuple

import jax
import pandas as pd

from experiments import main
from experiments import reproduce
from experiments.accelerators import hardware
from experiments.common import configs
from experiments.common import limits
from experiments.common import prompts as prompts_lib
from experiments.common import results
from experiments.common import workdirs
from specjax import compilation
from specjax import families
from specjax import json_files
from specjax.compilation import command_buffers
from specjax.data import examples

MAY_CHANGE = 'environment', 'parts'
# Experiments that start no work after a deadline, and write what is finished.
_EXPERIMENTS = (
  'accelerators.estimates',
  'compare',
  'train.distill',
  'train.heads',
  'train.responses',
)
# Placeholders for the suite's values in the fields of a part.
_FAMILY, _DEVICE, _WORKDIR = 'FAMILY', 'DEVICE', 'WORKDIR'
_KEYS = 'config', 'fields', 'small', 'minutes', 'command_buffers'
_STATES = 'parts.json'
_SUMMARY = 'summary.md'
_KEPT_FOLDER = 'kept'
_KEPT = 'results.json', '*.safetensors', '*.npz'
_DONE, _RAN_OUT, _FAILED = 'done', 'ran out of time', 'failed'
_LEFT_OUT, _STOPPED = 'left out', 'stopped'
# Seconds between two updates of the time that a part has taken.
_PAUSE = 5.0
# Seconds to wait for the device to answer.
_PATIENCE = 180.0


class _Part(NamedTuple):
  """A run with a time limit."""

  name: str
  run: reproduce.LoadedRun
  minutes: float
  unfit: str = ''  # the reason to leave it out


class _State(NamedTuple):
  """The state of a part."""

  state: str
  minutes: float = 0.0
  message: str = ''


def prepare(config, workdir=_WORKDIR):
  """Returns the parts; nothing runs, and the device is not used."""
  if not config.parts:
    raise ValueError('parts must hold at least one run, got none.')
  if not os.path.isdir(os.path.expanduser(config.data_dir)):
    raise ValueError(f'data_dir must be a folder, got {config.data_dir!r}.')
  configs.check_counts(config, ['reserve'], 0)
  compilation.find(config.device)
  return [_part(config, name, workdir) for name in config.parts]


def run(config, workdir):
  """Runs the parts; returns a row per part."""
  if command_buffers.are_enabled():
    raise ValueError(
      'command_buffers must be set for parts, as parts.NAME.command_buffers, '
      'and neither for the suite nor in XLA_FLAGS, which all parts inherit.'
    )
  jax.config.update('jax_platforms', 'cpu')  # The device is for the parts.
  parts = prepare(config, str(workdir))
  _check_available(config, parts)
  path = os.path.join(workdir, _STATES)
  states = {
    name: _State(**fields)
    for name, fields in json_files.read(str(workdir), _STATES).items()
  }

  shown = dict(states)  # Includes errors of copying files.

  def note(name, state):
    states[name] = state
    encoded = {name: state._asdict() for name, state in states.items()}
    results.save_json(path, encoded)

  for number, part in enumerate(parts, 1):
    part, message = _without_missing_drafters(part, str(workdir))
    parts[number - 1] = part
    print(f'\n[{number} of {len(parts)}] {part.name}: {part.run.command}')
    last_state = states.get(part.name)
    for state in _states(config, workdir, part, last_state):
      is_new = state is not last_state
      note(part.name, _add(state, message) if is_new else state)
    shown[part.name] = _add(states[part.name], _keep(workdir, part))
    print(_message(shown[part.name]), flush=True)
    _summarize(config, workdir, parts, shown)
  kept = os.path.join(workdir, _KEPT_FOLDER)
  print(f'\nResults and parameters are in {kept}.')
  return _rows(workdir, parts, shown)


def device(config):
  """Returns the device of the parts, which is not that of this process."""
  return config.device


def _part(config: Any, name: str, workdir: str) -> _Part:
  """Parses the entry of a part, with the suite's values for placeholders."""
  entry = config.parts[name]
  location = f'parts.{name}'
  configs.check_known(entry, _KEYS, f'{location}: Unknown key', ' of a part')
  if not entry.minutes > 0:
    raise ValueError(f'{location}.minutes must be > 0, got {entry.minutes}.')
  fields = entry.fields.to_dict()
  if config.small:
    fields = _merge(fields, entry.small.to_dict())
  values = {
    main.DATA: config.data_dir,
    _FAMILY: config.family,
    _DEVICE: config.device,
    _WORKDIR: workdir,
  }
  run = reproduce.load_run(entry.config, fields, values, location)
  if run.config.experiment not in _EXPERIMENTS:
    raise ValueError(
      f'{location}.config must be a config of an experiment that respects '
      f'deadlines ({", ".join(_EXPERIMENTS)}), got {run.config.experiment!r}.'
    )
  part = _Part(name, run, entry.minutes)
  if not entry.command_buffers:
    return part
  part = part._replace(run=run._replace(flags=('--command_buffers',)))
  if compilation.find(config.device).platform == 'cuda':
    return part
  return part._replace(unfit=f'{config.device} has no command buffers.')


def _merge(fields: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
  """Returns nested fields with changes."""
  merged = dict(fields)
  for name, value in changes.items():
    old = fields.get(name)
    both = isinstance(old, dict) and isinstance(value, dict)
    merged[name] = _merge(old, value) if both else value
  return merged


def _without_missing_drafters(part: _Part, workdir: str) -> tuple[_Part, str]:
  """Removes drafters that earlier parts should have trained, but did not.

  Returns:
    The part without these drafters and the methods that use them, and a
    sentence that names them, or ''. If no drafter is left, the part is unfit.
  """
  drafters = prompts_lib.drafter_paths(part.run.config) or {}
  missing = [
    name
    for name, path in drafters.items()
    if str(path).startswith(workdir + os.sep) and not os.path.exists(path)
  ]
  if not missing:
    return part, ''
  message = f'There are no files for drafters {", ".join(missing)}.'
  if len(missing) == len(drafters):
    return part._replace(unfit=message), ''
  uses = re.compile(rf'\b({"|".join(map(re.escape, missing))})\b').search
  methods = part.run.config.methods
  changes = {
    'drafters': {n: path for n, path in drafters.items() if n not in missing},
    'methods': tuple(method for method in methods if not uses(method)),
  }
  return part._replace(run=part.run.change(changes)), message


def _check_available(config: Any, parts: list[_Part]) -> None:
  """Checks the device, the family and the texts before any part runs.

  Raises:
    ValueError: one of these is missing.
  """
  command = [sys.executable, '-m', 'experiments.timed_suite']
  reads = any(part.run.config.get('data_dir') for part in parts)
  folders = [config.data_dir] if reads else []
  try:
    ended = subprocess.run(
      [*command, config.device, config.family, *folders],
      capture_output=True,
      text=True,
      check=False,
      env=_environment(config),
      timeout=_PATIENCE,
    )
  except subprocess.TimeoutExpired:
    raise ValueError(
      f'device {config.device!r} did not answer within {_PATIENCE:.0f} seconds.'
    ) from None
  if ended.returncode:
    reason = _reason(ended.returncode, ended.stderr)
    if ended.returncode < 0:
      reason = f'device {config.device!r} could not be found: {reason}'
    raise ValueError(reason)


def _states(
  config: Any,
  workdir: str | os.PathLike[str],
  part: _Part,
  last_state: _State | None,
) -> Iterator[_State]:
  """Runs a part and yields its states.

  Parts that failed or were stopped are tried again while they have time.

  Args:
    config: the config of the suite.
    workdir: the folder of the suite.
    part: the part.
    last_state: its state from an earlier run of the suite.
  """
  last_state = last_state or _State(_STOPPED)
  remaining = part.minutes - last_state.minutes
  ran_out = last_state.state == _RAN_OUT and remaining <= config.reserve
  if ran_out or last_state.state == _DONE:
    yield last_state
    return
  if part.unfit:
    yield _State(_LEFT_OUT, last_state.minutes, part.unfit)
    return
  seconds = 60 * remaining
  minutes = lambda spent: last_state.minutes + spent / 60
  spent = reserve_spent = 0.0
  if seconds > 0:
    reserve = min(60 * config.reserve, seconds / 2)
    with _started(config, workdir, part, seconds - reserve) as (process, text):
      for code, spent in _watched(process, seconds):
        if code is not None:
          yield _ended(code, text(), minutes(spent))
          return
        yield _State(_STOPPED, minutes(spent))
  # The part has used up its time: the reserve is for tables of logged work.
  with _started(config, workdir, part, 0.0) as (process, text):
    for code, reserve_spent in _watched(process, 60 * config.reserve):
      if code is not None:
        yield _ended(code, text(), minutes(spent + reserve_spent))
        return
      yield _State(_STOPPED, minutes(spent + reserve_spent))
  message = 'Its tables were not written in time.'
  yield _State(_RAN_OUT, minutes(spent + reserve_spent), message)


@contextlib.contextmanager
def _started(
  config: Any,
  workdir: str | os.PathLike[str],
  part: _Part,
  seconds: float,
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
  """Starts a part, which begins no work after `seconds`.

  Yields:
    The process, and a function that returns its output so far.
  """
  folder = os.path.join(workdir, part.name)
  path = _log_path(workdir, part)
  with open(path, 'a', encoding='utf-8') as log:
    begin = os.path.getsize(path)  # Earlier runs have written this far.
    process = subprocess.Popen(
      _command([*part.run.arguments, f'--workdir={folder}']),
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=log,
      env=_environment(config) | limits.environment(seconds),
    )
    try:
      yield process, lambda: _read(path, begin)
    finally:
      process.kill()
      process.wait()


def _read(path: str, begin: int) -> str:
  """Returns the text of a file from a byte on."""
  return pathlib.Path(path).read_bytes()[begin:].decode('utf-8', 'replace')


def _command(arguments: list[str]) -> list[str]:
  """Returns the command that runs a config in a separate process."""
  return [sys.executable, '-m', 'experiments.main', *arguments]


def _environment(config: Any) -> dict[str, str]:
  return {**os.environ, **config.environment.to_dict()}


def _watched(
  process: subprocess.Popen[bytes], seconds: float
) -> Iterator[tuple[int | None, float]]:
  """Watches a process for `seconds`.

  Yields:
    The exit status of the process, or None while it runs, and its time so far.
  """
  began = time.monotonic()
  while True:
    remaining = began + seconds - time.monotonic()
    with contextlib.suppress(subprocess.TimeoutExpired):
      process.wait(max(0.0, min(_PAUSE, remaining)))
    code, spent = process.poll(), time.monotonic() - began
    yield code, spent
    if code is not None or spent >= seconds:
      return


def _ended(code: int, text: str, minutes: float) -> _State:
  """Returns the state of a part that has ended, from its status and output."""
  if code in (0, limits.STATUS):
    return _State(_RAN_OUT if code else _DONE, minutes)
  return _State(_FAILED, minutes, _reason(code, text))


def _log_path(workdir: str | os.PathLike[str], part: _Part) -> str:
  return os.path.join(workdir, f'{part.name}.log')


def _reason(code: int, text: str) -> str:
  """Returns why a process failed: its last line, exit status or signal."""
  if code < 0:
    return f'The process was terminated by {signal.Signals(-code).name}.'
  lines = text.strip().splitlines()
  if not lines:
    return f'The process ended with exit status {code}.'
  return lines[-1].removeprefix('Error: ')


def _message(state: _State) -> str:
  """Formats a state as sentences."""
  duration = f' after {state.minutes:.1f} minutes' if state.minutes else ''
  return f'{state.state}{duration}. {state.message}'.rstrip()


def _add(state: _State, message: str) -> _State:
  """Adds a sentence to the message of a state."""
  return state._replace(message=f'{state.message} {message}'.strip())


def _keep(workdir: str | os.PathLike[str], part: _Part) -> str:
  """Copies the results and parameters of a part; returns error messages."""
  kept, failures = _kept_folder(workdir, part), []
  for path in _files_to_keep(pathlib.Path(str(workdir), part.name)):
    copy = kept / f'{path.name}.part'
    try:
      kept.mkdir(parents=True, exist_ok=True)
      shutil.copyfile(path, copy)
      os.replace(copy, kept / path.name)
    except OSError as error:
      with contextlib.suppress(OSError):
        copy.unlink(missing_ok=True)
      failures.append(f'Cannot keep {path.name}: {error.strerror}.')
  return ' '.join(failures)


def _files_to_keep(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns the results and parameters in a folder."""
  return sorted(path for pattern in _KEPT for path in folder.glob(pattern))


def _kept_folder(workdir: str | os.PathLike[str], part: _Part) -> pathlib.Path:
  return pathlib.Path(str(workdir), _KEPT_FOLDER, part.name)


def _rows(
  workdir: str | os.PathLike[str],
  parts: list[_Part],
  states: dict[str, _State],
) -> list[dict[str, Any]]:
  """Returns a row per part."""
  rows = []
  for part in parts:
    state = states.get(part.name, _State('not begun'))
    kept = _files_to_keep(_kept_folder(workdir, part))
    rows.append(
      {
        'name': part.name,
        'state': state.state,
        'minutes': state.minutes,
        'limit': part.minutes,
        'megabytes': sum(path.stat().st_size for path in kept) / 1e6,
        'kept': ', '.join(path.name for path in kept),
        'message': state.message or None,
      }
    )
  return rows


def _summarize(
  config: Any,
  workdir: str | os.PathLike[str],
  parts: list[_Part],
  states: dict[str, _State],
) -> None:
  """Writes the states and tables of all parts."""
  shown = _code_block(results.cells(_rows(workdir, parts, states)))
  lines = [f'# Parts on {config.device}', '', *shown]
  for part in parts:
    path = _kept_folder(workdir, part) / results.FILE
    if not path.exists():
      continue
    content = results.read(path)
    lines += ['', f'## {part.name}', '', f'`{part.run.command}`', '']
    lines += [f'Device: {content["device"]}.', '']
    for table in results.tables(content['rows'], part.run.config):
      lines += _code_block(table)
  folder = os.path.join(workdir, _KEPT_FOLDER)
  os.makedirs(folder, exist_ok=True)
  workdirs.replace(os.path.join(folder, _SUMMARY), '\n'.join([*lines, '']))


def _code_block(table: pd.DataFrame) -> list[str]:
  return ['```', results.text(table), '```']


def _check(device: str, family: str, *folders: str) -> None:
  """Raises `ValueError` if the device, the family or texts are missing."""
  hardware.devices(compilation.find(device))
  families.load(family)
  for folder, split in itertools.product(folders, ('train', 'eval')):
    examples.read_split(folder, split)


if __name__ == '__main__':
  try:
    _check(*sys.argv[1:])
  except ValueError as error:
    raise SystemExit(f'Error: {error}') from error
