r"""Block efficiency of the mini family's drafters on held-out files, by domain.

python -m experiments.main --config=configs/evaluate.py \
    --config.data_dir=DATA --workdir=runs/evaluate
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'compare',
      'family': 'mini',
      'data_dir': 'data',
      'prompts': {'eval': {}},
      'prompts_per_domain': 20,
      'by_domain': True,
      'ways': ('large:4', 'medium:4', 'small:4'),
      'sampling': {'temperature': 1.0},
      'max_new_tokens': 96,
      'max_length': 512,
      'batch_size': 16,
      'seed': 0,
      'columns': ('domain', 'way', 'decoded', 'block_efficiency'),
    }
  )
