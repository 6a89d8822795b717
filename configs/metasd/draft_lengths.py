r"""How long to draft, rightly or by a bandit's choice: MetaSD's Figure 2.

python -m experiments.main --config=configs/metasd/draft_lengths.py \
    --config.data_dir=DATA --workdir=runs/metasd_draft_lengths
"""

from configs.metasd import drafters


def get_config():
  config = drafters.get_config()
  config.experiment = 'draft_lengths'
  config.drafters = drafters.DOMAINS
  config.draft_lengths = (1, 2, 3, 5, 7, 10)
  config.sets = {'code': {'domains': ('code',)}}
  config.arms = ()
  config.others = ()
  config.bandits = ('ucb1:beta=0.01/block_divergence', 'hedge/block_divergence')
  config.router = False
  return config
