r"""Runs all of SpecTr: every config in this folder, and its tables.

python -m experiments.main --config=configs/spectr/all.py \
    --config.data_dir=DATA --workdir=runs/spectr

`configs/spectr/all.py:small` has fewer prompts and experiments; it writes the
tables to its workdir.
"""

from experiments.common import suite

_FEW = '--config.prompts_per_domain=2 --config.num_seeds=1'
_RUNS = {
  'acceptance': ('', ''),
  'cost': ('', '--config.repeats=3'),
  'decode': ('', None),
  'decode:smollm2': (
    suite.DATA,
    '--config.prompts_per_domain=1 --config.max_new_tokens=32',
  ),
  'latency': ('', '--config.repeats=20'),
  'latency:smollm2': ('', '--config.repeats=5'),
  'prefix_trees': ('', _FEW),
  'prefix_trees:smollm2': (suite.DATA, None),
  'speed': ('', '--config.prompts_per_domain=1'),
  'speed:smollm2': (suite.DATA, None),
}

VARIANTS = suite.SIZES
SMOKE = suite.SMOKE


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config('spectr', _RUNS, size)
