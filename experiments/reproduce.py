"""Runs all experiments of a paper, and generates their tables.

Each entry of `config.runs` is a dictionary:

    config   the path of a config, with its argument if there is one
    fields   values of its fields, nested as they are in the config
    workdir  the folder of a run whose files other runs read; its results are
             not kept

In all strings, DATA is replaced by `config.data_dir`. A run without its own
workdir has a folder in the workdir of the suite. It resumes where it stopped.
"""

from collections.abc import Mapping
import copy
import os
import pathlib
import re
import time
from typing import Any
from typing import NamedTuple

import jax

from experiments import main
from experiments import report
from experiments.common import configs
from experiments.common import processes

MAY_CHANGE = 'runs', 'project'
_KEYS = 'config', 'fields', 'workdir'


class LoadedRun(NamedTuple):
  """A run of a suite whose config is loaded."""

  path: str  # of the config
  values: dict[str, Any]  # of changed fields; nested names have dots
  config: Any
  flags: tuple[str, ...] = ()  # further flags of `experiments.main`
  workdir: str = ''  # '' for a folder in the workdir of the suite

  @property
  def arguments(self) -> list[str]:
    """Returns the arguments of `experiments.main`, without the workdir."""
    values = [f'--config.{name}={value}' for name, value in self.values.items()]
    return [f'--config={self.path}', *values, *self.flags]

  @property
  def command(self) -> str:
    """Returns the command that runs the config, without the workdir."""
    return main.command_line(['main', *self.arguments])

  def change(self, fields: Mapping[str, Any]) -> 'LoadedRun':
    """Returns the run with further changes of fields; see `configs.change`."""
    config = copy.deepcopy(self.config)
    values = self.values | configs.change(config, fields)
    return self._replace(values=values, config=config)


def prepare(config):
  """Returns the runs, with their configs."""
  if not config.runs:
    raise ValueError('runs must hold at least one config, got none.')
  if _fill(config.runs, {main.DATA: ''}) != tuple(config.runs):
    if not os.path.isdir(os.path.expanduser(config.data_dir)):
      raise ValueError(f'data_dir must be a folder, got {config.data_dir!r}.')
  return [
    _load_entry(config, entry, f'runs[{i}]')
    for i, entry in enumerate(config.runs)
  ]


def run(config, workdir):
  """Runs everything, and writes the tables.

  With `config.project`, results are kept in the project's docs/results, and
  otherwise in the same folder inside the workdir.
  """
  runs = prepare(config)  # All configs are checked before the first run.
  root = report.ROOT if config.project else pathlib.Path(str(workdir))
  for number, loaded in enumerate(runs, 1):
    name = report.result_name(loaded.command).replace('/', '_')
    folder = loaded.workdir or os.path.join(workdir, name)
    print(f'\n[{number} of {len(runs)}] {loaded.command}', flush=True)
    began = time.perf_counter()
    main.run(loaded.config, folder, loaded.command)
    if processes.is_first() and not loaded.workdir:
      report.keep(folder, root)
    jax.clear_caches()  # The next run has other programs.
    minutes = (time.perf_counter() - began) / 60
    print(f'{minutes:.1f} minutes, in {folder}', flush=True)
  if processes.is_first():
    report.write(root, root)
    print(f'\nTables are in {root / report.FOLDER}.')


def _load_entry(config: Any, entry: Any, location: str) -> LoadedRun:
  """Loads an entry of `config.runs`."""
  configs.check_known(entry, _KEYS, f'{location}: Unknown key', ' of a run')
  path, fields = entry.get('config', ''), entry.get('fields', {})
  values = {main.DATA: config.data_dir}
  loaded = load_run(path, fields, values, location)
  return loaded._replace(workdir=entry.get('workdir', ''))


def load_run(
  path: str,
  fields: Mapping[str, Any],
  values: Mapping[str, str],
  location: str,
) -> LoadedRun:
  """Loads a config and changes its fields.

  Args:
    path: the path of the config, with its argument if there is one.
    fields: values of its fields, nested as they are in the config.
    values: replace placeholders, the keys, in the path and in the fields.
    location: in the config of the suite, for error messages.

  Raises:
    ValueError: there is no such config, or no such field.
  """
  try:
    path = _fill(path, values)
    run = LoadedRun(path, {}, configs.load(os.path.expanduser(path)))
    return run.change(_fill(fields, values))
  except ValueError as error:
    raise ValueError(f'{location}: {error}') from None


def _fill(value: Any, values: Mapping[str, str]) -> Any:
  """Replaces placeholders in all strings of a value."""
  if hasattr(value, 'items'):
    return {name: _fill(inner, values) for name, inner in value.items()}
  if isinstance(value, tuple | list):
    return tuple(_fill(inner, values) for inner in value)
  if isinstance(value, str):
    placeholder = re.compile('|'.join(values))
    return placeholder.sub(lambda match: values[match[0]], value)
  return value
