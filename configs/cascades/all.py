r"""All of the cascades: every config of this folder, and its document.

python -m experiments.main --config=configs/cascades/all.py \
    --config.data_dir=DATA --workdir=runs/cascades

`configs/cascades/all.py:small` has fewer prompts, and leaves the document in
its workdir. The family of `runs/encoder_decoder` is what
configs/train/encoder_decoder.py leaves there.
"""

from experiments.common import suite

_FEW = '--config.prompts_per_domain=8'
_FEWER = '--config.prompts_per_domain=2'


def _of(limit, task='summarization', more=''):
  """Prompts of SmolLM2, of which each takes long."""
  return f'{suite.DATA} --config.prompts.{task}.limit={limit}{more}', _FEWER


_NO_CLOCKS = ' --config.batch_size=8 --config.repeats=0'
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
  'frontier:smollm2_summarization': _of(12),
  'frontier:heads_summarization': _of(12),
  'temperatures:smollm2_summarization': _of(16, more=_NO_CLOCKS),
  'draft_lengths:smollm2_summarization': _of(8),
  'variants:smollm2_token': _of(8),
  'decoder_only:smollm2_summarization': _of(32),
  'decoder_only:smollm2_qa': _of(48, 'qa'),
  'decoder_only:smollm2_math': _of(24, 'math'),
}


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config('cascades', _RUNS, size)
