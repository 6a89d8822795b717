r"""Medusa's heads, which share the target's output head.

python -m experiments.main --config=configs/train/heads/medusa.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/medusa

The responses are those of configs/train/heads/eagle.py.
"""

from configs.train.heads import eagle


def get_config():
  config = eagle.get_config()
  config.heads = {
    'medusa': {
      'kind': 'medusa',
      'options': {'head_size': 8000, 'num_steps': 4},
      'recipe': {'decay': 0.8},
    }
  }
  return config
