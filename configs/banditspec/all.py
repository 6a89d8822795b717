r"""Runs all of BanditSpec: every config in this folder, and its tables.

python -m experiments.main --config=configs/banditspec/all.py \
    --config.data_dir=DATA --workdir=runs/banditspec

`configs/banditspec/all.py:small` has fewer prompts and no heads, as compiling
fourteen loops of SmolLM2 takes half an hour; it writes tables to its
workdir. Retrieval drafters read the datastores of the families, which are
created first.
"""

from experiments.common import suite

_FOLDERS = {'mini': 'runs/datastore', 'smollm2': 'runs/smollm2_datastore'}
_INDEX = tuple(
  f'configs/train/datastore.py {suite.DATA} --config.family={family} '
  f'--workdir={folder}'
  for family, folder in _FOLDERS.items()
)
_STORES = {
  family: f'{folder}/datastore.safetensors'
  for family, folder in _FOLDERS.items()
}
_FILES = {
  family: f'{store},DATA/spec_bench.jsonl' for family, store in _STORES.items()
}
_RUNS = {
  f'drafters:{_FILES["mini"]}': (suite.DATA, '--config.prompts_per_domain=1'),
  'experts': (suite.DATA, '--config.prompts_per_domain=2'),
  'experts:heads': (f'{suite.DATA} --config.prompts_per_domain=3', None),
  f'heads:{_FILES["smollm2"]}': (
    f'{suite.DATA} --config.prompts_per_domain=2',
    None,
  ),
  'lengths': (
    '',
    '--config.num_batches=4 --config.sweep.batch_size="(1, 4, 8)"',
  ),
  'lengths:heads': (
    f'{suite.DATA} --config.num_batches=6 '
    '--config.sweep.batch_size="(1, 4, 8)"',
    None,
  ),
  f'memory:{_STORES["mini"]}': ('', ''),
  'regret': ('', '--config.runs=50'),
}

VARIANTS = suite.SIZES
SMOKE = suite.SMOKE


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  before = {'full': _INDEX, 'small': _INDEX[:1]}
  return suite.config('banditspec', _RUNS, size, before)
