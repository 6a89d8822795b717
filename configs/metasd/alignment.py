r"""How rewards separate arms, by round: MetaSD's Table 2 and Figures 3, 5-7.

python -m experiments.main --config=configs/metasd/alignment.py \
    --config.data_dir=DATA --workdir=runs/metasd_alignment

`alignment.py:languages` uses specialists for languages on Japanese prompts, as
in Table 2 and Figure 5; --config.sampling.temperature=1 gives Figure 7. In
code, with chains from SmolLM2's heads (`alignment.py:smollm2`), UCB selects the
best arm in 0.62 ± 0.09 of the rounds with BD, and in 0.32 ± 0.13 with BE.
"""

from configs.metasd import drafters
from configs.metasd import languages
from experiments.common import paper
from specjax import registry

_JAPANESE = 'translation_ja-en'


def get_config(kind='domains'):
  """Returns the config for 'domains', 'languages' or domains of 'smollm2'."""
  fields = registry.lookup(_KINDS, 'kind', kind)
  domains = fields['prompts']['eval']['domains']
  is_japanese = domains == (_JAPANESE,)
  return drafters.shared(
    experiment='metasd.alignment',
    **fields,
    methods=fields['arms'],
    bandits=(
      drafters.UCB,
      drafters.UCB_BE,
      drafters.HALVING,
      drafters.EXP3,
      drafters.HEDGE,
    ),
    per_row=True,
    num_rounds=24,  # Rounds that have separate rows.
    paper=(*(_TABLE_2 if is_japanese else ()), _figure_3(domains)),
    columns=(
      'domain',
      'method',
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
      *(('paper',) if is_japanese else ()),
    ),
  )


_KINDS = {
  'domains': {
    'prompts': {'eval': {'domains': drafters.DOMAINS}},
    'arms': drafters.ARMS,
    'prompts_per_domain': 32,
    'batch_size': 16,
  },
  'languages': {
    'prompts': {'eval': {'domains': (_JAPANESE,)}},
    'arms': languages.ARMS,
    'prompts_per_domain': 80,
    'batch_size': 16,
  },
  'smollm2': {
    'family': 'smollm2/heads',
    'prompts': {'eval': {'domains': drafters.DOMAINS}},
    'arms': tuple(map(drafters.HEAD.format, drafters.DOMAINS)),
    **drafters.SIZES,
  },
}

VARIANTS = tuple(_KINDS)


def _table_2(field, reward):
  """Returns a column of the table; the first arm is the specialist."""
  home, *others = languages.ARMS
  numbers = paper.read(
    'metasd/table_2',
    reward={reward: reward},
    method=drafters.specialists('{}:5', languages.PAIRS),
  )
  return paper.table(
    f'MetaSD, Table 2, {field} of {reward}',
    field,
    numbers[['reward', 'method', field]],
    {'part': 'rewards', 'domain': _JAPANESE},
    [(other, home) for other in others],
    field,
  )


def _figure_3(domains):
  """Returns claims on selections of the best arm, without paper numbers."""
  best = {'part': 'best_arm'}
  bd, be = (
    {'method': bandit['label']} for bandit in (drafters.UCB, drafters.UCB_BE)
  )
  return {
    'source': 'MetaSD, Figure 3',
    'field': 'share',
    'rows': (),
    'claims': tuple(
      (
        f'rounds of UCB with the best arm, BD over BE, {domain}',
        best | bd | {'domain': domain},
        best | be | {'domain': domain},
        None,
      )
      for domain in (*domains, *(('all',) if len(domains) > 1 else ()))
    ),
  }


# Rows show the numbers of the last table, the mean; claims cover all columns.
_TABLE_2 = (
  _table_2('zeros', 'BE'),
  _table_2('variance', 'BE'),
  _table_2('variance', 'BD'),
  _table_2('mean', 'BE'),
  _table_2('mean', 'BD'),
)
