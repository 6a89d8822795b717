r"""Trains a block head, as in DFlash and DSpark, which drafts in one call.

python -m experiments.main --config=configs/train/heads/dflash.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/dflash

See configs/train/heads/eagle.py for the responses and for `:mini`. The papers
train five layers for blocks of 16 tokens (DFlash) and of 7 (DSpark). For small
targets, the head has one layer and drafts four tokens. `for_servers` trains one
that servers load (docs/serving.md).
"""

from configs.train.heads import eagle

# A token that no text contains.
MASK_TOKENS = {'smollm2': 3, 'mini': 0}
_HEAD_SIZES = {'smollm2': 8000, 'mini': 2048}
_STEPS = {'smollm2': 6000, 'mini': 4000}

VARIANTS = eagle.VARIANTS
SMOKE = {'heads.dflash.options.head_size': 64}


def get_config(family='smollm2'):
  """Returns the config for 'smollm2' or 'mini'."""
  config = eagle.get_config(family)
  config.heads = {
    'dflash': {
      'kind': 'dflash',
      'options': {
        'head_size': _HEAD_SIZES[family],
        'block_size': 4,
        'mask_token': MASK_TOKENS[family],
        'predicts_next': True,
        'markov_rank': 64,
        'for_servers': False,
      },
      'recipe': {'num_blocks': 64, 'decay': 0.8, 'loss': 'kl'},
      'training': {'steps': _STEPS[family]},
    },
  }
  return config
