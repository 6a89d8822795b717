"""Runs an experiment.

python -m experiments.main --config=configs/NAME.py --workdir=DIR
    [--config.field=value]
"""

import importlib
import os

from absl import app
from absl import flags
from absl import logging
from ml_collections import config_flags

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
  config, workdir = _CONFIG.value, _WORKDIR.value
  os.makedirs(workdir, exist_ok=True)
  with open(
    os.path.join(workdir, 'config.json'), 'w', encoding='utf-8'
  ) as file:
    file.write(config.to_json(indent=2))
  experiment = importlib.import_module(f'experiments.{config.experiment}')
  experiment.run(config, workdir)


if __name__ == '__main__':
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main)
