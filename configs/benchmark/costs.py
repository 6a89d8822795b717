r"""The cost table of arms, for the reward of tokens per second.

python -m experiments.main --config=configs/benchmark/costs.py \
    --workdir=runs/costs

A run with the reward 'throughput' measures its arms itself, or reads this table
with --config.costs=runs/costs, if both have the same family, batch size,
temperature and max_length. A round with `medium:4` takes 2.1 times as long
as one of plain decoding at batch size 1, on two cores.
"""

import ml_collections

from experiments.common import sweeps


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'benchmark.costs',
      'family': 'mini',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {}},
      'prompts_per_domain': 20,
      'arms': ('none', *(f'medium:{length}' for length in (1, 2, 3, 4))),
      'cost_rounds': 64,  # Rounds that are timed together.
      'cost_repeats': 5,  # How often they are timed.
      'batch_size': 1,
      'sweep': sweeps.product({'batch_size': (1, 2, 4, 8, 16, 32)}),
      'max_new_tokens': 64,
      'max_length': 256,
      'sampling': {'temperature': 0.0},
      'seed': 0,
    }
  )
