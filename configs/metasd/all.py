r"""Runs all of MetaSD: every config in this folder, and its tables.

python -m experiments.main --config=configs/metasd/all.py \
    --config.data_dir=DATA --workdir=runs/metasd

`configs/metasd/all.py:small` has fewer prompts and experiments: it leaves out
heads, languages, temperatures, batches, lengths of drafts and answers, and KV
cache policies. It writes tables to its workdir.
"""

from experiments.common import suite

_FEW = '--config.prompts_per_domain=2'
_HEADS = f'{suite.DATA} --config.prompts_per_domain=8'
_RUNS = {
  **{
    name: (suite.DATA, _FEW)
    for name in ('specialists', 'sessions', 'alignment')
  },
  'drafters': (suite.DATA, '--config.prompts_per_domain=1'),
  'memory': (suite.DATA, ''),
  'switching': ('', '--config.lengths="(200, 600)"'),
  **{
    name: (suite.DATA, None)
    for name in (
      *('draft_lengths', 'languages', 'batches'),
      *('temperatures', 'temperatures:smollm2'),
      *('two_tasks', 'two_tasks:languages', 'two_tasks:smollm2'),
      *('alignment:languages', 'alignment:smollm2', 'drafters:smollm2'),
      *('answers', 'answers:smollm2', 'caches', 'caches:smollm2'),
    )
  },
  **{
    name: (_HEADS, None)
    for name in ('heads', 'temperatures:heads', 'sessions:heads')
  },
}

VARIANTS = suite.SIZES
SMOKE = suite.SMOKE


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config('metasd', _RUNS, size)
