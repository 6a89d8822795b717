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

from specjax import registry

_TABLE_2 = {  # By length, for batch sizes 1, 2, 4 and 8: mean and deviation.
  4: ((1.00, 0.16), (1.01, 0.15), (1.06, 0.10), (1.10, 0.16)),
  8: ((1.01, 0.18), (1.09, 0.25), (1.10, 0.09), (1.42, 0.4)),
}
_TABLE_3 = {
  4: ((0.18, 0.02), (0.19, 0.04), (0.18, 0.09), (0.20, 0.13)),
  8: ((0.17, 0.04), (0.19, 0.05), (0.16, 0.02), (0.18, 0.04)),
}

# The drafter, and repeats, by family.
_WHICH = {'mini': ('medium', 1000), 'smollm2': ('small', 50)}

VARIANTS = tuple(_WHICH)


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  drafter, repeats = registry.lookup(_WHICH, 'family', which)
  return ml_collections.ConfigDict(
    {
      'experiment': 'spectr.latency',
      'family': which,
      'model_names': (
        'target',
        drafter,
      ),  # Models of the family; or () for all.
      'lengths': (4, 8),
      'batch_sizes': (1, 2, 4, 8),
      'prefix_length': 128,
      'repeats': repeats,
      'seed': 0,
      'columns': (
        *('model', 'length', 'batch_size', 'ms', 'deviation_ms'),
        *('relative', 'relative_deviation', 'paper', 'paper_error'),
      ),
      'paper': (
        {
          'source': 'SpecTr, Table 2',
          'field': 'relative',
          'rows': _rows('target', _TABLE_2),
          'claims': (
            (
              'target: 8 rows of 8 tokens over 1 row of 4',
              _case('target', 8, 8),
              _case('target', 4, 1),
            ),
          ),
        },
        {
          'source': 'SpecTr, Table 3',
          'field': 'relative',
          'rows': _rows(drafter, _TABLE_3),
          'claims': (
            (
              'drafter: 8 rows of 8 tokens over 1 row of 4',
              _case(drafter, 8, 8),
              _case(drafter, 4, 1),
            ),
          ),
        },
      ),
    }
  )


def _rows(model, table):
  return tuple(
    (_case(model, length, batch_size), *number)
    for length, numbers in table.items()
    for batch_size, number in zip((1, 2, 4, 8), numbers)
  )


def _case(model, length, batch_size):
  return {'model': model, 'length': length, 'batch_size': batch_size}
