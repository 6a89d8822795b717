r"""Trains Medusa heads, which share the target's output head.

python -m experiments.main --config=configs/train/heads/medusa.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/medusa

See configs/train/heads/eagle.py for the responses and for `:mini`.
"""

from configs.train.heads import eagle

VARIANTS = eagle.VARIANTS
SMOKE = {'heads.medusa.options.head_size': 64}


def get_config(family='smollm2'):
  """Returns the config for 'smollm2' or 'mini'."""
  config = eagle.get_config(family)
  head_size = config.heads.eagle_first.options.get_ref('head_size')
  config.heads = {
    'medusa': {
      'kind': 'medusa',
      'options': {'head_size': head_size, 'num_steps': 4},
      'recipe': {'decay': 0.8, 'loss': 'kl'},
    }
  }
  return config
