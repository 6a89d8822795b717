r"""Specialists for languages: MetaSD's Tables 5, 9 and 10.

python -m experiments.main --config=configs/metasd/languages.py \
    --config.data_dir=DATA --workdir=runs/metasd_languages

Claims are ratios as in drafters.py. draft-all, which is slow in the paper,
requires speed-ups (--config.repeats=3).
"""

from configs.metasd import drafters

PAIRS = tuple(
  f'translation_{name}-en' for name in ('ja', 'ru', 'de', 'fr', 'zh')
)
ARMS = tuple(f'{pair}:5' for pair in PAIRS)


def get_config():
  config = drafters.get_config()
  config.arms = ARMS
  config.prompts = {
    'five languages': {'domains': PAIRS},
    'long': {'domains': ('translation_de-en',), 'longer_than': 128},
  }
  config.methods = (
    'translation:5',
    'all:5',
    {'arm': f'ensemble({list(PAIRS)}):5', 'label': _DRAFT_ALL},
  )
  config.bandits = (
    drafters.UNIFORM,
    drafters.EXP3,
    drafters.UCB,
    drafters.UCB
    | {
      'arms': tuple(f'windowed({pair!r}):5' for pair in PAIRS),
      'label': f'{_UCB}, window',
    },
    drafters.HEDGE,
  )
  config.paper = (_TABLE_5, _TABLE_10)
  return config


_UCB, _EXP3 = drafters.UCB['label'], drafters.EXP3['label']
_DRAFT_ALL = drafters.DRAFT_ALL['label']
_METHODS = drafters.specialists('{}:5', PAIRS)
# Table 9 has the same numbers.
_TABLE_5 = drafters.speed_ups(
  5,
  {'prompts': 'five languages'},
  _METHODS | {'draft-all': _DRAFT_ALL, 'EXP3': _EXP3, 'UCB': _UCB},
  ((_UCB, '{}:5'), (_UCB, _EXP3)),
)
_TABLE_10 = drafters.speed_ups(
  10, {'prompts': 'long'}, _METHODS | {'UCB': _UCB}, ((_UCB, '{}:5'),)
)
