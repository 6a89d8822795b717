r"""The time of a model call by length and batch size: SpecTr's Tables 2 and 3.

python -m experiments.main --config=configs/spectr/latency.py \
    --workdir=runs/spectr_latency

`relative` is to the target at the first length and batch size.

On two cores of an x86_64 CPU, relative:

length  batch 1      batch 2      batch 4      batch 8
target, 8.2M
4       1.00 ± 0.19  1.26 ± 0.14  1.78 ± 0.17  2.90 ± 0.22
8       1.22 ± 0.09  1.73 ± 0.15  2.77 ± 0.20  4.79 ± 0.22
medium drafter, 0.7M
4       0.29 ± 0.04  0.31 ± 0.04  0.39 ± 0.05  0.55 ± 0.07
8       0.32 ± 0.04  0.38 ± 0.06  0.53 ± 0.07  0.79 ± 0.08
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
