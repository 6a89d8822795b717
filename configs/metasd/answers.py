r"""Gains of bandits by the length of the answer.

python -m experiments.main --config=configs/metasd/answers.py \
    --config.data_dir=DATA --workdir=runs/metasd_answers

A bandit starts anew with every prompt, and exploring an arm costs a round. The
same prompts are answered with increasing numbers of tokens: `over_best` is
block efficiency over that of the best single specialist at that length.
`answers.py:smollm2` uses chains from SmolLM2's heads.
"""

from configs.metasd import drafters
from experiments.common import sweeps

VARIANTS = drafters.VARIANTS


def get_config(which='mini'):
  """Returns the config for 'mini', or for chains from 'smollm2' heads."""
  config = drafters.get_config(which)
  config.prompts = {'in domain': {'domains': drafters.DOMAINS}}
  config.prompts_per_domain = 5
  config.max_length = 576
  config.sweep = sweeps.product({'max_new_tokens': (16, 48, 144)})
  config.methods = (config.baseline,)
  config.bandits = (
    drafters.UNIFORM,
    {'bandit': 'ucb_spec', 'reward': 'accepted_fraction', 'label': 'ucb_spec'},
    drafters.UCB,
    drafters.from_prompt(drafters.UCB),
    drafters.HEDGE,
  )
  config.router = False
  config.by_domain = False
  config.paper = ()
  config.pivot = {
    'down': ('method',),
    'across': 'max_new_tokens',
    'value': 'over_best',
  }
  return config
