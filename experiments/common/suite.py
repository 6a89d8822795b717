"""Builds the config that runs all experiments of a paper."""

from collections.abc import Mapping
import dataclasses
from typing import Any

import ml_collections

from specjax import registry

# The folder of text, a placeholder that `experiments.reproduce` fills in.
DATA = 'DATA'
SIZES = 'full', 'small'
# A single short run at full size, as results of smoke runs are not kept.
SMOKE = {
  'runs': (
    {
      'config': 'configs/theory/batch_improvement.py',
      'fields': {'max_drafts': 2},
    },
  ),
  'project': False,
}


@dataclasses.dataclass(frozen=True)
class Run:
  """A run of a suite: fields of a config that differ from the config's file.

  Attributes:
    fields: the values of fields, nested as they are in the config.
    small: further values for the small suite; None if the run is not in it.
    workdir: the folder of a run whose files other runs read; its results are
      not kept.
  """

  fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  small: Mapping[str, Any] | None = dataclasses.field(default_factory=dict)
  workdir: str = ''


def config(runs: Mapping[str, Run], size: str) -> ml_collections.ConfigDict:
  """Returns the config of a suite.

  Args:
    runs: by the path of a config in `configs/`, without '.py', and with its
      argument if there is one: 'spectr/decode:smollm2'.
    size: 'full', whose results are kept in the project, or 'small'.
  """
  registry.lookup(dict.fromkeys(SIZES), 'size', size)
  is_small = size == 'small'
  return ml_collections.ConfigDict(
    {
      'experiment': 'reproduce',
      'data_dir': '',
      'runs': tuple(
        _entry(name, run, is_small)
        for name, run in runs.items()
        if not is_small or run.small is not None
      ),
      'project': not is_small,  # Whether results are kept in docs/results.
    }
  )


def _entry(name: str, run: Run, is_small: bool) -> dict[str, Any]:
  """Returns the entry of `config.runs` for a run."""
  file, colon, argument = name.partition(':')
  small = run.small if is_small and run.small else {}
  return {
    'config': f'configs/{file}.py{colon}{argument}',
    'fields': {**run.fields, **small},
    'workdir': run.workdir,
  }
