r"""The index of train files that retrieval drafters take as parameters.

python -m experiments.main --config=configs/train/datastore.py \
    --config.data_dir=DATA --workdir=runs/datastore

5 million tokens take about 10 s on one CPU core, 3 of them for the index, and
40 MB: 8 bytes per token. `configs/train/datastore.py:smollm2` has the tokens of
SmolLM2.
"""

import ml_collections

VARIANTS = 'mini', 'smollm2'


def get_config(family='mini'):
  """Returns the config for a family."""
  return ml_collections.ConfigDict(
    {
      'experiment': 'train.datastore',
      'family': family,  # The family with the tokenizer.
      'data_dir': 'data',
    }
  )
