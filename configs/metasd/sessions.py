r"""A bandit that keeps what it has learnt from prompt to prompt of a domain.

python -m experiments.main --config=configs/metasd/sessions.py \
    --config.data_dir=DATA --workdir=runs/metasd_sessions

MetaSD starts anew with every query, so that a bandit of five arms is still
looking when an answer of 15 tokens ends. A user stays with a task for a while:
then ucb1 with BD has 0.99 ± 0.01 of the specialist's block efficiency in qa.
"""

from configs.metasd import drafters


def get_config():
  config = drafters.get_config()
  config.prompts = {name: {'domains': (name,)} for name in drafters.DOMAINS}
  config.ways = ()
  config.bandits = (drafters.UCB, drafters.UCB_BE, drafters.HEDGE)
  config.router = False
  config.carry_over = True
  config.by_domain = False  # Each set is one.
  config.paper = ()
  config.pivot = {'down': ('way',), 'across': 'prompts', 'value': 'over_best'}
  return config
