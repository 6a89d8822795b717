r"""Runs the experiments of the theory paper, and writes their tables.

python -m experiments.main --config=configs/theory/all.py \
    --config.data_dir=DATA --workdir=runs/theory

`configs/theory/all.py:small` has fewer prompts and experiments; it writes the
tables to its workdir.

Configs that need other weights or an accelerator are left out.
"""

from experiments.common import suite

_DATA = {'data_dir': suite.DATA}
_FEW = {'prompts_per_domain': 2, 'num_seeds': 1}
_RUNS = {
  'theory/batch_improvement': suite.Run(),
  'theory/chains': suite.Run(small={'num_models': 2}),
  'theory/diagnose': suite.Run(small=_FEW),
  'theory/diagnose:smollm2': suite.Run(_DATA, small=_FEW),
  'theory/draft_temperature': suite.Run(small={'prompts_per_domain': 1}),
  'theory/draft_temperature:smollm2': suite.Run(
    _DATA, small={'prompts_per_domain': 1}
  ),
  'theory/ledger': suite.Run(small={'prompts_per_domain': 2}),
  'theory/ledger:smollm2': suite.Run(
    {**_DATA, 'prompts_per_domain': 8}, small={'prompts_per_domain': 1}
  ),
  'theory/pareto': suite.Run(small={'runs': 20000}),
  'theory/practice': suite.Run(small={'prompts_per_domain': 1}),
  'theory/practice:smollm2': suite.Run(_DATA, small=None),
  'theory/rejections': suite.Run(
    small={'simulated_runs': 10000, 'decoded_runs': 1000}
  ),
  'theory/trees': suite.Run(_DATA, small={'prompts_per_domain': 4}),
  'theory/trees:smollm2': suite.Run(_DATA, small=None),
  'theory/winrate': suite.Run(small={'prompts_per_domain': 4, 'num_seeds': 2}),
  'theory/winrate:smollm2': suite.Run(
    _DATA, small={'prompts_per_domain': 2, 'num_seeds': 2}
  ),
}

VARIANTS = suite.SIZES
SMOKE = suite.SMOKE


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config(_RUNS, size)
