r"""A head on any target's features: EAGLE-1's, which is that of EAGLE-2.

python -m experiments.main --config=configs/train/responses.py:short \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/short
python -m experiments.main --config=configs/train/responses.py:long \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/long
python -m experiments.main --config=configs/train/heads/eagle.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/eagle

With `steps` above 1 in its recipe, it learns to read its own outputs, as HASS
does.
"""

from configs.train import distill


def get_config():
  config = distill.get_config()  # The same text, read as often.
  config.experiment = 'train.heads'
  del config.drafters
  config.heads = {
    'eagle': {
      'kind': 'eagle',
      'options': {'head_size': 8000},
      'recipe': {
        'steps': 3,
        'feature_weight': 1.0,
        'token_weight': 0.1,
        'noise': 0.1,
      },
    }
  }
  return config
