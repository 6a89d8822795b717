"""What rounds of arms take on this device: a table for rewards."""

from experiments.common import compare
from experiments.common import costs
from experiments.common import plots


def prepare(config):
  """Returns a method that has all arms, and the prompts."""
  return compare.of_entries(config, {'arms': {'bandit': 'uniform'}})


def run(config, workdir):
  """Returns a row for each of `config.arms`; see `experiments.common.costs`."""
  family, (method,), prompt_sets = prepare(config)
  prompts = [job.turns[0] for job in prompt_sets[0].jobs]
  return costs.table(config, workdir, family, method, prompts)


def figures(rows):
  """Draws the time of a round by the size of the batch."""
  figure = plots.lines(
    rows, 'batch_size', 'round_ms', 'arm', ylabel='milliseconds a round'
  )
  return {'costs': figure}
