r"""The time of a model call by length and batch size: SpecTr's Tables 2 and 3.

python -m experiments.main --config=configs/spectr/latency.py \
    --workdir=runs/spectr_latency

`relative` is to the target at the first length and batch size.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'latency',
      'family': 'mini',
      'lengths': (4, 8),
      'batch_sizes': (1, 2, 4, 8),
      'prefix_length': 128,
      'repeats': 100,
      'seed': 0,
    }
  )
