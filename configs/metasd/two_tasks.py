r"""Two tasks in turn, and a bandit that follows: MetaSD's Table 19.

python -m experiments.main --config=configs/metasd/two_tasks.py \
    --config.data_dir=DATA --workdir=runs/metasd_two_tasks

With `two_tasks.py:languages`, French and then Chinese to English, or the other
way round, as in the paper. The bandit goes on with what the first task has
taught it; single drafters, the router and the oracle stay the same for both.
Each prompt is read alone: the target has never seen two of them in one text,
and would go on with the first. Of all pairs of domains, the oracle has
2.99 ± 0.08 and ucb1 with BD 2.66 ± 0.07.
"""

from configs.metasd import drafters
from configs.metasd import languages

_PAIR = 'translation_fr-en', 'translation_zh-en'


def get_config(tasks='domains'):
  config = drafters.get_config()
  domains = drafters.DOMAINS
  if tasks == 'languages':
    config.arms, domains = languages.ARMS, _PAIR
  elif tasks != 'domains':
    raise ValueError(f'tasks must be domains or languages, got {tasks!r}.')
  config.prompts = {'two tasks': {'domains': domains, 'turns': 2}}
  config.prompts_per_domain = 12 if tasks == 'domains' else 48  # Of each pair.
  config.max_new_tokens = 96
  config.ways = ('all:5',)
  config.paper = (_TABLE_19,)
  config.by_domain = False
  config.pivot = {}
  config.columns = 'way', 'block_efficiency', 'over_best', 'pulls', 'paper'
  return config


_NUMBERS = {
  **dict(zip(languages.ARMS, (1.668, 1.722, 1.485, 1.759, 1.803))),
  'oracle': 1.803,  # "Upper bound": there, one drafter for all prompts.
  drafters.UCB['label']: 1.951,
}
_TABLE_19 = {
  'source': 'MetaSD, Table 19',
  'field': 'block_efficiency',
  'rows': tuple(
    ({'prompts': 'two tasks', 'domain': 'all', 'way': way}, number)
    for way, number in _NUMBERS.items()
  ),
}
_TABLE_19['claims'] = tuple(
  (f'{drafters.UCB["label"]} over {way}', _TABLE_19['rows'][-1][0], where)
  for where, _ in _TABLE_19['rows'][:-1]
  for way in (where['way'],)
)
