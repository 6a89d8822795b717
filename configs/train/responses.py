r"""Responses sampled from the mini target, for the drafters' distillation.

python -m experiments.main --config=configs/train/responses.py \
    --config.data_dir=DATA --workdir=runs/responses
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'train.responses',
      'data_dir': 'data',
      'family': 'runs/target',
      'num_responses': {'all': 4096},  # By domain.
      'max_prompt_tokens': 192,
      'max_new_tokens': 128,
      'batch_size': 32,
      'temperatures': (1.0,),
      'sampling': {'temperature': 1.0, 'top_p': 1.0},
      'seed': 0,
    }
  )
