"""Runs an experiment.

python -m experiments.main --config=configs/NAME.py --workdir=DIR [--smoke]
    [--config.field=value] [--config.sweep="{'field': (value, other)}"]

A workdir is of one config: with another one, the run is refused. With the same,
the run goes on where it stopped. `--config.sweep` runs the config once for each
combination of values, in folders of the workdir, and joins their rows.
`--smoke` runs the config at its smallest sizes, to see that it works here;
fields that are set beside it stay as they are set. `--command_buffers` has
XLA run whole decodes as CUDA graphs on NVIDIA's GPUs. --help lists configs and
components; with --config=, it describes that config and its fields.
"""

from collections.abc import Sequence
import contextlib
import functools
import importlib
import os
import re
import shlex
import sys
import typing
from typing import Any

from absl import app
from absl import flags
from absl import logging
import matplotlib
from ml_collections import config_flags

from experiments.common import components
from experiments.common import configs
from experiments.common import limits
from experiments.common import paper
from experiments.common import plots
from experiments.common import processes
from experiments.common import programs
from experiments.common import results
from experiments.common import terminal
from experiments.common import workdirs
from specjax.compilation import command_buffers

_CONFIG = '--config='
SMOKE = '--smoke'
_COMMAND = 'python -m experiments.main'
# What commands call the folder of text.
DATA = 'DATA'
# Fields that change nothing but what is shown of the results.
_SHOWN = ('columns', 'paper', 'pivot')
matplotlib.use('Agg')  # Figures become files; no window opens.


def run(
  config: Any, workdir: str | os.PathLike[str], command: str = ''
) -> list[dict[str, Any]]:
  """Runs the experiment that a config names, once or for each of a sweep.

  The command that asks for it stands with the results, whose rows are returned,
  if there are any.

  Raises:
    limits.OutOfTime: the process reached its deadline; the results hold what
      was done until then.
  """
  points = configs.points(config)
  if points is None:
    with workdirs.Workdir(workdir, config, may_change(config)) as folder:
      rows = _run(config, folder, command)
      _check_complete([folder])
      return rows
  allowed = ('sweep', *may_change(config))
  with contextlib.ExitStack() as stack:
    enter = lambda *args: stack.enter_context(workdirs.Workdir(*args))
    top, runs = enter(workdir, config, allowed), []
    for values, each in points:  # All folders before the first run.
      name = ','.join(f'{field}={value}' for field, value in values.items())
      path = os.path.join(str(top), name.replace(os.sep, '_'))
      runs.append((name, values, each, enter(path, each, may_change(each))))
    rows = []
    for name, values, each, folder in runs:
      print(f'\n{name}')
      rows += [values | row for row in _run(each, folder, command)]
    _finish(top, config, rows, command)
    _check_complete([folder for *_, folder in runs])
    return rows


def _check_complete(folders):
  if any(folder.is_incomplete for folder in folders):
    raise limits.OutOfTime


def _run(config, workdir, command):
  """Runs the experiment of a config, which is no sweep; returns its rows."""
  results.check(workdir)
  rows = experiment(config).run(config, workdir)
  if rows is not None:
    _finish(workdir, config, rows, command)
  return rows or []


def prepare(config: Any) -> list[tuple[Any, Any]]:
  """Reads a config as `run` does, but decodes and compiles nothing.

  Whatever is wrong with the config raises a `ValueError`.

  Returns:
    For each point of a sweep, or for the config itself, its config and what the
    `prepare` of its experiment returns: for experiments that decode, a
    `compare.Plan`; None, if the experiment has no such function.
  """
  module = experiment(config)
  build = getattr(module, 'prepare', lambda config: None)
  points = configs.points(config)
  every = [config] if points is None else [point for _, point in points]
  return [(each, build(each)) for each in every]


def may_change(config: Any) -> tuple[str, ...]:
  """Returns the fields that may differ from those of an earlier run."""
  return (*_SHOWN, *getattr(experiment(config), 'MAY_CHANGE', ()))


def experiment(config: Any) -> Any:
  """Returns the module of the experiment that a config names."""
  name = f'experiments.{config.experiment}'
  try:
    return importlib.import_module(name)
  except ModuleNotFoundError as error:
    if not name.startswith(error.name or ' '):
      raise  # Of something that it imports.
    known = ', '.join(configs.experiments())
    raise ValueError(
      f'Unknown experiment {config.experiment!r}. Known: {known}.'
    ) from None


def figures(config: Any, rows: Any) -> dict[str, Any]:
  """Returns the figures of rows, by name, if the experiment draws any."""
  draw = getattr(experiment(config), 'figures', None)
  return draw(rows) if draw else {}


def _finish(workdir, config, rows, command):
  """Writes rows with the paper's beside them, prints and draws them."""
  theirs = config.get('paper', ())
  beside = paper.beside(paper.unpaired(rows), theirs)
  claims = paper.claims(rows, theirs)
  device = getattr(experiment(config), 'device', lambda config: '')(config)
  results.write(workdir, config.experiment, command, beside, claims, device)
  if not processes.is_first():
    return
  tables = [*results.shown(beside, config), results.cells(claims)]
  print('\n\n'.join(results.table(lines) for lines in tables if lines[0]))
  drawn = figures(config, beside) if beside else {}
  for name, figure in drawn.items():
    path = os.path.join(workdir, f'{name}.png')
    plots.save(figure, path)
    print(f'\n{name.replace("_", " ")}: {path}')


def usage() -> str:
  """Returns what --help shows: all configs and all components."""
  parts = [typing.cast(str, __doc__), 'Configs:', configs.listed()]
  parts.append('\nComponents, by kind:')
  for kind, table in components.KINDS.values():
    parts.append(f'  {kind:<10} {", ".join(sorted(table()))}')
  return '\n'.join(parts)


def parsed(
  argv: Sequence[str], values: flags.FlagValues = flags.FLAGS
) -> list[str]:
  """Loads the config, and parses the flags of its fields into `values`.

  Returns what is left of the arguments.
  """
  paths = [word[len(_CONFIG) :] for word in argv if word.startswith(_CONFIG)]
  if len(paths) != 1:
    raise ValueError(f'Name one config, as in {_CONFIG}configs/quickstart.py.')
  rest = [
    word for word in argv if word != SMOKE and not word.startswith(_CONFIG)
  ]
  path = os.path.expanduser(paths[0])
  config = configs.load(path, smoke=SMOKE in argv)
  configs.check_fields(config, rest)
  sys.argv = rest  # Where the library of flags looks for fields to set.
  config_flags.DEFINE_config_dict(
    'config', config, lock_config=True, flag_values=values
  )
  about = 'Folder for config.json, results.json, records and plots.'
  flags.DEFINE_string('workdir', None, about, required=True, flag_values=values)
  about = 'Run whole decodes as CUDA graphs; nothing changes on other devices.'
  flags.DEFINE_bool('command_buffers', False, about, flag_values=values)
  processes.define(values)
  return values(rest)


def _parse(argv):
  """What app.run parses flags with; --help describes a config, or lists all."""
  asked = {'--help', '-help', '-h'} & set(argv)
  paths = [word[len(_CONFIG) :] for word in argv if word.startswith(_CONFIG)]
  try:
    if asked and paths:
      path = os.path.expanduser(paths[-1])
      config = configs.load(path, smoke=SMOKE in argv)
      print(configs.described(config, path))
      sys.exit(0)
    if asked or len(argv) == 1:
      print(usage())
      sys.exit(0)
    return parsed(argv)
  except (ValueError, flags.Error) as error:
    raise SystemExit(f'Error: {error}') from None


def command_of(argv: Sequence[str]) -> str:
  """Returns what was asked for, but for the workdir; `data_dir` is DATA."""
  words = [word for word in argv[1:] if not word.startswith('--workdir')]
  prefix = '--config.data_dir='
  data = [word[len(prefix) :] for word in words if word.startswith(prefix)]
  said = ' '.join([_COMMAND, *map(shlex.quote, words)])
  if not data or not data[-1]:
    return said
  # As a whole path: a folder may be called as a field is.
  path = rf'(?<![\w./-]){re.escape(data[-1])}(?![\w.-])'
  return re.sub(path, DATA, said)


def console() -> None:
  """Runs what the command line says."""
  terminal.accept_any_text()
  command = command_of(sys.argv)  # Before flags are parsed, which changes it.
  app.run(functools.partial(_main, command=command), flags_parser=_parse)


def _main(argv, command):
  """Runs what flags say; what is wrong with a config is one sentence."""
  if len(argv) > 1:
    raise app.UsageError(f'Unknown argument {argv[1]!r}; use --config.FIELD=.')
  logging.set_verbosity(logging.WARNING)  # orbax reports every file at INFO.
  programs.keep()
  if flags.FLAGS.command_buffers:
    command_buffers.enable()  # Before JAX starts its devices.
  limits.end_with_parent()
  try:
    workdir = processes.join(flags.FLAGS)
    run(flags.FLAGS.config, workdir, command)
  except limits.OutOfTime as error:
    print(error, file=sys.stderr)
    sys.exit(limits.STATUS)
  except (OSError, ValueError) as error:
    if flags.FLAGS.pdb_post_mortem or 'SPECJAX_TRACEBACK' in os.environ:
      raise
    message: object = error
    if isinstance(error, OSError):
      if error.filename is None:
        raise  # Of no file.
      message = f'{error.filename}: {error.strerror}.'
    raise SystemExit(f'Error: {message}') from error


if __name__ == '__main__':
  console()
