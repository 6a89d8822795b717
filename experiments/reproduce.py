"""All experiments of a paper, one after another, and their document.

`config.runs` are what would be asked for by itself: the path of a config, and
fields behind it; DATA stands for `config.data_dir`. Each run has a folder in
the workdir, and goes on where it stopped. One that names a workdir of its own,
as others read what it leaves there, is run, but its results are not kept.
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
  """Returns for each run its command, its config and its workdir, or ''."""
  if not config.runs:
    raise ValueError('runs must hold at least one config, got none.')
  if any(main.DATA in words for words in config.runs):
    if not os.path.isdir(os.path.expanduser(config.data_dir)):
      raise ValueError(f'data_dir must be a folder, got {config.data_dir!r}.')
  return [parsed(config, words) for words in config.runs]


def run(config, workdir):
  """Runs all of them; the document is that of the project, or of the workdir.

  With `config.project`, results are kept in docs/results of the project, and
  otherwise in the same folder of the workdir.
  """
  asked = prepare(config)  # All before any.
  root = report.ROOT if config.project else pathlib.Path(str(workdir))
  for number, (command, each, own) in enumerate(asked, 1):
    name = report.name_of(command).replace('/', '_')
    folder = own or os.path.join(workdir, name)
    print(f'\n[{number} of {len(asked)}] {command}', flush=True)
    began = time.perf_counter()
    main.run(each, folder, command)
    if processes.is_first() and not own:
      report.keep(folder, root)
    jax.clear_caches()  # The next one has other programs.
    minutes = (time.perf_counter() - began) / 60
    print(f'{minutes:.1f} minutes, in {folder}', flush=True)
  if processes.is_first():
    report.write(root, root)
    print(f'\nThe document is in {root / report.FOLDER}.')


def parsed(config, words):
  """Returns the command of a run, its config, and its own workdir, or ''."""
  argv = [
    word.replace(main.DATA, config.data_dir) for word in shlex.split(words)
  ]
  try:
    command, values = parse(argv)
  except ValueError as error:
    raise ValueError(f'runs: {words!r}: {error}') from None
  if values.command_buffers:
    raise ValueError(
      f'runs: {words!r}: --command_buffers must be given to the suite, whose '
      'process runs all of them, not to one run.'
    )
  return command, values.config, values.workdir


def parse(words):
  """Returns the command of a run, and its flags, such as its config.

  Args:
    words: the path of a config, and flags.
  """
  argv = ['main', f'--config={words[0]}', '--workdir=', *words[1:]]
  command = main.command_of(argv)
  values = flags.FlagValues()
  try:
    main.parsed(argv, values)
  except flags.Error as error:
    raise ValueError(str(error)) from None
  return command, values
