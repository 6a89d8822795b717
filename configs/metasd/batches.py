r"""One bandit per batch or per row, with one or many domains: Table 17.

python -m experiments.main --config=configs/metasd/batches.py \
    --config.data_dir=DATA --workdir=runs/metasd_batches

In the paper, the rows of a batch share an Eagle head; claims compare ratios of
block efficiency. In batches of 4, one ucb1 per batch emits 3.04 ± 0.16 tokens
per target call if they are from one domain and 2.51 ± 0.15 if they are mixed;
one ucb1 per row emits 3.03 ± 0.16.
"""

from configs.metasd import drafters

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


def _columns(size, prompts, method):
  return {'batch_size': size, 'prompts': prompts, 'method': method}


def _rows():
  """Yields rows of the general drafter and the bandit, by batch size."""
  for size, *numbers in (
    (1, 2.803, 3.045, 3.045),
    (2, 2.751, 2.933, 2.518),
    (4, 2.563, 2.701, 1.931),
  ):
    bandit = f'{_UCB}, of the batch'
    yield _columns(size, 'homogeneous', 'all:5'), numbers[0]
    yield _columns(size, 'mixed', 'all:5'), numbers[0]
    yield _columns(size, 'homogeneous', bandit), numbers[1]
    yield _columns(size, 'mixed', bandit), numbers[2]


def _claims():
  """Yields claims: bandit over drafter, and mixed over homogeneous batches."""
  for where, _ in _ROWS:
    if where['method'] != 'all:5':
      name = f'{where["prompts"]}, {where["batch_size"]}'
      yield f'{_UCB} over all:5, {name}', where, where | {'method': 'all:5'}
      if where['prompts'] == 'mixed':
        below = where | {'prompts': 'homogeneous'}
        yield f'{_UCB}, {name}, over homogeneous', where, below


_ROWS = tuple(_rows())
_TABLE_17 = {
  'source': 'MetaSD, Table 17',
  'field': 'speed_up',
  'measured': 'block_efficiency',
  'rows': _ROWS,
  'claims': tuple(_claims()),
}
