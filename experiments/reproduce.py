"""Runs all experiments of a paper, and generates their tables.

`config.runs` are command lines: the path of a config, and flags of its fields,
where DATA is replaced by `config.data_dir`. Each run has a folder in the
workdir and resumes where it stopped. The results of a run with its own
`--workdir`, whose files other runs read, are not kept.
"""

import os
import pathlib
import shlex
import time

from absl import flags
import jax

from experiments import main
from experiments import report
from experiments.common import processes

MAY_CHANGE = 'runs', 'project'


def prepare(config):
  """Returns the command, config and own workdir (or '') of each run."""
  if not config.runs:
    raise ValueError('runs must hold at least one config, got none.')
  if any(main.DATA in words for words in config.runs):
    if not os.path.isdir(os.path.expanduser(config.data_dir)):
      raise ValueError(f'data_dir must be a folder, got {config.data_dir!r}.')
  return [parse_run(config, words) for words in config.runs]


def run(config, workdir):
  """Runs everything, and writes the tables.

  With `config.project`, results are kept in the project's docs/results, and
  otherwise in the same folder inside the workdir.
  """
  runs = prepare(config)  # All configs are checked before the first run.
  root = report.ROOT if config.project else pathlib.Path(str(workdir))
  for number, (command, run_config, own_workdir) in enumerate(runs, 1):
    name = report.result_name(command).replace('/', '_')
    folder = own_workdir or os.path.join(workdir, name)
    print(f'\n[{number} of {len(runs)}] {command}', flush=True)
    began = time.perf_counter()
    main.run(run_config, folder, command)
    if processes.is_first() and not own_workdir:
      report.keep(folder, root)
    jax.clear_caches()  # The next run has other programs.
    minutes = (time.perf_counter() - began) / 60
    print(f'{minutes:.1f} minutes, in {folder}', flush=True)
  if processes.is_first():
    report.write(root, root)
    print(f'\nTables are in {root / report.FOLDER}.')


def parse_run(config, words):
  """Returns the command of a run, its config, and its own workdir (or '')."""
  argv = [
    word.replace(main.DATA, config.data_dir) for word in shlex.split(words)
  ]
  try:
    command, values = parse(argv)
  except ValueError as error:
    raise ValueError(f'runs: {words!r}: {error}') from None
  if values.command_buffers:
    raise ValueError(
      f'runs: {words!r}: --command_buffers must be a flag of the suite, whose '
      'process runs all configs, not of a single run.'
    )
  return command, values.config, values.workdir


def parse(words):
  """Returns the command of a run, and its parsed flags, such as its config.

  Args:
    words: the path of a config, and flags.

  Raises:
    ValueError: the config or a flag is invalid.
  """
  argv = ['main', f'--config={words[0]}', '--workdir=', *words[1:]]
  command = main.command_line(argv)
  values = flags.FlagValues()
  try:
    main.parse_flags(argv, values)
  except flags.Error as error:
    raise ValueError(str(error)) from None
  return command, values
