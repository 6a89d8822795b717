r"""Trains drafters that predict all draft tokens in one call (PARD).

python -m experiments.main --config=configs/train/parallel.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/parallel
python -m experiments.main --config=configs/train/parallel.py:mini \
    --config.data_dir=DATA --workdir=runs/mini_parallel

A drafter of the family learns to predict further tokens from mask tokens, which
no text contains. See configs/train/heads/eagle.py for the responses. In the
folder of the family, the trained drafter is used as
'parallel(small_parallel):4'.
"""

from configs.train import distill
from configs.train.heads import dflash
from configs.train.heads import eagle
from specjax import registry

_STARTS = {'smollm2': ('small',), 'mini': ('medium', 'small')}

VARIANTS = tuple(_STARTS)
SMOKE = {'students.small_parallel.parallel.depth': 2}


def get_config(family='smollm2'):
  """Returns the config for 'smollm2' or 'mini'."""
  starts = registry.lookup(_STARTS, 'family', family)
  config = distill.get_config()
  if family == 'mini':
    config.update(eagle.MINI)
  config.loss = 'hybrid'
  config.students = {
    f'{name}_parallel': {
      'start': name,
      'parallel': {
        'mask_token': dflash.MASK_TOKENS[family],
        'depth': 6,
        # The fractions of anchors for later draft tokens.
        'keep': 0.7,
        'min_keep': 0.2,
        'decay': 0.8,
      },
    }
    for name in starts
  }
  return config
