r"""The same, but what was learnt goes on from prompt to prompt of a domain.

python -m experiments.main --config=configs/metasd/sessions.py \
    --config.data_dir=DATA --workdir=runs/metasd_sessions

MetaSD starts anew with every query, so that a bandit of five arms is still
looking when an answer of 15 tokens ends. A user stays with a task for a while.
Over the specialist's block efficiency:

       code  translation   summarization  qa            math
BD     0.99  0.96 ± 0.04   0.98 ± 0.02    0.99 ± 0.01   1.00
BE     0.99  0.96 ± 0.04   0.98 ± 0.02    0.92 ± 0.04   1.00
hedge  1.00  0.98 ± 0.02   0.98 ± 0.02    0.99 ± 0.01   1.00
"""

from configs.metasd import drafters


def get_config():
  config = drafters.get_config()
  config.sets = {name: {'domains': (name,)} for name in drafters.DOMAINS}
  config.others = ()
  config.bandits = (
    'ucb1:beta=0.01/block_divergence',
    'ucb1:beta=0.01/accepted_fraction',
    'hedge/block_divergence',
  )
  config.router = False
  config.carry_over = True
  return config
