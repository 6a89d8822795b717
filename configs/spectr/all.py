r"""Runs the experiments of SpecTr, and writes their tables.

python -m experiments.main --config=configs/spectr/all.py \
    --config.data_dir=DATA --workdir=runs/spectr

`configs/spectr/all.py:small` has fewer prompts and experiments; it writes the
tables to its workdir.

Configs that need other weights or an accelerator are left out.
"""

from experiments.common import suite

_DATA = {'data_dir': suite.DATA}
_RUNS = {
  'spectr/acceptance': suite.Run(),
  'spectr/cost': suite.Run(small={'repeats': 3}),
  'spectr/decode': suite.Run(small=None),
  'spectr/decode:smollm2': suite.Run(
    _DATA, small={'prompts_per_domain': 1, 'max_new_tokens': 32}
  ),
  'spectr/latency': suite.Run(small={'repeats': 20}),
  'spectr/latency:smollm2': suite.Run(small={'repeats': 5}),
  'spectr/prefix_trees': suite.Run(
    small={'prompts_per_domain': 2, 'num_seeds': 1}
  ),
  'spectr/prefix_trees:smollm2': suite.Run(_DATA, small=None),
  'spectr/rules': suite.Run(small={'prompts_per_domain': 2}),
  'spectr/rules:smollm2': suite.Run(_DATA, small=None),
  'spectr/speed': suite.Run(small={'prompts_per_domain': 1}),
  'spectr/speed:smollm2': suite.Run(_DATA, small=None),
}

VARIANTS = suite.SIZES
SMOKE = suite.SMOKE


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config(_RUNS, size)
