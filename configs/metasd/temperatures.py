r"""Specialists and bandits above temperature 0: MetaSD's Tables 14 and 15.

python -m experiments.main --config=configs/metasd/temperatures.py \
    --config.data_dir=DATA --workdir=runs/metasd_temperatures

As ratios of block efficiencies, as in drafters.py. Of all five domains, ucb1
with BD has 3.15 ± 0.08 at 0.7 and 2.93 ± 0.07 at 1, and the drafter for all
3.15 ± 0.08 and 2.97 ± 0.06.
"""

from configs.metasd import drafters

_FIELD = 'sampling.temperature'


def get_config():
  config = drafters.get_config()
  config.sweep = f"{{'{_FIELD}': (0.7, 1.0)}}"
  config.prompts = {'in domain': {'domains': drafters.DOMAINS}}
  config.ways = ('all:5', drafters.DRAFT_ALL)
  config.bandits = (
    drafters.UNIFORM,
    drafters.UCB,
    drafters.from_prompt(drafters.UCB),
    drafters.HEDGE,
  )
  config.router = False
  config.pivot.down = (_FIELD, 'way')
  config.paper = (_TABLE_14, _TABLE_15)
  return config


_UCB = drafters.UCB['label']
_TABLE_14 = drafters.speed_ups(
  'Table 14',
  {_FIELD: 0.7, 'prompts': 'in domain'},
  (*drafters.ARMS, _UCB),
  {
    'code': (2.250, 1.215, 1.379, 1.532, 1.513, 1.896),
    'translation': (1.086, 1.886, 1.096, 1.130, 1.078, 1.431),
    'summarization': (1.461, 1.165, 1.874, 1.463, 1.353, 1.744),
    'qa': (1.316, 1.193, 1.324, 1.776, 1.272, 1.534),
    'math': (1.450, 1.258, 1.355, 1.616, 2.379, 2.046),
  },
  ((_UCB, '{}:5'),),
)
_TABLE_15 = drafters.speed_ups(
  'Table 15',
  {_FIELD: 1.0, 'prompts': 'in domain'},
  (*drafters.ARMS, 'all:5', _UCB),
  {
    'code': (1.781, 0.963, 1.168, 1.260, 1.178, 1.501, 1.596),
    'translation': (0.856, 1.695, 0.897, 0.880, 0.838, 0.861, 1.197),
    'summarization': (1.201, 0.918, 1.629, 1.223, 1.092, 1.230, 1.439),
    'qa': (1.073, 0.961, 1.132, 1.510, 1.031, 1.123, 1.322),
    'math': (1.220, 1.026, 1.200, 1.360, 1.968, 1.512, 1.673),
  },
  (('{}:5', 'all:5'), (_UCB, '{}:5'), (_UCB, 'all:5')),
)
