"""Runs an experiment.

python -m experiments.main --config=configs/NAME.py --workdir=DIR
    [--config.field=value]

The workdir is made, and `config.json` written, when the experiment has checked
its config and writes its first file. A workdir is of one config: with another
one, the run is refused. With the same, an experiment that can go on where it
stopped does so; others begin anew. Some are made to be run again with other
fields, such as more bandits: rows that were measured before are taken from
`metrics.jsonl`, where each names what it is of. Their modules name these fields
in `MAY_CHANGE`; `config.json` is then written anew with the results.
"""

import importlib
import os
import runpy
import sys

from absl import app
from absl import flags
from absl import logging
from ml_collections import config_flags

from experiments import programs
from experiments import workdirs

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'The experiment: a file under configs/.', lock_config=True
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder for config.json, results.json, metrics and plots.'
)


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'Unknown argument {argv[1]!r}; use --config.FIELD=.')
  logging.set_verbosity(logging.WARNING)  # orbax reports every file at INFO.
  programs.keep()
  run(_CONFIG.value, _WORKDIR.value)


def run(config, workdir):
  """Runs the experiment that a config names.

  Raises:
    ValueError: the experiment refuses the config, or the workdir holds a run of
      another one.
  """
  experiment = importlib.import_module(f'experiments.{config.experiment}')
  may_change = getattr(experiment, 'MAY_CHANGE', ())
  experiment.run(config, workdirs.Workdir(workdir, config, may_change))


def _parse(argv):
  """Parses the flags; an unknown config field is answered with the known."""
  _check_fields(argv)
  return app.parse_flags_with_usage(argv)


def _check_fields(argv):
  words = [word.lstrip('-') for word in argv[1:] if word.startswith('--')]
  files = [word[7:] for word in words if word.startswith('config=')]
  if not files or not os.path.isfile(files[-1]):
    return  # The flag library has its own answer to that.
  known = _fields(runpy.run_path(files[-1])['get_config']())
  for word in words:
    field = word.split('=')[0].removeprefix('config.')
    if word.startswith('config.') and field not in known:
      sys.exit(f'Unknown config field {field!r}. Known: {", ".join(known)}.')


def _fields(config):
  """Names of all fields; those of nested configs are joined by dots."""
  names = []
  for name, value in config.items():
    nested = _fields(value) if hasattr(value, 'items') else []
    names += [f'{name}.{inner}' for inner in nested] or [name]
  return names


if __name__ == '__main__':
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main, flags_parser=_parse)
