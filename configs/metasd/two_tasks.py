r"""Two tasks in sequence, to which a bandit adapts: MetaSD's Table 19.

python -m experiments.main --config=configs/metasd/two_tasks.py \
    --config.data_dir=DATA --workdir=runs/metasd_two_tasks

`two_tasks.py:languages` translates from French and Chinese to English, in both
orders, as in the paper. The bandit keeps its state from the first task; single
drafters, the router and the oracle use one drafter for both. Each prompt is
decoded by itself, as mini's target has never seen two prompts in one text and
would continue the first one. With `two_tasks.py:smollm2`, both are turns of one
conversation whose domain changes.
"""

from configs.metasd import drafters
from configs.metasd import languages
from experiments.common import paper
from specjax import registry

_PAIR = 'translation_fr-en', 'translation_zh-en'


_VARIANTS = {
  'domains': {
    'family': 'mini',
    'prompts': {'domains': drafters.DOMAINS, 'turns': 2},
    'fields': {'prompts_per_domain': 12, 'max_new_tokens': 96},
  },
  'languages': {
    'family': 'mini',
    'prompts': {'domains': _PAIR, 'turns': 2},
    'fields': {
      'arms': languages.ARMS,
      'prompts_per_domain': 48,
      'max_new_tokens': 96,
    },
  },
  'smollm2': {
    'family': 'smollm2',
    'prompts': {
      'domains': drafters.DOMAINS,
      'turns': 2,
      'conversation': True,
    },
    'fields': {
      'prompts_per_domain': 4,
      'max_new_tokens': 64,
      'max_length': 640,
    },
  },
}

VARIANTS = tuple(_VARIANTS)


def get_config(tasks='domains'):
  """Returns the config for 'domains', 'languages' or domains of 'smollm2'."""
  variant = registry.lookup(_VARIANTS, 'tasks', tasks)
  config = drafters.get_config(variant['family'])
  config.update(variant['fields'])
  config.prompts = {'two tasks': variant['prompts']}
  config.methods = (config.baseline,)
  config.paper = (_TABLE_19,)
  config.by_domain = False
  config.pivot = {}
  config.columns = 'method', 'block_efficiency', 'over_best', 'pulls', 'paper'
  return config


_UCB = drafters.UCB['label']
# Its "upper bound" is one drafter for all prompts: our oracle.
_NUMBERS = paper.read(
  'metasd/table_19',
  method=drafters.specialists('{}:5', languages.PAIRS)
  | {'oracle': 'oracle', 'UCB': _UCB},
).drop(columns='speed_up')
_TABLE_19 = paper.table(
  'MetaSD, Table 19',
  'block_efficiency',
  _NUMBERS,
  {'prompts': 'two tasks', 'domain': 'all'},
  [(_UCB, method) for method in _NUMBERS['method'] if method != _UCB],
)
