r"""The memory and bandwidth that several arms take: BanditSpec's Table 2.

python -m experiments.main --config=configs/banditspec/memory.py \
    --workdir=runs/banditspec_memory

`configs/banditspec/memory.py:FILE` adds retrieval from a datastore. At batch
size 1, the loop of UCBSpec over all drafters takes 1.06 times the memory of
`large:4`, and reads 0.96 ± 0.05 times as many bytes per second; with draft
lengths of one drafter as arms, it takes as much memory as that drafter. The
paper has 1.006 and 1.009 relative to Eagle-2, which is larger relative to the
other drafters than `large`.

The bytes of a pass are XLA's static count for the costliest arm, so that bytes
per token are an upper bound for several arms. For the bandwidth, the bytes of
each round are those of the loop that has only the arm of this round, and the
time is measured, interleaved with plain decoding; the paper measures both on a
GPU. XLA also counts what a processor's cache holds, and tokens that idle
drafters read do not count.
"""

import ml_collections

from experiments.common import paper
from experiments.common import sweeps

_BASELINE = 'large:4'
_BANDITS = ('exp3_spec', 'ucb_spec', 'hedge')

VARIANTS = ('',)  # The argument is a datastore.


def get_config(datastore=''):
  drafters = [_BASELINE, 'medium:4', 'prompt_lookup:16', 'suffix:4x8']
  if datastore:
    drafters.append(f"retrieval(params='{datastore}'):4x4")
  lengths = ('none', *(f'medium:{length}' for length in (1, 2, 3, 4)))
  return ml_collections.ConfigDict(
    {
      'experiment': 'banditspec.memory',
      'family': 'mini',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      # For the number of tokens that rounds emit.
      'prompts': {'all': {'limit': 16}},
      'prompts_per_domain': 20,
      'arms': tuple(drafters),
      'methods': ('none',),
      'bandits': tuple(
        {
          'bandit': bandit,
          'arms': arms,
          'feedback': 'full' if bandit == 'hedge' else 'bandit',
          'label': f'{bandit}, {label}',
        }
        for label, arms in (('drafters', tuple(drafters)), ('lengths', lengths))
        for bandit in _BANDITS
      ),
      'baseline': _BASELINE,  # The best single arm.
      'batch_size': 1,
      'repeats': 3,  # Timings, interleaved with plain decoding; or 0.
      'sweep': sweeps.product({'batch_size': (1, 8)}),
      'carry_over': True,
      'max_new_tokens': 64,
      'max_length': 512,
      'sampling': {'temperature': 0.0},
      'seed': 0,
      'paper': _TABLES,
      'columns': (
        'batch_size',
        'method',
        'block_efficiency',
        'parameters',
        'caches',
        'bandit',
        'loop',
        'bytes_of_pass',
        'relative_parameters',
        'relative_caches',
        'relative_loop',
        'relative_bytes_per_token',
        'relative_bandwidth',
        'paper',
      ),
    }
  )


_METHODS = {
  'Eagle-2': _BASELINE,
  'EXP3Spec': 'exp3_spec, drafters',
  'UCBSpec': 'ucb_spec, drafters',
}
_NUMBERS = paper.read('banditspec/table_2', method=_METHODS)
_COLUMNS = {'bandwidth': 'relative_bandwidth', 'memory': 'relative_loop'}


def _table(model, column):
  """Returns the paper's numbers for a model on Spec-Bench."""
  selected = _NUMBERS[
    (_NUMBERS['model'] == model) & (_NUMBERS['prompts'] == 'Spec-Bench')
  ]
  return paper.table(
    f'BanditSpec, Table 2, {model}, Spec-Bench, normalized {column}',
    _COLUMNS[column],
    selected[['method', column]],
    {'batch_size': 1},
    [(_METHODS[name], _BASELINE) for name in ('UCBSpec', 'EXP3Spec')],
    column,
  )


# A row shows the number of the last table that contains it.
_TABLES = tuple(
  _table(model, column)
  for column in _COLUMNS
  for model in ('Qwen2-7B', 'LLaMA3-8B')
)
