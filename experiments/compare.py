"""Every way to decode on every set of prompts: block efficiency and speed."""

from experiments.common import compare
from experiments.common import plots

MAY_CHANGE = compare.MAY_CHANGE


def run(config, workdir):
  """Returns a row for each way and set, and each domain with `by_domain`."""
  made = compare.plan(config)
  decoded = compare.decode(config, workdir, made)
  return compare.rows(decoded, config.get('by_domain', False))


def figures(rows):
  """Draws block efficiency by way, and speed-ups where there were clocks."""
  total = [row for row in rows if row['domain'] == 'all']
  made = {
    'block_efficiency': plots.bars(
      total,
      'prompts',
      'block_efficiency',
      'way',
      error='block_efficiency_error',
      ylabel='emitted tokens per target call',
      paper=True,
    )
  }
  if 'speed_up' in rows[0]:
    made['speed_up'] = plots.bars(
      total,
      'prompts',
      'speed_up',
      'way',
      error='speed_up_error',
      ylabel='tokens per second over plain decoding',
    )
  return made
