"""Builds the config that runs all experiments of a paper."""

from collections.abc import Mapping
from collections.abc import Sequence
import types

import ml_collections

from specjax import registry

# The folder of text, a placeholder that `experiments.reproduce` fills in.
DATA = '--config.data_dir=DATA'
SIZES = 'full', 'small'
# A single short run at full size, as results of smoke runs are not kept.
SMOKE = {
  'runs': ('configs/theory/batch_improvement.py --config.max_drafts=2',),
  'project': False,
}


def config(
  paper: str,
  runs: Mapping[str, tuple[str, str | None]],
  size: str,
  before: Mapping[str, Sequence[str]] = types.MappingProxyType({}),
) -> ml_collections.ConfigDict:
  """Returns the config of a suite.

  Args:
    paper: the name of the paper's folder in `configs/`.
    runs: by the name of a config in that folder, with its argument if there is
      one ('decode:smollm2'): the fields of its full run, and the fields that a
      small run sets in addition, or None if there is no small run.
    size: 'full', whose results are kept in the project, or 'small'.
    before: by size, runs whose workdirs the others read.
  """
  registry.lookup(dict.fromkeys(SIZES), 'size', size)
  small = size == 'small'
  return ml_collections.ConfigDict(
    {
      'experiment': 'reproduce',
      'data_dir': '',
      'runs': (
        *before.get(size, ()),
        *(
          _words(paper, name, fields[: 1 + small])
          for name, fields in runs.items()
          if not small or fields[1] is not None
        ),
      ),
      'project': not small,  # Whether results are kept in docs/results.
    }
  )


def _words(paper: str, name: str, fields: Sequence[str | None]) -> str:
  """Returns the arguments of a run on the command line."""
  file, colon, argument = name.partition(':')
  path = f'configs/{paper}/{file}.py{colon}{argument}'
  return ' '.join([path, *filter(None, fields)])
