r"""A bandit that keeps what it has learnt from prompt to prompt of a domain.

python -m experiments.main --config=configs/metasd/sessions.py \
    --config.data_dir=DATA --workdir=runs/metasd_sessions

MetaSD starts anew with every query, so that a bandit of five arms is still
looking when an answer of 15 tokens ends. A user stays with a task for a while:
then ucb1 with BD has 0.99 ± 0.01 of the specialist's block efficiency in qa.

`configs/metasd/sessions.py:heads` is the same of heads.py: MetaEagle, where
ucb1 with BD has between 0.97 and 1.01 of the best head's block efficiency,
whatever the domain.
"""

from configs.metasd import drafters
from configs.metasd import heads
from specjax import registry

# What it goes on from, and the one for all.
_WHICH = {
  'mini': (drafters.get_config, 'all:5'),
  'heads': (heads.get_config, heads.ALL),
}

VARIANTS = tuple(_WHICH)


def get_config(which='mini'):
  """Returns the config for 'mini', or for the 'heads' of SmolLM2."""
  get_base, one_for_all = registry.lookup(_WHICH, 'family', which)
  config = get_base()
  config.prompts = {name: {'domains': (name,)} for name in drafters.DOMAINS}
  config.methods, config.baseline = (one_for_all,), one_for_all
  config.bandits = (drafters.UCB, drafters.UCB_BE, drafters.HEDGE)
  config.router = False
  config.carry_over = True
  config.by_domain = False  # Each set is one.
  config.paper = ()
  config.pivot = {
    'down': ('method',),
    'across': 'prompts',
    'value': 'over_best',
  }
  return config
