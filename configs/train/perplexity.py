r"""Bits per byte of the mini family on held-out text.

python -m experiments.main --config=configs/train/perplexity.py \
    --config.data_dir=DATA --workdir=runs/perplexity
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'train.perplexity',
      'family': 'mini',
      'data_dir': 'data',
      'row_length': 512,
    }
  )
