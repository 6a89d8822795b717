r"""One bandit per batch or per row, with one or many domains: Table 17.

python -m experiments.main --config=configs/metasd/batches.py \
    --config.data_dir=DATA --workdir=runs/metasd_batches

In the paper, the rows of a batch share an Eagle head; claims compare ratios of
block efficiency.
"""

from configs.metasd import drafters
from experiments.common import paper

_UCB = drafters.UCB['label']

SMOKE = {'prompts.eval.limit': 0}


def get_config():
  return drafters.shared(
    experiment='metasd.batches',
    prompts={'eval': {'domains': drafters.DOMAINS}},
    prompts_per_domain=16,
    methods=('all:5',),  # A single arm that bandits do not select.
    bandits=tuple(
      bandit | {'per_row': per_row, 'label': f'{bandit["label"]}, {whose}'}
      for bandit in (drafters.UCB, drafters.HEDGE)
      for per_row, whose in ((False, 'of the batch'), (True, 'of each row'))
    ),
    batch_sizes=(1, 2, 4),  # All sizes divide the largest.
    max_new_tokens=64,
    paper=(_TABLE_17,),
    columns=(
      'batch_size',
      'prompts',
      'method',
      'block_efficiency',
      'num_catch_up_tokens',
      'speed_up',
      'paper',
      'paper_field',
    ),
  )


_OF_BATCH = f'{_UCB}, of the batch'
_NUMBERS = paper.read(
  'metasd/table_17', method={'OFA': 'all:5', 'UCB': _OF_BATCH}
)
# Other sets are decoded one by one.
_NUMBERS = _NUMBERS[_NUMBERS['prompts'].isin(['homogeneous', 'mixed'])]


def _claims():
  """Yields claims: bandit over drafter, and mixed over homogeneous batches."""
  ucb = _NUMBERS[_NUMBERS['method'] == _OF_BATCH]
  for where in ucb.drop(columns='number').to_dict('records'):
    name = f'{where["prompts"]}, {where["batch_size"]}'
    yield f'{_UCB} over all:5, {name}', where, where | {'method': 'all:5'}
    if where['prompts'] == 'mixed':
      below = where | {'prompts': 'homogeneous'}
      yield f'{_UCB}, {name}, over homogeneous', where, below


_TABLE_17 = paper.table(
  'MetaSD, Table 17',
  'speed_up',
  _NUMBERS,
  measured='block_efficiency',
  claims=tuple(_claims()),
)
