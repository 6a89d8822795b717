r"""Seven specialized drafters, and bandits with full information: HedgeSpec.

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
  *('code', 'math', 'qa', 'summarization'),
  *('translation_de-en', 'translation_fr-en', 'translation_zh-en'),
)
# The family, the arm of a domain, the domains, and the drafter for all domains.
_WHICH = {
  'mini': ('mini/specialists', '{}:4', _SEVEN, 'all'),
  'heads': ('smollm2/heads', 'feature_head({}):4', metasd.DOMAINS, 'eagle'),
}

VARIANTS = tuple(_WHICH)


def get_config(which='mini'):
  """Returns the config for 'mini', or for the five 'heads' of SmolLM2."""
  family, arm, domains, general = registry.lookup(_WHICH, 'family', which)
  arm, general = arm.format, arm.format(general)
  arms = tuple(map(arm, domains))
  config = drafters.family_config(family, arms, '')
  config.arms = arms  # Only the specialists.
  config.prompts = {'eval': {'domains': domains}}
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
    _table(general, field, measured, numbers)
    for field, measured, numbers in (
      ('tokens_per_second', 'speed_up', (90.4, 74.3, 68.9, 65.2)),
      ('block_efficiency', 'block_efficiency', (7.15, 5.69, 5.09, 4.86)),
    )
  )
  return config


def _table(general, field, measured, numbers):
  methods = ('normal_hedge', general, 'ucb_spec', 'exp3_spec')
  return paper.grid(
    f'HedgeSpec, {field.replace("_", " ")}',
    field,
    'domain',
    'method',
    methods,
    {'all': numbers},
    {'prompts': 'eval'},
    [(methods[0], other) for other in methods[1:]],
    measured=measured,
  )
