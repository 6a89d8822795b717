r"""When a drafter reads what others committed: MetaSD's Table 13.

python -m experiments.main --config=configs/metasd/caches.py \
    --config.data_dir=DATA --workdir=runs/metasd_caches

Lazily, all of it; after every round; or sinks and a window of it at most, as in
StreamingLLM. `num_catch_up_tokens` counts the tokens that drafters read behind
others: the cost of changing drafters, which switching.py charges. The paper's
ratios are of Eagle heads, beside ours of speed-ups: ucb1 with a window has 1.00
of the block efficiency of ucb1 that reads all. With `caches.py:smollm2`, chains
of its heads of EAGLE-1 draft, whose window is shorter, as texts are.
"""

from configs.metasd import drafters
from specjax import registry

_UCB = drafters.UCB | {'label': 'ucb1'}
_UNIFORM = {'bandit': 'uniform', 'label': 'uniform'}


def get_config(which='mini'):
  """Returns the config for 'mini', or for chains of the heads of 'smollm2'."""
  family, drafter, window, sizes = registry.lookup(_WHICH, 'family', which)
  made = tuple(map(drafter.format, drafters.DOMAINS))
  windows = tuple(f'windowed({drafter}, window={window}):5' for drafter in made)
  caches = {
    'lazy': {},
    'always': {'feedback': 'full'},
    'window': {'arms': windows},
  }
  return drafters.shared(
    experiment='compare',
    family=family,
    arms=tuple(f'{drafter}:5' for drafter in made),
    prompts={'in domain': {'domains': drafters.DOMAINS}},
    bandits=tuple(
      bandit | fields | {'label': f'{bandit["label"]}, {name}'}
      for bandit in (_UCB, _UNIFORM)
      for name, fields in caches.items()
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
    **sizes,
  )


# By family: where its models are, the drafter of a domain, pairs or tokens of a
# window, and sizes.
_WHICH = {
  'mini': ('mini/specialists', '{}', 64, {'repeats': 3}),
  'smollm2': (
    *('smollm2/heads', 'feature_head({})', 32),
    {'prompts_per_domain': 3, 'repeats': 1},
  ),
}
VARIANTS = tuple(_WHICH)


_TABLE_13 = drafters.speed_ups(
  'Table 13',
  {'prompts': 'in domain'},
  ('ucb1, lazy', 'ucb1, window'),
  {
    'code': (3.724, 3.624),
    'translation': (2.318, 2.352),
    'summarization': (3.057, 2.986),
    'qa': (2.641, 2.654),
    'math': (3.520, 3.338),
  },
  (('ucb1, window', 'ucb1, lazy'),),
  'speed_up',
)
