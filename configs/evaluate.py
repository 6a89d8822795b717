r"""Block efficiency of the mini family's drafters on held-out files.

python -m experiments.main --config=configs/evaluate.py \
    --config.data_dir=DATA --workdir=runs/evaluate
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'evaluate',
      'family': 'mini',
      'data_dir': 'data',
      'drafters': (),  # All of them.
      'draft_lengths': (4,),
      'prompts_per_domain': 20,
      'max_new_tokens': 96,
      'max_length': 512,
      'batch_size': 16,
      'temperature': 1.0,
      'seed': 0,
    }
  )
