r"""Specialized drafters, and bandits with full feedback: HedgeSpec.

python -m experiments.main --config=configs/banditspec/experts.py \
    --config.data_dir=DATA --workdir=runs/experts

Hedge and NormalHedge receive the rewards of all drafters in every round, for
which every drafter must read the emitted tokens; other bandits run only the
selected drafter. Timings, interleaved with plain decoding, include this cost.
HedgeSpec's numbers are for Llama-3.1-8B with seven heads of EAGLE-3: its
NormalHedge, the head for all domains, UCBSpec and EXP3Spec.
"""

from configs.banditspec import drafters
from configs.metasd import drafters as metasd
from experiments.common import paper
from specjax import registry

_SEVEN = (
  'code',
  'math',
  'qa',
  'summarization',
  'translation_de-en',
  'translation_fr-en',
  'translation_zh-en',
)
_VARIANTS = {
  'mini': {
    'family': 'mini/specialists',
    'arm': '{}:4',  # The arm of each specialist.
    'domains': _SEVEN,
    'general': 'all',  # The drafter for all domains.
  },
  'heads': {
    'family': 'smollm2/heads',
    'arm': 'feature_head({}):4',
    'domains': metasd.DOMAINS,
    'general': 'eagle',
  },
}

VARIANTS = tuple(_VARIANTS)


def get_config(which='mini'):
  """Returns the config for 'mini', or for the five 'heads' of SmolLM2."""
  variant = registry.lookup(_VARIANTS, 'family', which)
  arms = tuple(map(variant['arm'].format, variant['domains']))
  general = variant['arm'].format(variant['general'])
  config = drafters.family_config(variant['family'], arms, '')
  config.arms = arms  # Only the specialists.
  config.prompts = {'eval': {'domains': variant['domains']}}
  config.prompts_per_domain = 8
  config.methods = ('none', general)
  config.bandits = (
    'uniform',
    'ucb_spec',
    'exp3_spec',
    metasd.UCB,
    *(
      {'bandit': bandit, 'feedback': 'full', 'label': bandit}
      for bandit in ('hedge', 'normal_hedge')
    ),
  )
  config.max_new_tokens = 64
  config.paper = tuple(
    _table(general, field, measured)
    for field, measured in (
      ('tokens_per_second', 'speed_up'),
      ('block_efficiency', 'block_efficiency'),
    )
  )
  return config


def _table(general, field, measured):
  methods = {
    'NormalHedge': 'normal_hedge',
    'one head': general,
    'UCBSpec': 'ucb_spec',
    'EXP3Spec': 'exp3_spec',
  }
  first, *others = methods.values()
  numbers = paper.read('banditspec/hedgespec', method=methods)
  return paper.table(
    f'HedgeSpec, {field.replace("_", " ")}',
    field,
    numbers[['method', field]].assign(domain='all'),
    {'prompts': 'eval'},
    [(first, other) for other in others],
    field,
    measured=measured,
  )
