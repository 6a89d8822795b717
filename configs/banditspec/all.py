r"""Runs the experiments of BanditSpec, and writes their tables.

python -m experiments.main --config=configs/banditspec/all.py \
    --config.data_dir=DATA --workdir=runs/banditspec

`configs/banditspec/all.py:small` has fewer prompts and no heads, as compiling
fourteen loops of SmolLM2 takes half an hour; it writes tables to its
workdir. Retrieval drafters read the datastores of the families, which are
created first.

Configs that need other weights or an accelerator are left out.
"""

from experiments.common import suite

_DATA = {'data_dir': suite.DATA}
_MINI_FOLDER, _SMOLLM2_FOLDER = 'runs/datastore', 'runs/smollm2_datastore'
_MINI_STORE = f'{_MINI_FOLDER}/datastore.safetensors'
_SMOLLM2_STORE = f'{_SMOLLM2_FOLDER}/datastore.safetensors'
_SPEC_BENCH = f'{suite.DATA}/spec_bench.jsonl'
_BATCH_SIZES = {'sweep': {'batch_size': (1, 4, 8)}}
_RUNS = {
  'train/datastore': suite.Run(_DATA, workdir=_MINI_FOLDER),
  'train/datastore:smollm2': suite.Run(
    _DATA, small=None, workdir=_SMOLLM2_FOLDER
  ),
  f'banditspec/drafters:{_MINI_STORE},{_SPEC_BENCH}': suite.Run(
    _DATA, small={'prompts_per_domain': 1}
  ),
  'banditspec/experts': suite.Run(_DATA, small={'prompts_per_domain': 2}),
  'banditspec/experts:heads': suite.Run(
    {**_DATA, 'prompts_per_domain': 3}, small=None
  ),
  f'banditspec/heads:{_SMOLLM2_STORE},{_SPEC_BENCH}': suite.Run(
    {**_DATA, 'prompts_per_domain': 2}, small=None
  ),
  'banditspec/lengths': suite.Run(small={'num_batches': 4, **_BATCH_SIZES}),
  'banditspec/lengths:heads': suite.Run(
    {**_DATA, 'num_batches': 6, **_BATCH_SIZES}, small=None
  ),
  f'banditspec/memory:{_MINI_STORE}': suite.Run(),
  'banditspec/regret': suite.Run(small={'runs': 50}),
  'banditspec/regret:table_1': suite.Run(small={'runs': 50}),
  'banditspec/regret:theorem_7': suite.Run(small={'runs': 50}),
  'banditspec/stop_rules': suite.Run(_DATA, small={'prompts_per_domain': 1}),
}

VARIANTS = suite.SIZES
SMOKE = suite.SMOKE


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config(_RUNS, size)
