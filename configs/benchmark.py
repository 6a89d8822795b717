r"""What a round costs, what speculation saves, and how a peer compares.

python -m experiments.main --config=configs/benchmark.py \
    --workdir=runs/benchmark
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'benchmark',
      'family': 'mini',
      'drafter': 'medium',
      'draft_length': 4,
      'draft_lengths': (2, 3),
      'batch_sizes': (1, 8),
      'temperatures': (0.0, 1.0),
      'num_prompts': 8,
      'max_new_tokens': 128,
      'max_length': 256,
      'rounds': 64,
      'repeats': 5,
      'peer': True,  # Needs the extra `benchmark`.
    }
  )
