"""Measures the cost table of arms on this device."""

from experiments.common import compare
from experiments.common import costs
from experiments.common import plots


def prepare(config):
  """Returns a method with all arms, and the prompts."""
  return compare.prepare_entries(config, {'arms': {'bandit': 'uniform'}})


def run(config, workdir):
  """Returns a row per arm; see `experiments.common.costs`."""
  family, (method,), prompt_sets = prepare(config)
  prompts = [job.turns[0] for job in prompt_sets[0].jobs]
  return costs.table(config, workdir, family, method, prompts)


def figures(rows):
  """Draws the time per round by batch size."""
  figure = plots.lines(
    rows, 'batch_size', 'round_ms', 'arm', ylabel='milliseconds per round'
  )
  return {'costs': figure}
