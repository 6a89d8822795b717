r"""All of MetaSD: every config of this folder, and its document.

python -m experiments.main --config=configs/metasd/all.py \
    --config.data_dir=DATA --workdir=runs/metasd

`configs/metasd/all.py:small` has fewer prompts and fewer experiments, one of
them with heads; it leaves the document in its workdir.
"""

from experiments.common import suite

_FEW = '--config.prompts_per_domain=2'
_ONE = '--config.prompts_per_domain=1'
_HEADS = f'{suite.DATA} --config.prompts_per_domain=8'
_RUNS = {
  **{
    name: (suite.DATA, _FEW)
    for name in (
      'specialists',
      'languages',
      'two_tasks',
      'sessions',
      'alignment',
      'answers',
      'caches',
      'draft_lengths',
    )
  },
  **{
    name: (suite.DATA, None)
    for name in (
      'temperatures:smollm2',
      'two_tasks:languages',
      'two_tasks:smollm2',
      'alignment:languages',
      'alignment:smollm2',
      'answers:smollm2',
      'caches:smollm2',
    )
  },
  'drafters': (suite.DATA, _ONE),
  'drafters:smollm2': (suite.DATA, None),
  'temperatures': (suite.DATA, _ONE),
  'batches': (suite.DATA, '--config.prompts_per_domain=4'),
  'heads': (_HEADS, _FEW),
  'temperatures:heads': (_HEADS, None),
  'sessions:heads': (_HEADS, None),
  'memory': (suite.DATA, ''),
  'switching': ('', '--config.lengths="(200, 600)"'),
}


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config('metasd', _RUNS, size)
