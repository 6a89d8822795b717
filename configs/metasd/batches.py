r"""Batches of one domain or of many, with bandits of batches or rows: Table 17.

python -m experiments.main --config=configs/metasd/batches.py \
    --config.data_dir=DATA --workdir=runs/metasd_batches

Measured with --config.prompts_per_domain=8 and batch_sizes="(1,4)":

                 batches of 1   of 4, one domain   of 4, mixed
all 5            3.48 ± 0.19    3.48 ± 0.19        3.48 ± 0.19
ucb1, of batch   3.03 ± 0.16    3.04 ± 0.16        2.51 ± 0.15
ucb1, of row     3.03 ± 0.16    3.03 ± 0.16        3.03 ± 0.16
hedge, of batch  3.48 ± 0.17    3.50 ± 0.17        2.61 ± 0.16
oracle           3.81 ± 0.19
"""

import ml_collections

from configs.metasd import drafters


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'row_batches',
      'family': 'mini/specialists',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts_per_domain': 16,
      'sets': {'eval': {'domains': drafters.DOMAINS}},
      'prompts_file': '',
      'datastore': '',
      'arms': drafters.ARMS,
      'others': (('all', 5),),  # Alone, and no choice of the bandits.
      'bandits': (
        'ucb1:beta=0.01/block_divergence',
        'hedge/block_divergence',
      ),
      'batch_sizes': (1, 2, 4),  # Each divides the largest.
      'max_new_tokens': 64,
      'max_length': 512,
      'temperature': 0.0,
      'seed': 0,
    }
  )
