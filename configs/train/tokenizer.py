r"""Trains the mini family's tokenizer: byte-level BPE with 4096 tokens.

python -m experiments.main --config=configs/train/tokenizer.py \
    --config.data_dir=DATA --workdir=runs/tokenizer
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'train.tokenizer',
      'data_dir': 'data',
      'vocab_size': 4096,
    }
  )
