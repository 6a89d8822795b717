"""The config of all experiments of a paper, for `experiments.reproduce`."""

from collections.abc import Mapping
from collections.abc import Sequence
import types

import ml_collections

from specjax import registry

# Prompts of a folder of text, as `experiments.reproduce` fills it in.
DATA = '--config.data_dir=DATA'
SIZES = 'full', 'small'
# One run, of a second: what it leaves is kept, so that it is no smoke run.
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
    paper: the folder of `configs/`.
    runs: by the name of a config of that folder and its argument, as 'decode'
      and 'decode:smollm2': the fields of its full run, and those of a small one
      that stand behind them; None leaves it out of the small ones.
    size: 'full', whose results are the project's, or 'small'.
    before: by size, runs whose workdirs these read.
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
      'project': not small,  # Whether its results are kept in docs/results.
    }
  )


def _words(paper, name, fields):
  """What is typed for a run."""
  file, colon, argument = name.partition(':')
  path = f'configs/{paper}/{file}.py{colon}{argument}'
  return ' '.join([path, *filter(None, fields)])
