"""Writes the metrics of training as files of TensorBoard.

python -m experiments.tensorboard runs/eagle

reads each `metrics.jsonl` in a workdir and its subfolders, also while training
goes on, and writes its columns as scalars to a subfolder `tensorboard`, in
place of those of an earlier call. `tensorboard --logdir runs` then shows all
runs. The extra `tensorboard` installs what it needs.
"""

import json
import pathlib
import sys

from experiments.common import terminal
from specjax import optional
from specjax.data import lines
from specjax.training import loop

_FOLDER = 'tensorboard'
_STEP = 'step'


def write(workdir: str) -> list[pathlib.Path]:
  """Writes the scalars of a workdir.

  Args:
    workdir: the workdir of a training run.

  Returns:
    The folders that have been written, one for each `metrics.jsonl`.

  Raises:
    ValueError: tensorboardX is not installed, the workdir contains no metrics,
      or a file cannot be read.
  """
  package = optional.load('tensorboardX', 'tensorboard', 'This command')
  writer_class = package.SummaryWriter
  files = sorted(pathlib.Path(workdir).glob(f'**/{loop.METRICS}'))
  if not files:
    raise ValueError(
      f'The workdir must contain {loop.METRICS}, got {workdir!r}.'
    )
  folders = []
  for file in files:
    folder = file.parent / _FOLDER
    for earlier in folder.glob('events.out.tfevents.*'):
      earlier.unlink()
    with writer_class(str(folder)) as writer:
      for line in lines.read(file):
        if line.endswith(b'\n'):  # The last one may be half written.
          try:
            row = json.loads(line)
            step = row.pop(_STEP)
          except (KeyError, ValueError) as error:
            raise ValueError(f'Cannot read {file}: {error!r}.') from error
          for name, value in row.items():
            writer.add_scalar(name, value, step)
    folders.append(folder)
  return folders


def console() -> None:
  """Runs the command line; errors are one sentence."""
  terminal.accept_any_text()
  if not sys.argv[1:]:
    raise SystemExit('Error: Name the workdir of a training run.')
  try:
    for workdir in sys.argv[1:]:
      for folder in write(workdir):
        print(f'Wrote {folder}.')
  except ValueError as error:
    raise SystemExit(f'Error: {error}') from error


if __name__ == '__main__':
  console()
