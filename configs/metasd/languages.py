r"""Specialists for languages: MetaSD's Tables 5, 9 and 10.

python -m experiments.main --config=configs/metasd/languages.py \
    --config.data_dir=DATA --workdir=runs/metasd_languages

Claims are ratios as in drafters.py. draft-all, which is slow in the paper,
requires speed-ups (--config.repeats=3). On long German texts, ucb1 with BD
reaches 0.93 ± 0.02 of the German specialist, which is the best arm.
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
# Table 9 has the same numbers.
_TABLE_5 = drafters.speed_ups(
  'Table 5',
  {'prompts': 'five languages'},
  (*ARMS, _DRAFT_ALL, _EXP3, _UCB),
  dict(
    zip(
      PAIRS,
      (
        (1.757, 1.109, 1.012, 1.018, 1.154, 0.352, 1.260, 1.161),
        (1.055, 1.817, 0.995, 0.963, 1.036, 0.396, 1.259, 1.503),
        (1.098, 1.369, 2.360, 1.036, 1.099, 0.544, 1.472, 1.693),
        (1.106, 1.445, 1.108, 2.135, 1.122, 0.484, 1.506, 1.775),
        (1.198, 1.086, 1.021, 1.023, 1.516, 0.367, 1.204, 1.369),
      ),
    )
  ),
  ((_UCB, '{}:5'), (_UCB, _EXP3)),
)
_TABLE_10 = drafters.speed_ups(
  'Table 10',
  {'prompts': 'long'},
  (*ARMS, _UCB),
  {'translation_de-en': (1.238, 1.316, 2.044, 0.970, 1.187, 2.031)},
  ((_UCB, '{}:5'),),
)
