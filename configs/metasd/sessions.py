r"""Bandits that keep their state between the prompts of a domain.

python -m experiments.main --config=configs/metasd/sessions.py \
    --config.data_dir=DATA --workdir=runs/metasd_sessions

MetaSD starts anew with every query, so that a bandit over five arms still
explores when an answer of 15 tokens ends. Here it keeps its state, as for a
user who stays with one task.

`configs/metasd/sessions.py:heads` does the same with heads.py: with MetaEagle,
ucb1 with BD reaches 0.97 to 1.01 of the best head's block efficiency in every
domain.
"""

from configs.metasd import drafters
from configs.metasd import heads
from specjax import registry

_VARIANTS = {'mini': drafters.get_config, 'heads': heads.get_config}

VARIANTS = tuple(_VARIANTS)


def get_config(which='mini'):
  """Returns the config for 'mini', or for the 'heads' of SmolLM2."""
  config = registry.lookup(_VARIANTS, 'family', which)()
  config.prompts = {name: {'domains': (name,)} for name in drafters.DOMAINS}
  config.methods = (config.baseline,)
  config.bandits = (drafters.UCB, drafters.UCB_BE, drafters.HEDGE)
  config.router = False
  config.carry_over = True
  config.by_domain = False  # Each prompt set is one domain.
  config.paper = ()
  config.pivot = {
    'down': ('method',),
    'across': 'prompts',
    'value': 'over_best',
  }
  return config
