r"""Specialists and bandits above temperature 0: MetaSD's Tables 14 and 15.

python -m experiments.main --config=configs/metasd/temperatures.py \
    --config.data_dir=DATA --workdir=runs/metasd_temperatures

Claims are ratios of block efficiencies, as in drafters.py. Over all five
domains, ucb1 with BD emits 3.15 ± 0.08 tokens per target call at temperature
0.7 and 2.93 ± 0.07 at 1, and the general drafter 3.15 ± 0.08 and 2.97 ± 0.06.

`configs/metasd/temperatures.py:smollm2` uses chains from SmolLM2's heads, and
`configs/metasd/temperatures.py:heads` is MetaEagle at temperature 1: Table 16.
Relative to one head for all domains, ucb1 with BD that learns from the prompt
reaches 1.040 ± 0.029.
"""

import functools

from configs.metasd import drafters
from configs.metasd import heads
from specjax import registry

_FIELD = 'sampling.temperature'


def get_config(which='mini'):
  """Returns the config for 'mini', 'smollm2', or trees of its 'heads'."""
  get_base, methods, temperatures, tables = registry.lookup(
    _WHICH, 'family', which
  )
  config = get_base()
  config.sweep = f"{{'{_FIELD}': {temperatures}}}"
  config.prompts = {'in domain': {'domains': drafters.DOMAINS}}
  config.methods = (config.baseline, *methods)
  config.bandits = (
    drafters.UNIFORM,
    drafters.UCB,
    drafters.from_prompt(drafters.UCB),
    drafters.HEDGE,
  )
  config.router = False
  config.pivot.down = (_FIELD, 'method')
  arm = config.arms[0].replace(drafters.DOMAINS[0], '{}')
  config.paper = tuple(
    table(arm, config.arms, config.baseline) for table in tables
  )
  return config


_UCB = drafters.UCB['label']


def _table_14(arm, arms, general):
  del general  # It is not in the table.
  return drafters.speed_ups(
    'Table 14',
    {_FIELD: 0.7, 'prompts': 'in domain'},
    (*arms, _UCB),
    {
      'code': (2.250, 1.215, 1.379, 1.532, 1.513, 1.896),
      'translation': (1.086, 1.886, 1.096, 1.130, 1.078, 1.431),
      'summarization': (1.461, 1.165, 1.874, 1.463, 1.353, 1.744),
      'qa': (1.316, 1.193, 1.324, 1.776, 1.272, 1.534),
      'math': (1.450, 1.258, 1.355, 1.616, 2.379, 2.046),
    },
    ((_UCB, arm),),
  )


def _table_15(arm, arms, general):
  return drafters.speed_ups(
    'Table 15',
    {_FIELD: 1.0, 'prompts': 'in domain'},
    (*arms, general, _UCB),
    {
      'code': (1.781, 0.963, 1.168, 1.260, 1.178, 1.501, 1.596),
      'translation': (0.856, 1.695, 0.897, 0.880, 0.838, 0.861, 1.197),
      'summarization': (1.201, 0.918, 1.629, 1.223, 1.092, 1.230, 1.439),
      'qa': (1.073, 0.961, 1.132, 1.510, 1.031, 1.123, 1.322),
      'math': (1.220, 1.026, 1.200, 1.360, 1.968, 1.512, 1.673),
    },
    drafters.ratios(arm, general),
  )


def _table_16(arm, arms, general):
  return drafters.speed_ups(
    'Table 16',
    {_FIELD: 1.0, 'prompts': 'in domain'},
    (*arms, general, _UCB),
    {
      'code': (3.019, 0.872, 1.012, 1.348, 1.809, 2.926, 2.765),
      'translation': (1.030, 1.817, 1.373, 1.278, 0.997, 1.578, 1.668),
      'summarization': (0.998, 0.834, 2.289, 1.267, 0.864, 1.749, 1.935),
      'qa': (1.179, 0.922, 1.269, 2.181, 1.011, 1.680, 1.756),
      'math': (1.739, 0.966, 1.462, 2.141, 3.099, 2.289, 2.539),
    },
    drafters.ratios(arm, general),
  )


# The base config, further methods, temperatures, and tables of the paper.
_CHAINS = (0.7, 1.0), (_table_14, _table_15)
_WHICH = {
  'mini': (drafters.get_config, (drafters.DRAFT_ALL,), *_CHAINS),
  'smollm2': (functools.partial(drafters.get_config, 'smollm2'), (), *_CHAINS),
  'heads': (heads.get_config, (), (1.0,), (_table_16,)),
}
VARIANTS = tuple(_WHICH)
