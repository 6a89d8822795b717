r"""Runs all of the theory paper: every config in this folder, and its tables.

python -m experiments.main --config=configs/theory/all.py \
    --config.data_dir=DATA --workdir=runs/theory

`configs/theory/all.py:small` has fewer prompts and experiments; it writes the
tables to its workdir.
"""

from experiments.common import suite

_FEW = '--config.prompts_per_domain=2 --config.num_seeds=1'
_RUNS = {
  'batch_improvement': ('', ''),
  'chains': ('', '--config.num_models=2'),
  'diagnose': ('', _FEW),
  'diagnose:smollm2': (suite.DATA, _FEW),
  'ledger': ('', '--config.prompts_per_domain=2'),
  'ledger:smollm2': (
    f'{suite.DATA} --config.prompts_per_domain=8',
    '--config.prompts_per_domain=1',
  ),
  'pareto': ('', '--config.runs=20000'),
  'practice': ('', '--config.prompts_per_domain=1'),
  'practice:smollm2': (suite.DATA, None),
  'rejections': (
    '',
    '--config.simulated_runs=10000 --config.decoded_runs=1000',
  ),
  'trees': (suite.DATA, '--config.prompts_per_domain=4'),
  'trees:smollm2': (suite.DATA, None),
  'winrate': ('', '--config.prompts_per_domain=4 --config.num_seeds=2'),
  'winrate:smollm2': (
    suite.DATA,
    '--config.prompts_per_domain=2 --config.num_seeds=2',
  ),
}

VARIANTS = suite.SIZES
SMOKE = suite.SMOKE


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config('theory', _RUNS, size)
