r"""The frontier of shorter and longer drafts (Figure 7).

python -m experiments.main --config=configs/cascades/draft_lengths.py \
    --config.data_dir=DATA --workdir=runs/draft_lengths
"""

from configs.cascades import frontier


def get_config(task='translation'):
  config = frontier.shared(task)
  config.columns = ('draft_length', *config.columns)
  rules = {rule: frontier.RULES[rule] for rule in ('opt', 'token_v3')}
  config.ways = frontier.alone() + tuple(
    way
    for length in (3, 5, 7)
    for way in frontier.drafted(rules, length=length, draft_length=length)
  )
  return config
