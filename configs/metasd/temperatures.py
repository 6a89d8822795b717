r"""Specialists and bandits above temperature 0: MetaSD's Tables 14 and 15.

python -m experiments.main --config=configs/metasd/temperatures.py \
    --config.data_dir=DATA --workdir=runs/metasd_temperatures

Claims are ratios of block efficiencies, as in drafters.py.

`configs/metasd/temperatures.py:smollm2` uses chains from SmolLM2's heads, and
`configs/metasd/temperatures.py:heads` is MetaEagle at temperature 1: Table 16.
Relative to one head for all domains, ucb1 with BD that learns from the prompt
reaches 1.040 ± 0.029.
"""

import functools

from configs.metasd import drafters
from configs.metasd import heads
from experiments.common import sweeps
from specjax import registry

_FIELD = 'sampling.temperature'


def get_config(which='mini'):
  """Returns the config for 'mini', 'smollm2', or trees of its 'heads'."""
  variant = registry.lookup(_VARIANTS, 'family', which)
  config = variant['base']()
  config.sweep = sweeps.product({_FIELD: variant['temperatures']})
  config.prompts = {'in domain': {'domains': drafters.DOMAINS}}
  config.methods = (config.baseline, *variant['methods'])
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
    table(arm, config.baseline) for table in variant['tables']
  )
  return config


_UCB = drafters.UCB['label']


def _table(number, temperature):
  """Returns a function from an arm and the general drafter to a table."""

  def table(arm, general):
    methods = drafters.specialists(arm) | {'OFA': general, 'UCB': _UCB}
    ratios = drafters.ratios(arm, general)
    if number == 14:
      ratios = ((_UCB, arm),)  # It does not have the general drafter.
    where = {_FIELD: temperature, 'prompts': 'in domain'}
    return drafters.speed_ups(number, where, methods, ratios)

  return table


_CHAINS = {
  'temperatures': (0.7, 1.0),
  'tables': (_table(14, 0.7), _table(15, 1.0)),
}
_VARIANTS = {
  'mini': {
    'base': drafters.get_config,
    'methods': (drafters.DRAFT_ALL,),  # Further methods.
    **_CHAINS,
  },
  'smollm2': {
    'base': functools.partial(drafters.get_config, 'smollm2'),
    'methods': (),
    **_CHAINS,
  },
  'heads': {
    'base': heads.get_config,
    'methods': (),
    'temperatures': (1.0,),
    'tables': (_table(16, 1.0),),
  },
}
VARIANTS = tuple(_VARIANTS)
