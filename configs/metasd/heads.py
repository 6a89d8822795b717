r"""Specialized heads on the target's hidden states: MetaSD's Tables 4, 7 and 8.

python -m experiments.main --config=configs/metasd/heads.py \
    --config.data_dir=DATA --workdir=runs/metasd_heads

These are MetaEagle's arms: five heads of EAGLE-1 with trees of 25 nodes, one
per domain (configs/train/heads/specialist.py), and `eagle`, which is trained on
all domains; the family may also be a folder of yours. Ratios of block
efficiencies are compared with the paper's ratios of speed-ups. Table 16, at
temperature 1, is `configs/metasd/temperatures.py:heads`.

On the same prompts, `over_baseline` is relative to `eagle`: over all domains,
ucb1 with BD that learns from the prompt reaches 1.030 ± 0.010, in other words
1.018 ± 0.010, and in each domain 0.96 to 1.00 of its specialist. In domain,
EXP3 and BE are no better than a random selection. These specialists are closer
to each other than the paper's: out of its domain, a specialist reaches at least
0.84 of the right one.
"""

from configs.metasd import drafters

ARMS = tuple(f'feature_head({name}):eagle' for name in drafters.DOMAINS)
ALL = 'feature_head(eagle):eagle'
_MEDUSA = 'medusa(medusa):4'


def get_config():
  config = drafters.get_config()
  config.family = 'smollm2/heads'
  del config.prompts['out of domain']
  config.prompts_per_domain = 16
  config.arms = ARMS
  config.methods = (ALL, _MEDUSA)
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
  config.paper = (_TABLE_7, _TABLE_4, _TABLE_8)
  return config


_UCB, _BE = drafters.UCB['label'], drafters.UCB_BE['label']
_ARM = 'feature_head({}):eagle'
_RATIOS = drafters.ratios(_ARM, ALL)
_IN_DOMAIN = {'prompts': 'in domain'}
# Without blockwise decoding, and without drafters that are retrained.
_TABLE_4 = drafters.speed_ups(
  'Table 4',
  _IN_DOMAIN,
  (
    *(*ARMS, ALL, _MEDUSA),
    *(drafters.UNIFORM, drafters.EXP3['label'], drafters.HALVING['label']),
    _UCB,
  ),
  {
    'code': (
      *(3.934, 1.303, 1.776, 2.150, 2.427, 3.776, 2.661),
      *(2.310, 2.858, 3.650, 3.724),
    ),
    'translation': (
      *(1.750, 2.496, 2.281, 2.131, 1.714, 2.143, 1.909),
      *(2.036, 2.171, 2.225, 2.318),
    ),
    'summarization': (
      *(1.707, 1.507, 3.382, 2.005, 1.589, 2.640, 1.723),
      *(2.261, 2.261, 2.801, 3.057),
    ),
    'qa': (
      *(1.842, 1.579, 2.181, 2.916, 1.783, 2.446, 1.817),
      *(2.006, 2.128, 2.466, 2.641),
    ),
    'math': (
      *(2.584, 1.618, 2.337, 2.433, 3.903, 3.049, 2.142),
      *(2.449, 2.811, 3.339, 3.520),
    ),
  },
  (*_RATIOS, (_UCB, drafters.UNIFORM), (_UCB, drafters.HALVING['label'])),
)
_TABLE_7 = drafters.speed_ups(
  'Table 7',
  _IN_DOMAIN,
  (_BE, _UCB),
  {
    'code': ((3.590, 0.017), (3.661, 0.003)),
    'translation': ((2.228, 0.009), (2.201, 0.001)),
    'summarization': ((3.038, 0.005), (3.043, 0.001)),
    'qa': ((2.629, 0.003), (2.608, 0.001)),
    'math': ((3.461, 0.009), (3.515, 0.001)),
  },
  ((_UCB, _BE),),
)
_TABLE_8 = drafters.speed_ups(
  'Table 8',
  {'prompts': 'in other words'},
  (*ARMS, ALL, _UCB),
  {
    'code': (3.748, 1.335, 1.697, 2.030, 2.451, 3.626, 3.563),
    'translation': (1.757, 2.553, 2.161, 2.035, 1.677, 2.293, 2.375),
    'summarization': (1.671, 1.529, 3.084, 1.939, 1.639, 2.648, 2.742),
    'qa': (1.837, 1.616, 2.094, 2.932, 1.722, 2.439, 2.516),
    'math': (2.511, 1.664, 2.207, 2.913, 3.844, 3.136, 3.366),
  },
  _RATIOS,
)
