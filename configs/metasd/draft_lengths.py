r"""How long to draft, rightly or by a bandit's choice: MetaSD's Figure 2.

python -m experiments.main --config=configs/metasd/draft_lengths.py \
    --config.data_dir=DATA --workdir=runs/metasd_draft_lengths

Block efficiency and, over plain decoding, tokens per second on one core, with
--config.prompts_per_domain=12:

length    code specialist     ucb1, BD            hedge, BD
1         1.75 ± 0.06  1.51   1.69 ± 0.06  1.20   1.75 ± 0.06  0.84
2         2.19 ± 0.15  1.59   2.10 ± 0.15  1.39   2.19 ± 0.15  0.91
3         2.66 ± 0.29  1.67   2.50 ± 0.26  1.46   2.65 ± 0.29  1.03
5         3.07 ± 0.47  1.56   2.83 ± 0.41  1.39   3.06 ± 0.47  0.97
7         3.30 ± 0.59  1.50   3.01 ± 0.50  1.05   3.29 ± 0.59  0.79
10        3.48 ± 0.70  1.17   3.15 ± 0.58  0.97   3.47 ± 0.69  0.77
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
