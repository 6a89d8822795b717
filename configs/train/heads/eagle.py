r"""A head on any target's features: EAGLE-1's, which is that of EAGLE-2.

python -m experiments.main --config=configs/train/responses.py:short \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/short
python -m experiments.main --config=configs/train/responses.py:long \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/long
python -m experiments.main --config=configs/train/heads/eagle.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/eagle

With `steps` above 1 in its recipe, a head learns to read its own outputs, as
HASS does. Heads of the mini family, of its own responses:

python -m experiments.main --config=configs/train/responses.py \
    --config.family=mini --config.data_dir=DATA --workdir=runs/responses
python -m experiments.main --config=configs/train/heads/eagle.py:mini \
    --config.data_dir=DATA --workdir=runs/mini_eagle
"""

from configs.train import distill

_MINI = {
  'family': 'mini',
  'responses': ('runs/responses/responses.jsonl',),
  'num_texts': {'all': 3000},
  'training': {'steps': 1000},
}


def get_config(family='smollm2'):
  """Returns the config for 'smollm2' or 'mini'."""
  config = distill.get_config()  # The same text, read as often.
  config.experiment = 'train.heads'
  del config.drafters
  if family == 'mini':
    config.update(_MINI)
  config.heads = {
    'eagle': {
      'kind': 'eagle',
      'options': {'head_size': None if family == 'mini' else 8000},
      'recipe': {
        'steps': 3,
        'feature_weight': 1.0,
        'token_weight': 0.1,
        'noise': 0.1,
      },
    }
  }
  return config
