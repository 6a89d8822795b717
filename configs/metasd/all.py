r"""Runs the experiments of MetaSD, and writes their tables.

python -m experiments.main --config=configs/metasd/all.py \
    --config.data_dir=DATA --workdir=runs/metasd

`configs/metasd/all.py:small` has fewer prompts and experiments: it leaves out
heads, languages, temperatures, batches, lengths of drafts and answers, and KV
cache policies. It writes tables to its workdir.

Configs that need other weights or an accelerator are left out, and so are those
that train the specialists of mini, which come with the package.
"""

from experiments.common import suite

_DATA = {'data_dir': suite.DATA}
_FEW_PROMPTS = suite.Run(_DATA, small={'prompts_per_domain': 2})
_ONLY_FULL = suite.Run(_DATA, small=None)
_HEADS = suite.Run({**_DATA, 'prompts_per_domain': 8}, small=None)
_RUNS = {
  'metasd/alignment': _FEW_PROMPTS,
  'metasd/alignment:languages': _ONLY_FULL,
  'metasd/alignment:smollm2': _ONLY_FULL,
  'metasd/answers': _ONLY_FULL,
  'metasd/answers:smollm2': _ONLY_FULL,
  'metasd/batches': _ONLY_FULL,
  'metasd/caches': _ONLY_FULL,
  'metasd/caches:smollm2': _ONLY_FULL,
  'metasd/draft_lengths': _ONLY_FULL,
  'metasd/drafters': suite.Run(_DATA, small={'prompts_per_domain': 1}),
  'metasd/drafters:smollm2': _ONLY_FULL,
  'metasd/heads': _HEADS,
  'metasd/languages': _ONLY_FULL,
  'metasd/memory': suite.Run(_DATA),
  'metasd/sessions': _FEW_PROMPTS,
  'metasd/sessions:heads': _HEADS,
  'metasd/specialists': _FEW_PROMPTS,
  'metasd/switching': suite.Run(small={'lengths': (200, 600)}),
  'metasd/temperatures': _ONLY_FULL,
  'metasd/temperatures:heads': _HEADS,
  'metasd/temperatures:smollm2': _ONLY_FULL,
  'metasd/two_tasks': _ONLY_FULL,
  'metasd/two_tasks:languages': _ONLY_FULL,
  'metasd/two_tasks:smollm2': _ONLY_FULL,
}

VARIANTS = suite.SIZES
SMOKE = suite.SMOKE


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config(_RUNS, size)
