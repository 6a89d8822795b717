r"""Specialised heads on the target's features: MetaSD's Tables 4, 7, 8 and 16.

python -m experiments.main --config=configs/metasd/heads.py \
    --config.data_dir=DATA --workdir=runs/metasd_heads

MetaEagle: five heads of EAGLE-1 with its tree of 25 nodes, one of each domain
(configs/train/heads/specialist.py), and `eagle`, which has learnt from all; the
family may be a folder of your own. What the reward BD of a tree is stands in
README.md. Table 16 is at temperature 1, the others at 0; the paper's ratios of
speed-ups are beside ours of block efficiencies.
"""

from configs.metasd import drafters

_FIELD = 'sampling.temperature'
ARMS = tuple(f'feature_head({name}):eagle' for name in drafters.DOMAINS)
_ALL = 'feature_head(eagle):eagle'
_MEDUSA = 'medusa(medusa):4'


def get_config():
  config = drafters.get_config()
  config.family = 'smollm2/heads'
  config.sweep = f"{{'{_FIELD}': (0.0, 1.0)}}"
  del config.prompts['out of domain']
  config.prompts_per_domain = 16
  config.arms = ARMS
  config.ways = (_ALL, _MEDUSA)
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
  config.pivot.down = (_FIELD, 'prompts', 'way')
  config.paper = (_TABLE_7, _TABLE_4, _TABLE_8, _TABLE_16)
  return config


_UCB, _BE = drafters.UCB['label'], drafters.UCB_BE['label']
_OWN = 'feature_head({}):eagle'
_RATIOS = ((_OWN, _ALL), (_UCB, _OWN), (_UCB, _ALL))
_IN_DOMAIN = {_FIELD: 0.0, 'prompts': 'in domain'}
# Its blockwise decoding, and what is retrained for a domain, are not here.
_TABLE_4 = drafters.speed_ups(
  'Table 4',
  _IN_DOMAIN,
  (
    *(*ARMS, _ALL, _MEDUSA),
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
  {_FIELD: 0.0, 'prompts': 'in other words'},
  (*ARMS, _ALL, _UCB),
  {
    'code': (3.748, 1.335, 1.697, 2.030, 2.451, 3.626, 3.563),
    'translation': (1.757, 2.553, 2.161, 2.035, 1.677, 2.293, 2.375),
    'summarization': (1.671, 1.529, 3.084, 1.939, 1.639, 2.648, 2.742),
    'qa': (1.837, 1.616, 2.094, 2.932, 1.722, 2.439, 2.516),
    'math': (2.511, 1.664, 2.207, 2.913, 3.844, 3.136, 3.366),
  },
  _RATIOS,
)
_TABLE_16 = drafters.speed_ups(
  'Table 16',
  {_FIELD: 1.0, 'prompts': 'in domain'},
  (*ARMS, _ALL, _UCB),
  {
    'code': (3.019, 0.872, 1.012, 1.348, 1.809, 2.926, 2.765),
    'translation': (1.030, 1.817, 1.373, 1.278, 0.997, 1.578, 1.668),
    'summarization': (0.998, 0.834, 2.289, 1.267, 0.864, 1.749, 1.935),
    'qa': (1.179, 0.922, 1.269, 2.181, 1.011, 1.680, 1.756),
    'math': (1.739, 0.966, 1.462, 2.141, 3.099, 2.289, 2.539),
  },
  _RATIOS,
)
