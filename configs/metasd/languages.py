r"""A specialist for each language: MetaSD's Tables 5 and 10.

python -m experiments.main --config=configs/metasd/languages.py \
    --config.data_dir=DATA --workdir=runs/metasd_languages

Over the German specialist, the best one for long German texts; for all five
languages it is level with the Chinese and the Russian one (3.31 ± 0.17 against
3.26 ± 0.19 and 3.19 ± 0.20):

                     five languages   long
translation 5        1.13 ± 0.03      0.93 ± 0.02
all 5                1.09 ± 0.03      0.82 ± 0.03
draft-all 5          1.34 ± 0.04      1.11 ± 0.02
ucb1, BD             1.04 ± 0.02      0.93 ± 0.02
hedge, BD            1.08 ± 0.03      0.94 ± 0.01
router               1.14 ± 0.03      1.00 ± 0.00
oracle               1.22 ± 0.03      1.00 ± 0.00
"""

from configs.metasd import drafters

_PAIRS = tuple(
  f'translation_{name}-en' for name in ('ja', 'ru', 'de', 'fr', 'zh')
)


def get_config():
  config = drafters.get_config()
  config.arms = tuple((pair, 5) for pair in _PAIRS)
  config.others = (('translation', 5), ('all', 5), (_PAIRS, 5))
  config.sets = {
    'eval': {'domains': _PAIRS},
    'long': {'domains': ('translation_de-en',), 'longer_than': 128},
  }
  config.bandits = (
    'uniform',
    'exp3:gamma=0.4/block_divergence',
    'ucb1:beta=0.01/block_divergence',
    'ucb1:beta=0.01/block_divergence@window',
    'hedge/block_divergence',
  )
  return config
