r"""When a drafter catches up with tokens of other drafters: MetaSD's Table 13.

python -m experiments.main --config=configs/metasd/caches.py \
    --config.data_dir=DATA --workdir=runs/metasd_caches

A drafter reads missing tokens when it is selected ('lazy'), after every round
('always'), or only sinks and a window of them, as in StreamingLLM ('window').
`num_catch_up_tokens` counts the tokens that drafters read to catch up: the cost
of switching, which switching.py models. The paper's ratios are for Eagle heads;
ours are ratios of speed-ups. ucb1 with a window reaches 1.00 of the block
efficiency of ucb1 that reads everything. `caches.py:smollm2` uses chains from
SmolLM2's heads of EAGLE-1, with a shorter window, as its texts are shorter.
"""

from configs.metasd import drafters
from specjax import registry

_UCB = drafters.UCB | {'label': 'ucb1'}
_UNIFORM = {'bandit': 'uniform', 'label': 'uniform'}


def get_config(which='mini'):
  """Returns the config for 'mini', or for chains from 'smollm2' heads."""
  variant = registry.lookup(_VARIANTS, 'family', which)
  names = tuple(map(variant['drafter'].format, drafters.DOMAINS))
  window = variant['window']
  windows = tuple(f'windowed({name}, window={window}):5' for name in names)
  caches = {
    'lazy': {},
    'always': {'feedback': 'full'},
    'window': {'arms': windows},
  }
  return drafters.shared(
    experiment='compare',
    by_domain=True,
    arms=tuple(f'{name}:5' for name in names),
    prompts={'in domain': {'domains': drafters.DOMAINS}},
    bandits=tuple(
      bandit | fields | {'label': f'{bandit["label"]}, {policy}'}
      for bandit in (_UCB, _UNIFORM)
      for policy, fields in caches.items()
    ),
    paper=(_TABLE_13,),
    columns=(
      'domain',
      'method',
      'block_efficiency',
      'tokens',
      'num_catch_up_tokens',
      'speed_up',
      'paper',
      'paper_field',
    ),
    **variant['fields'],
  )


_VARIANTS = {
  'mini': {
    'drafter': '{}',  # The drafter for one domain.
    'window': 64,
    'fields': {'family': 'mini/specialists', 'repeats': 3},
  },
  'smollm2': {
    'drafter': 'feature_head({})',
    'window': 32,
    'fields': {
      'family': 'smollm2/heads',
      'prompts_per_domain': 3,
      'repeats': 1,
    },
  },
}
VARIANTS = tuple(_VARIANTS)


_TABLE_13 = drafters.speed_ups(
  13,
  {'prompts': 'in domain'},
  {'UCB': 'ucb1, lazy', 'UCB, StreamingLLM': 'ucb1, window'},
  (('ucb1, window', 'ucb1, lazy'),),
  'speed_up',
)
