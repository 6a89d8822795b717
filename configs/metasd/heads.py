r"""Specialized heads on the target's hidden states: MetaSD's Tables 4, 7 and 8.

python -m experiments.main --config=configs/metasd/heads.py \
    --config.data_dir=DATA --workdir=runs/metasd_heads

These are MetaEagle's arms: five heads of EAGLE-1 with trees of 25 nodes, one
per domain (configs/train/heads/specialist.py), and `eagle`, which is trained on
all domains; the family may also be a folder of yours. Ratios of block
efficiencies are compared with the paper's ratios of speed-ups. Table 16, at
temperature 1, is `configs/metasd/temperatures.py:heads`.

On the same prompts, `over_baseline` is relative to `eagle`: over all domains,
ucb1 with BD that learns from the prompt reaches 1.030 ± 0.010, and 1.018 ±
0.010 on paraphrased prompts; in each domain, it reaches 0.96 to 1.00 of its
specialist. In domain, EXP3 and BE are no better than a random selection. These
specialists are closer to each other than the paper's: out of its domain, a
specialist reaches at least 0.83 of the right one.
"""

from configs.metasd import drafters
from experiments.common import paper

ARMS = tuple(f'feature_head({name}):eagle' for name in drafters.DOMAINS)
ALL = 'feature_head(eagle):eagle'
_MEDUSA = 'medusa(medusa):4'
_RESCORED = 'rescored(medusa, small):4'


def get_config():
  config = drafters.get_config()
  config.family = 'smollm2/heads'
  del config.prompts['out of domain']
  config.prompts_per_domain = 16
  config.arms = ARMS
  config.methods = (ALL, _MEDUSA, _RESCORED)
  config.baseline = ALL
  config.bandits = (
    drafters.UNIFORM,
    drafters.EXP3,
    drafters.HALVING,
    drafters.UCB,
    drafters.from_prompt(drafters.UCB),
    drafters.UCB_BE,
    drafters.HEDGE,
  )
  config.router = False
  config.max_new_tokens = 64
  config.paper = (_F_10, _TABLE_7, _TABLE_4, _TABLE_8)
  return config


_UCB, _BE = drafters.UCB['label'], drafters.UCB_BE['label']
_ARM = 'feature_head({}):eagle'
_RATIOS = drafters.ratios(_ARM, ALL)
_IN_DOMAIN = {'prompts': 'in domain'}
_METHODS = drafters.specialists(_ARM) | {'OFA': ALL, 'UCB': _UCB}
# Without blockwise decoding, whose drafts are those of Medusa here.
_BASELINES = {'Medusa': _MEDUSA, 'R-Medusa': _RESCORED}
_TABLE_4 = drafters.speed_ups(
  4,
  _IN_DOMAIN,
  _METHODS | _BASELINES | drafters.BANDITS,
  (*_RATIOS, (_UCB, drafters.UNIFORM), (_UCB, drafters.HALVING['label'])),
)
_TABLE_7 = drafters.speed_ups(
  7, _IN_DOMAIN, drafters.REWARDS, ((_UCB, _BE),), drafters='Eagle'
)
_TABLE_8 = drafters.speed_ups(8, {'prompts': 'paraphrased'}, _METHODS, _RATIOS)
_F_10 = paper.table(
  'MetaSD, Appendix F.10',
  'speed_up',
  paper.read('metasd/f_10', method={'OFA': ALL, 'UCB': _UCB}),
  _IN_DOMAIN | {'domain': 'all'},
  [(_UCB, ALL)],
  measured='block_efficiency',
)
