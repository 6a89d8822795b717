r"""All of MetaSD: every config of this folder, and its document.

python -m experiments.main --config=configs/metasd/all.py \
    --config.data_dir=DATA --workdir=runs/metasd

`configs/metasd/all.py:small` has fewer prompts, and leaves the document in its
workdir.
"""

from experiments.common import suite

_FEW = '--config.prompts_per_domain=2'
_HEADS = f'{suite.DATA} --config.prompts_per_domain=8'
_RUNS = {
  **{
    name: (suite.DATA, _FEW)
    for name in (
      'drafters',
      'drafters:smollm2',
      'specialists',
      'languages',
      'temperatures',
      'temperatures:smollm2',
      'two_tasks',
      'two_tasks:languages',
      'two_tasks:smollm2',
      'sessions',
      'alignment',
      'alignment:languages',
      'alignment:smollm2',
      'answers',
      'answers:smollm2',
      'batches',
      'caches',
      'caches:smollm2',
      'draft_lengths',
    )
  },
  'heads': (_HEADS, _FEW),
  'temperatures:heads': (_HEADS, _FEW),
  'sessions:heads': (_HEADS, _FEW),
  'memory': (suite.DATA, ''),
  'switching': ('', '--config.lengths="(200, 600)"'),
}


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config('metasd', _RUNS, size)
