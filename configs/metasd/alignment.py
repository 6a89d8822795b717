r"""What rewards show of arms, round by round: MetaSD's Table 2, Figures 3, 5-7.

python -m experiments.main --config=configs/metasd/alignment.py \
    --config.data_dir=DATA --workdir=runs/metasd_alignment

BD has the lower variance for every drafter in every domain (in code 0.014 to
0.018 against 0.032 to 0.162) and is never 0, as BE is in 0.34 to 0.74 of the
rounds there. UCB's share of rounds with the best arm, with BD and with BE: code
0.80 and 0.53, translation 0.42 and 0.24, summarization 0.59 and 0.59, qa 0.55
and 0.25, math 0.86 and 0.72.
"""

import ml_collections

from configs.metasd import drafters


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'alignment',
      'family': 'mini/specialists',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts_per_domain': 32,
      'sets': {'eval': {'domains': drafters.DOMAINS}},
      'prompts_file': '',
      'datastore': '',
      'arms': drafters.ARMS,
      'bandits': (  # One for each prompt.
        'ucb1:beta=0.01/block_divergence',
        'ucb1:beta=0.01/accepted_fraction',
        'sequential_halving/block_divergence',
        'exp3:gamma=0.4/block_divergence',
        'hedge/block_divergence',
      ),
      'num_rounds': 64,  # That are played and recorded.
      'share_rounds': (5, 10, 20),  # Whose shares are written.
      'batch_size': 16,  # Prompts traced at once.
      'max_new_tokens': 128,
      'max_length': 512,
      'temperature': 0.0,
      'seed': 0,
    }
  )
