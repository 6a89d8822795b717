"""Runs an experiment.

python -m experiments.main --config=configs/NAME.py --workdir=DIR [--smoke]
    [--config.FIELD=VALUE] [--config.sweep="{'FIELD': (VALUE, OTHER)}"]
python -m experiments.main --config=configs/NAME.py --help     its fields
python -m experiments.main --config=configs/FOLDER --help      its configs

A workdir belongs to one config: a run with the same one resumes where it
stopped, another raises an error. `--config.sweep` runs each combination of
values in a subfolder. `--smoke` runs the smallest sizes, except for fields that
flags set. `--command_buffers` decodes with CUDA graphs. Compiled programs are
kept in ~/.cache/specjax/programs, or in JAX_COMPILATION_CACHE_DIR if it is set.
"""

from collections.abc import Sequence
import contextlib
import functools
import importlib
import os
import re
import shlex
import sys
import textwrap
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
from experiments.common import sweeps
from experiments.common import terminal
from experiments.common import workdirs
from specjax.compilation import command_buffers

_CONFIG = '--config='
SMOKE = '--smoke'
_COMMAND = 'python -m experiments.main'
# The placeholder for the folder of text in commands.
DATA = 'DATA'
# Fields that may always change: those that change only how results are shown,
# and modules with components, whose names are in the log.
_MAY_CHANGE = ('columns', 'imports', 'paper', 'pivot')
matplotlib.use('Agg')  # Figures become files; no window opens.


def run(
  config: Any, workdir: str | os.PathLike[str], command: str = ''
) -> list[dict[str, Any]]:
  """Runs the experiment of a config, once or for each point of its sweep.

  Args:
    config: the config.
    workdir: the folder of the run.
    command: the command of the run, which is stored with the results.

  Returns:
    The rows of the result, if the experiment has any.

  Raises:
    limits.OutOfTime: the process reached its deadline; the results contain the
      work that was finished by then.
    ValueError: the config is invalid, or the workdir belongs to another one.
  """
  points = configs.points(config)
  if points is None:
    with workdirs.Workdir(workdir, config, may_change(config)) as folder:
      rows = _run(config, folder, command)
      _check_complete(folder)
      return rows
  allowed = ('sweep', *may_change(config))
  with contextlib.ExitStack() as stack:
    enter = lambda *args: stack.enter_context(workdirs.Workdir(*args))
    top, runs = enter(workdir, config, allowed), []
    for (
      values,
      point,
    ) in points:  # All folders are checked before the first run.
      name = ','.join(f'{field}={value}' for field, value in values.items())
      path = os.path.join(str(top), name.replace(os.sep, '_'))
      runs.append((name, values, point, enter(path, point, may_change(point))))
    rows = []
    for name, values, point, folder in runs:
      print(f'\n{name}')
      rows += [values | row for row in _run(point, folder, command)]
    top.is_incomplete = any(folder.is_incomplete for *_, folder in runs)
    _finish(top, config, rows, command)
    _check_complete(top)
    return rows


def _check_complete(workdir: workdirs.Workdir) -> None:
  if workdir.is_incomplete:
    raise limits.OutOfTime


def _run(
  config: Any, workdir: workdirs.Workdir, command: str
) -> list[dict[str, Any]]:
  """Runs the experiment of a config without a sweep; returns its rows."""
  results.check(workdir)
  rows = experiment(config).run(config, workdir)
  if rows is not None:
    _finish(workdir, config, rows, command)
  return rows or []


def prepare(config: Any) -> list[tuple[Any, Any]]:
  """Checks a config without decoding or compiling anything.

  Returns:
    For each point of a sweep, or for the config itself, its config and the
    result of its experiment's `prepare`. For experiments that decode, this is a
    `compare.Setup`; for experiments without the function, it is None.

  Raises:
    ValueError: the config is invalid.
  """
  module = experiment(config)
  build = getattr(module, 'prepare', lambda config: None)
  points = configs.points(config)
  expanded = [config] if points is None else [point for _, point in points]
  return [(point, build(point)) for point in expanded]


def may_change(config: Any) -> tuple[str, ...]:
  """Returns the fields that may differ from an earlier run in the workdir."""
  return (*_MAY_CHANGE, *getattr(experiment(config), 'MAY_CHANGE', ()))


def experiment(config: Any) -> Any:
  """Returns the module of the experiment that a config names.

  The modules in `config.imports` are imported first, so that their components
  are in the tables of `specjax`.

  Raises:
    ValueError: there is no such experiment, or no such module.
  """
  for module in config.get('imports', ()):
    _import_components(module)
  name = f'experiments.{config.experiment}'
  try:
    return importlib.import_module(name)
  except ModuleNotFoundError as error:
    if not name.startswith(error.name or ' '):
      raise  # The error is in a module that it imports.
    known = ', '.join(configs.experiments())
    raise ValueError(
      f'Unknown experiment {config.experiment!r}. Known: {known}.'
    ) from None


def _import_components(module: str) -> None:
  """Imports a module that adds components to the tables of `specjax`."""
  try:
    importlib.import_module(module)
  except ModuleNotFoundError as error:
    if error.name is None or not f'{module}.'.startswith(f'{error.name}.'):
      raise  # The error is in a module that it imports.
    raise ValueError(
      f'imports must name modules on the path of Python, such as mine for '
      f'mine.py in this folder, got {module!r}.'
    ) from None


def figures(config: Any, rows: Any) -> dict[str, Any]:
  """Returns the figures of an experiment's rows, by name."""
  draw = getattr(experiment(config), 'figures', None)
  return draw(rows) if draw else {}


def _finish(
  workdir: workdirs.Workdir,
  config: Any,
  rows: list[dict[str, Any]],
  command: str,
) -> None:
  """Writes, prints and draws rows, with the paper's numbers."""
  paper_tables = config.get('paper', ())
  compared = paper.add_numbers(paper.unpaired(rows), paper_tables)
  claims = paper.claims(rows, paper_tables)
  device = getattr(experiment(config), 'device', lambda config: '')(config)
  results.write(workdir, config.experiment, command, compared, claims, device)
  if not processes.is_first():
    return
  tables = [*results.tables(compared, config), results.cells(claims)]
  print(
    '\n\n'.join(results.text(table) for table in tables if len(table.columns))
  )
  if compared and (explain := getattr(experiment(config), 'explain', None)):
    print(f'\n{explain(compared)}')
  drawn = figures(config, compared) if compared else {}
  for name, figure in drawn.items():
    path = os.path.join(workdir, f'{name}.png')
    plots.save(figure, path)
    print(f'\n{name.replace("_", " ")}: {path}')


def usage() -> str:
  """Returns the text of --help, which fits on a screen."""
  parts = [__doc__ or '', 'Configs:', *configs.overview(), '', 'Components:']
  for kind, table in components.KINDS.values():
    names = ', '.join(sorted(table()))
    parts += textwrap.wrap(
      f'  {kind:<11}{names}', 80, subsequent_indent=13 * ' '
    )
  return '\n'.join(parts)


def parse_flags(
  argv: Sequence[str], values: flags.FlagValues = flags.FLAGS
) -> list[str]:
  """Loads the config, and parses the flags of its fields into `values`.

  Args:
    argv: the arguments of the command line.
    values: receives the flags.

  Returns:
    The arguments that are not flags.

  Raises:
    ValueError: no config is named, several are, or a flag is unknown.
  """
  paths = [word[len(_CONFIG) :] for word in argv if word.startswith(_CONFIG)]
  if len(paths) != 1:
    raise ValueError(f'Name one config, as in {_CONFIG}configs/quickstart.py.')
  flag_args = [
    word for word in argv if word != SMOKE and not word.startswith(_CONFIG)
  ]
  path = os.path.expanduser(paths[0])
  config = configs.load(path, smoke=SMOKE in argv)
  configs.check_fields(config, flag_args)
  config_flags.DEFINE_config_dict(
    'config', config, flag_values=values, sys_argv=flag_args
  )
  about = 'Folder for config.json, results.json, records and plots.'
  flags.DEFINE_string('workdir', None, about, required=True, flag_values=values)
  about = 'Run whole decodes as CUDA graphs; nothing changes on other devices.'
  flags.DEFINE_bool('command_buffers', False, about, flag_values=values)
  processes.define(values)
  arguments = values(flag_args)
  if values.config.sweep != '':
    values.config.sweep = sweeps.changes(values.config.sweep)
  return arguments


def _parse(argv: Sequence[str]) -> list[str]:
  """Parses flags for `app.run`; --help describes configs instead."""
  needs_help = {'--help', '-help', '-h'} & set(argv)
  paths = [word[len(_CONFIG) :] for word in argv if word.startswith(_CONFIG)]
  try:
    if needs_help and paths:
      print(_describe(os.path.expanduser(paths[-1]), SMOKE in argv))
      sys.exit(0)
    if needs_help or len(argv) == 1:
      print(usage())
      sys.exit(0)
    return parse_flags(argv)
  except (ValueError, flags.Error) as error:
    raise SystemExit(f'Error: {error}') from None


def _describe(path: str, smoke: bool) -> str:
  """Returns the text of --help for a config, or for a folder of configs."""
  if os.path.isdir(path):
    return configs.title_lines(path)
  return configs.describe(configs.load(path, smoke=smoke), path)


def command_line(argv: Sequence[str]) -> str:
  """Returns a command without its workdir, and with DATA for `data_dir`."""
  words = [word for word in argv[1:] if not word.startswith('--workdir')]
  prefix = '--config.data_dir='
  data = [word[len(prefix) :] for word in words if word.startswith(prefix)]
  command = ' '.join([_COMMAND, *map(shlex.quote, words)])
  if not data or not data[-1]:
    return command
  # Only whole paths are replaced: a folder may have the name of a field.
  path = rf'(?<![\w./-]){re.escape(data[-1])}(?![\w.-])'
  return re.sub(path, DATA, command)


def console() -> None:
  """Runs the command line."""
  terminal.accept_any_text()
  command = command_line(sys.argv)
  app.run(functools.partial(_main, command=command), flags_parser=_parse)


def _main(argv: Sequence[str], command: str) -> None:
  """Runs an experiment by its flags; errors of the config are one sentence."""
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
        raise  # It concerns no file.
      message = f'{error.filename}: {error.strerror}.'
    raise SystemExit(f'Error: {message}') from error


if __name__ == '__main__':
  console()
