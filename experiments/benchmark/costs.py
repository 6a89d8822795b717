"""What rounds of arms take on this device: a table for rewards."""

from experiments.common import costs
from experiments.common import plots
from experiments.common import prompts as prompts_lib
from experiments.common import ways as ways_lib


def run(config, workdir):
  """Returns a row for each of `config.arms`; see `experiments.common.costs`."""
  family = prompts_lib.load_family(config)
  models = list(family.drafters)
  way = ways_lib.parse(config, {'bandit': 'uniform'}, models, 'arms')
  ways_lib.build(way, family, config.max_length)
  jobs = prompts_lib.build(config, family)[0].jobs
  prompts = [job.turns[0] for job in jobs]
  return costs.table(config, workdir, family, way, prompts)


def figures(rows):
  """Draws the time of a round by the size of the batch."""
  figure = plots.lines(
    rows, 'batch_size', 'round_ms', 'arm', ylabel='milliseconds a round'
  )
  return {'costs': figure}
