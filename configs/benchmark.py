r"""What rounds and arms cost, what speculation saves, and how a peer compares.

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
      # What bandits choose from, and what `costs.json` is made of.
      'arms': (('large', 4), ('medium', 4), ('small', 2), ('none', 0)),
      'costs': {
        'arms': (
          ('none', 0),
          ('medium', 1),
          ('medium', 2),
          ('medium', 3),
          ('medium', 4),
        ),
        'batch_sizes': (1, 2, 4, 8, 16, 32),
        'temperature': 1.0,
      },
      'peer': True,  # Needs the extra `benchmark`.
    }
  )
