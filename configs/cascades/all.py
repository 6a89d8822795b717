r"""All of the cascades: every config of this folder, and its document.

python -m experiments.main --config=configs/cascades/all.py \
    --config.data_dir=DATA --workdir=runs/cascades

`configs/cascades/all.py:small` has fewer prompts, and leaves the document in
its workdir. The family of `runs/encoder_decoder` is what
configs/train/encoder_decoder.py leaves there.
"""

from experiments.common import suite

_FEW = '--config.prompts_per_domain=8'
_RUNS = {
  **{
    name: (suite.DATA, _FEW)
    for name in (
      'frontier',
      'frontier:summarization',
      'temperatures',
      'draft_lengths',
      'variants:bild',
      'variants:lossy',
      'variants:token',
      'calibrate',
      'rule_bandit',
      *(f'decoder_only:{t}' for t in ('summarization', 'translation', 'qa')),
      'decoder_only:math',
    )
  },
  **{
    f'decoder_only:smollm2_{task}': (suite.DATA, _FEW)
    for task in ('summarization', 'qa', 'math')
  },
  'frontier:smollm2_summarization': (
    f'{suite.DATA} --config.prompts.summarization.limit=12',
    '--config.prompts_per_domain=2',
  ),
}


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config('cascades', _RUNS, size)
