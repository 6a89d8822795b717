r"""The time of a model call by length and batch size: SpecTr's Tables 2 and 3.

python -m experiments.main --config=configs/spectr/latency.py \
    --workdir=runs/spectr_latency

`relative` is relative to the target at the first length and batch size.
Deviations are over single calls; the paper's are over 1,000 calls on a GPU,
with a 97M target and a 6M drafter. Calls are interleaved, so that weights come
from memory. On two CPU cores, 8 rows of 8 tokens take mini's target 2.64 ± 0.02
times as long as one row of 4; in the paper, 1.42 times.
"""

import ml_collections

from experiments.common import paper
from specjax import registry

_VARIANTS = {
  'mini': {'drafter': 'medium', 'repeats': 1000},
  'smollm2': {'drafter': 'small', 'repeats': 50},
}

VARIANTS = tuple(_VARIANTS)


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  variant = registry.lookup(_VARIANTS, 'family', which)
  drafter = variant['drafter']
  return ml_collections.ConfigDict(
    {
      'experiment': 'spectr.latency',
      'family': which,
      # Models of the family; or () for all.
      'model_names': ('target', drafter),
      'lengths': (4, 8),
      'batch_sizes': (1, 2, 4, 8),
      'prefix_length': 128,
      'repeats': variant['repeats'],
      'seed': 0,
      'columns': (
        'model',
        'length',
        'batch_size',
        'ms',
        'deviation_ms',
        'relative',
        'relative_deviation',
        'paper',
        'paper_error',
      ),
      'paper': (
        _table(2, 'target', 'target'),
        _table(3, drafter, 'drafter'),
      ),
    }
  )


def _table(number, model, name):
  return paper.table(
    f'SpecTr, Table {number}',
    'relative',
    paper.read(f'spectr/table_{number}').assign(model=model),
    claims=(
      (
        f'{name}: 8 rows of 8 tokens over 1 row of 4',
        _case(model, 8, 8),
        _case(model, 4, 1),
      ),
    ),
  )


def _case(model, length, batch_size):
  return {'model': model, 'length': length, 'batch_size': batch_size}
