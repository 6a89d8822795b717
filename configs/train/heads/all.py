r"""Trains EAGLE, EAGLE-3, Medusa and block heads with one pass of the target.

python -m experiments.main --config=configs/train/heads/all.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/train_heads

See configs/train/heads/eagle.py for the responses and for `:mini`.
"""

from configs.train.heads import dflash
from configs.train.heads import eagle
from configs.train.heads import eagle3
from configs.train.heads import medusa

VARIANTS = eagle.VARIANTS
SMOKE = eagle.SMOKE | eagle3.SMOKE | medusa.SMOKE | dflash.SMOKE


def get_config(family='smollm2'):
  """Returns the config for 'smollm2' or 'mini'."""
  config = eagle.get_config(family)
  for other in (eagle3, medusa, dflash):
    config.heads.update(other.get_config(family).heads)
  return config
