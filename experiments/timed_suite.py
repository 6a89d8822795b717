"""Runs one after another, each a process of its own with a limit of minutes.

`config.parts` are runs by name, which is their order. Each has a folder in the
workdir, and goes on where it stopped. A part that runs out of time keeps what
it has done, and the next one starts; what a part leaves that is worth keeping
is copied to the folder `kept`, next to a summary of all parts.

A process of its own has its XLA flags before JAX starts, can be killed
whatever it does, and returns all of the device's memory when it ends. So this
process never touches the device.
"""

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

from experiments import main
from experiments import reproduce
from experiments.common import configs
from experiments.common import hardware
from experiments.common import limits
from experiments.common import results
from experiments.common import workdirs
from specjax import compilation
from specjax import families
from specjax import json_files
from specjax.compilation import command_buffers
from specjax.data import examples

MAY_CHANGE = 'environment', 'parts'
# Experiments that begin no work after a deadline, and write what is done.
_EXPERIMENTS = (
  *('accelerators', 'compare'),
  *('train.distill', 'train.heads', 'train.responses'),
)
# What the fields of a part call the config's own values.
_FAMILY, _DEVICE, _WORKDIR = 'FAMILY', 'DEVICE', 'WORKDIR'
_STATES = 'parts.json'
_SUMMARY = 'summary.md'
_KEPT_FOLDER = 'kept'
_KEPT = 'results.json', '*.safetensors', '*.npz'
_DONE, _RAN_OUT, _FAILED = 'done', 'ran out of time', 'failed'
_LEFT_OUT, _STOPPED = 'left out', 'stopped'
# Seconds between two notes of how long a part has taken.
_PAUSE = 5.0
# Seconds in which a device answers, or does not.
_PATIENCE = 180.0


class _Part(NamedTuple):
  """A run with a limit."""

  name: str
  words: list[str]  # the path of its config, and flags
  command: str
  config: Any
  minutes: float
  unfit: str  # why it is left out, or ''


class _State(NamedTuple):
  """What has become of a part."""

  state: str
  minutes: float = 0.0
  message: str = ''


def prepare(config, workdir=_WORKDIR):
  """Returns the parts; nothing is run, and no device is touched."""
  if not config.parts:
    raise ValueError('parts must hold at least one run, got none.')
  if not os.path.isdir(os.path.expanduser(config.data_dir)):
    raise ValueError(f'data_dir must be a folder, got {config.data_dir!r}.')
  configs.check_counts(config, ['reserve'], 0)
  compilation.find(config.device)
  return [_part(config, name, workdir) for name in config.parts]


def run(config, workdir):
  """Runs the parts; returns a row for each."""
  if command_buffers.are_enabled():
    raise ValueError(
      'command_buffers must be set for parts, as parts.NAME.command_buffers, '
      'and neither for the suite nor in XLA_FLAGS, which all parts inherit.'
    )
  jax.config.update('jax_platforms', 'cpu')  # The device is for the parts.
  parts = prepare(config, str(workdir))
  _check_all_there(config, parts)
  path = os.path.join(workdir, _STATES)
  states = {
    name: _State(**fields)
    for name, fields in json_files.read(str(workdir), _STATES).items()
  }

  shown = dict(states)  # With what could not be kept.

  def note(name, state):
    states[name] = state
    noted = {name: each._asdict() for name, each in states.items()}
    results.save_json(path, noted)

  for number, part in enumerate(parts, 1):
    part, lacking = _with_drafters_there(part, str(workdir))
    parts[number - 1] = part
    print(f'\n[{number} of {len(parts)}] {part.name}: {part.command}')
    before = states.get(part.name)
    for state in _states(config, workdir, part, before):
      note(part.name, state if state is before else _add(state, lacking))
    shown[part.name] = _add(states[part.name], _keep(workdir, part))
    print(_message(shown[part.name]), flush=True)
    _summarize(config, workdir, parts, shown)
  kept = os.path.join(workdir, _KEPT_FOLDER)
  print(f'\nWhat is worth keeping is in {kept}.')
  return _rows(workdir, parts, shown)


def device(config):
  """Returns the device of the parts; this process has another one."""
  return config.device


def _part(config, name, workdir):
  """Reads the entry of a part, with the config's values in its fields."""
  entry = config.parts[name]
  place = f'parts.{name}'
  if not entry.minutes > 0:
    raise ValueError(f'{place}.minutes must be > 0, got {entry.minutes}.')
  fields = [*entry.fields, *(entry.small if config.small else ())]
  words = [entry.config, *(f'--config.{field}' for field in fields)]
  values = {
    main.DATA: config.data_dir,
    _FAMILY: config.family,
    _DEVICE: config.device,
    _WORKDIR: workdir,
  }
  placeholder = re.compile('|'.join(values))
  words = [placeholder.sub(lambda found: values[found[0]], x) for x in words]
  if entry.command_buffers:
    words.append('--command_buffers')
  try:
    command, values = reproduce.parse(words)
  except ValueError as error:
    raise ValueError(f'{place}: {error}') from None
  parsed, unfit = values.config, ''
  if parsed.experiment not in _EXPERIMENTS:
    raise ValueError(
      f'{place}.config must be a config of an experiment that ends in time, '
      f'which are {", ".join(_EXPERIMENTS)}, got {parsed.experiment!r}.'
    )
  platform = compilation.find(config.device).platform
  if entry.command_buffers and platform != 'cuda':
    unfit = f'There are no command buffers on {config.device}.'
  return _Part(name, words, command, parsed, entry.minutes, unfit)


def _with_drafters_there(part, workdir):
  """Leaves out drafters that earlier parts should have left, but did not.

  Returns:
    The part without these drafters and the methods that use them, and a
    sentence that names them, or ''. If no drafter is left, the part is unfit.
  """
  drafters = configs.dictionary(part.config, 'drafters', {}) or {}
  missing = [
    name
    for name, path in drafters.items()
    if str(path).startswith(workdir + os.sep) and not os.path.exists(path)
  ]
  if not missing:
    return part, ''
  lacking = f'There are no files for drafters {", ".join(missing)}.'
  if len(missing) == len(drafters):
    return part._replace(unfit=lacking), ''
  uses = re.compile(rf'\b({"|".join(map(re.escape, missing))})\b').search
  left = {name: drafters[name] for name in drafters if name not in missing}
  methods = tuple(method for method in part.config.methods if not uses(method))
  flags = f'--config.drafters={left}', f'--config.methods={methods}'
  # A tuple that is given twice would be both, one after another.
  replaced = tuple(flag.partition('=')[0] + '=' for flag in flags)
  words = [word for word in part.words if not word.startswith(replaced)]
  words += flags
  command, values = reproduce.parse(words)
  part = part._replace(words=words, command=command, config=values.config)
  return part, lacking


def _check_all_there(config, parts):
  """Refuses what is missing before any minute is spent.

  Raises:
    ValueError: there is no such device or family, or texts are missing that a
      part reads.
  """
  command = [sys.executable, '-m', 'experiments.timed_suite']
  reads = any(part.config.get('data_dir') for part in parts)
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
      reason = f'device {config.device!r} could not be looked for: {reason}'
    raise ValueError(reason)


def _states(config, workdir, part, before):
  """Runs a part, and yields what has become of it so far; the last state ends.

  What failed or was stopped is tried again, as long as it has time.
  """
  before = before or _State(_STOPPED)
  left = part.minutes - before.minutes
  ran_out = before.state == _RAN_OUT and left <= config.reserve
  if ran_out or before.state == _DONE:
    yield before
    return
  if part.unfit:
    yield _State(_LEFT_OUT, before.minutes, part.unfit)
    return
  seconds = 60 * left
  minutes = lambda spent: before.minutes + spent / 60
  spent = more = 0.0
  if seconds > 0:
    reserve = min(60 * config.reserve, seconds / 2)
    with _started(config, workdir, part, seconds - reserve) as (process, text):
      for code, spent in _watched(process, seconds):
        if code is not None:
          yield _ended(code, text(), minutes(spent))
          return
        yield _State(_STOPPED, minutes(spent))
  # It has used up its time without an end: what it has logged makes a table.
  with _started(config, workdir, part, 0.0) as (process, text):
    for code, more in _watched(process, 60 * config.reserve):
      if code is not None:
        yield _ended(code, text(), minutes(spent + more))
        return
      yield _State(_STOPPED, minutes(spent + more))
  late = 'Its tables were not written in time.'
  yield _State(_RAN_OUT, minutes(spent + more), late)


@contextlib.contextmanager
def _started(config, workdir, part, seconds):
  """Starts a part, which begins no work after so many seconds.

  Yields the process, and a function that returns what it has written.
  """
  folder = os.path.join(workdir, part.name)
  path = _log_path(workdir, part)
  with open(path, 'a', encoding='utf-8') as log:
    begin = os.path.getsize(path)  # What is there, others have written.
    process = subprocess.Popen(
      _command([*part.words, f'--workdir={folder}']),
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


def _read(path, begin):
  """Returns the text of a file from a byte on."""
  return pathlib.Path(path).read_bytes()[begin:].decode('utf-8', 'replace')


def _command(words):
  """What runs a config in a process of its own."""
  path, *flags = words
  module = [sys.executable, '-m', 'experiments.main']
  return [*module, f'--config={path}', *flags]


def _environment(config):
  return {**os.environ, **config.environment.to_dict()}


def _watched(process, seconds):
  """Yields the exit status of a process, or None, and how long it has run.

  A process that takes longer is killed, and its last status is None.
  """
  began = time.monotonic()
  while True:
    left = began + seconds - time.monotonic()
    with contextlib.suppress(subprocess.TimeoutExpired):
      process.wait(max(0.0, min(_PAUSE, left)))
    code, spent = process.poll(), time.monotonic() - began
    yield code, spent
    if code is not None or spent >= seconds:
      return


def _ended(code, text, minutes):
  """The state of a part that has ended by itself and has written a text."""
  if code in (0, limits.STATUS):
    return _State(_RAN_OUT if code else _DONE, minutes)
  return _State(_FAILED, minutes, _reason(code, text))


def _log_path(workdir, part):
  return os.path.join(workdir, f'{part.name}.log')


def _reason(code, text):
  """Why a process has failed: its last line, or its exit status or signal."""
  if code < 0:
    return f'The process was ended by {signal.Signals(-code).name}.'
  lines = text.strip().splitlines()
  if not lines:
    return f'The process ended with exit status {code}.'
  return lines[-1].removeprefix('Error: ')


def _message(state):
  """The sentences that are shown for a state."""
  after = f' after {state.minutes:.1f} minutes' if state.minutes else ''
  return f'{state.state}{after}. {state.message}'.rstrip()


def _add(state, message):
  """The state with one more sentence, or with none if it is ''."""
  return state._replace(message=f'{state.message} {message}'.strip())


def _keep(workdir, part):
  """Copies what a part leaves that is worth keeping; returns what failed."""
  kept, failures = _kept_folder(workdir, part), []
  for path in _worth_keeping(pathlib.Path(str(workdir), part.name)):
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


def _worth_keeping(folder):
  """The files of a folder that are worth keeping."""
  return sorted(path for each in _KEPT for path in folder.glob(each))


def _kept_folder(workdir, part):
  return pathlib.Path(str(workdir), _KEPT_FOLDER, part.name)


def _rows(workdir, parts, states):
  """A row for each part."""
  rows = []
  for part in parts:
    state = states.get(part.name, _State('not begun'))
    kept = _worth_keeping(_kept_folder(workdir, part))
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


def _summarize(config, workdir, parts, states):
  """Writes the states of all parts, and the table of each."""
  shown = _in_a_block(results.cells(_rows(workdir, parts, states)))
  lines = [f'# Parts, on {config.device}', '', *shown]
  for part in parts:
    path = _kept_folder(workdir, part) / results.FILE
    if not path.exists():
      continue
    content = results.read(path)
    lines += ['', f'## {part.name}', '', f'`{part.command}`', '']
    lines += [f'On {content["device"]}.', '']
    for cells in results.shown(content['rows'], part.config):
      lines += _in_a_block(cells)
  folder = os.path.join(workdir, _KEPT_FOLDER)
  os.makedirs(folder, exist_ok=True)
  workdirs.replace(os.path.join(folder, _SUMMARY), '\n'.join([*lines, '']))


def _in_a_block(cells):
  return ['```', results.table(cells), '```']


def _check(device, family, *folders):
  """Raises a `ValueError` for what is missing, in this process."""
  hardware.devices(compilation.find(device))
  families.load(family)
  for folder, split in itertools.product(folders, ('train', 'eval')):
    examples.read_split(folder, split)


if __name__ == '__main__':
  try:
    _check(*sys.argv[1:])
  except ValueError as error:
    raise SystemExit(f'Error: {error}') from error
