r"""EAGLE-3's head: features of three depths, steps on its own outputs.

python -m experiments.main --config=configs/train/heads/eagle3.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/eagle3

The responses are those of configs/train/heads/eagle.py, and `:mini` as there.
"""

from configs.train.heads import eagle


def get_config(family='smollm2'):
  """Returns the config for 'smollm2' or 'mini'."""
  config = eagle.get_config(family)
  options = config.heads.eagle.options
  config.heads = {
    'eagle3': {
      'kind': 'eagle3',
      'options': options,
      # Tokens alone are learnt, at all steps of the draft.
      'recipe': {
        'steps': 5,
        'feature_weight': 0.0,
        'token_weight': 1.0,
        'noise': 0.0,
      },
    }
  }
  return config
