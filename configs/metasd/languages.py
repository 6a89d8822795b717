r"""A specialist for each language: MetaSD's Tables 5 and 10.

python -m experiments.main --config=configs/metasd/languages.py \
    --config.data_dir=DATA --workdir=runs/metasd_languages
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
