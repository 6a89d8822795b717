r"""What rewards show of arms, round by round: MetaSD's Table 2, Figures 3, 5-7.

python -m experiments.main --config=configs/metasd/alignment.py \
    --config.data_dir=DATA --workdir=runs/metasd_alignment

With `alignment.py:languages`, specialists for languages on Japanese prompts, as
in Table 2 and Figure 5; with --config.sampling.temperature=1, Figure 7. UCB's
share of rounds with the best arm, in code, with BD and with BE: 0.80 ± 0.03 and
0.53 ± 0.09.
"""

from configs.metasd import drafters
from configs.metasd import languages
from experiments.common import paper

_JAPANESE = 'translation_ja-en'


def get_config(kind='domains'):
  kinds = {
    'domains': (drafters.ARMS, drafters.DOMAINS),
    'languages': (languages.ARMS, (_JAPANESE,)),
  }
  if kind not in kinds:
    raise ValueError(f'kind must be one of {", ".join(kinds)}, got {kind!r}.')
  arms, domains = kinds[kind]
  return drafters.shared(
    experiment='metasd.alignment',
    prompts={'eval': {'domains': domains}},
    prompts_per_domain=32 if kind == 'domains' else 80,
    batch_size=16,
    arms=arms,
    ways=arms,
    bandits=(
      drafters.UCB,
      drafters.UCB_BE,
      drafters.HALVING,
      drafters.EXP3,
      drafters.HEDGE,
    ),
    per_row=True,
    num_rounds=24,  # That have rows of their own.
    paper=_TABLE_2,
    columns=(
      'domain',
      'way',
      'reward',
      'mean',
      'variance',
      'zeros',
      'signal',
      'best_arm',
      'share',
      'settled',
      'round',
      'divergence',
      'deviation',
      'paper',
    ),
  )


def _table_2(field, reward, numbers):
  """A column of the table; the first language is at home."""
  home, *others = languages.ARMS
  return paper.grid(
    f'MetaSD, Table 2, {field} of {reward}',
    field,
    'reward',
    'way',
    languages.ARMS,
    {reward: numbers},
    {'part': 'rewards', 'domain': _JAPANESE},
    tuple((other, home) for other in others),
  )


# A row has the number of the last table, its mean; claims have all columns.
_TABLE_2 = (
  _table_2('zeros', 'BE', (0.503, 0.678, 0.721, 0.743, 0.681)),
  _table_2('variance', 'BE', (0.093, 0.032, 0.024, 0.023, 0.037)),
  _table_2('variance', 'BD', (0.044, 0.026, 0.032, 0.029, 0.034)),
  _table_2('mean', 'BE', (0.232, 0.099, 0.081, 0.074, 0.106)),
  _table_2('mean', 'BD', (0.488, 0.294, 0.317, 0.288, 0.326)),
)
