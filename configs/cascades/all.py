r"""All of the cascades: every config of this folder, and its document.

python -m experiments.main --config=configs/cascades/all.py \
    --config.data_dir=DATA --workdir=runs/cascades

`configs/cascades/all.py:small` has fewer prompts and fewer experiments; it
leaves the document in its workdir. The encoder-decoders, which
configs/train/encoder_decoder.py says more of, it trains first; the small
setting has some of its own.
"""

from configs.cascades import frontier
from experiments.common import suite

_TRAIN = f'configs/train/encoder_decoder.py {suite.DATA}'
_SMALL = f'{frontier.T5}_small'
_BEFORE = {
  'full': (f'{_TRAIN} --workdir={frontier.T5}',),
  'small': (f'{_TRAIN} --config.training.steps=400 --workdir={_SMALL}',),
}
_FEWER = '--config.prompts_per_domain=2'
_ONE = '--config.sweep="{\'sampling.temperature\': (0.5,)}"'
_OF_MINI = '--config.prompts_per_domain=4'
_OF_T5 = f'--config.family={_SMALL} --config.prompts_per_domain='


def _of(limit, task='summarization', more='', few=_FEWER):
  """Prompts of SmolLM2, of which each takes long."""
  return f'{suite.DATA} --config.prompts.{task}.limit={limit}{more}', few


_NO_CLOCKS = ' --config.batch_size=8 --config.repeats=0'
_RUNS = {
  **{
    name: (suite.DATA, f'{_OF_T5}{few}' if few else None)
    for name, few in (
      ('frontier', 2),
      ('frontier:summarization', None),
      ('temperatures', f'2 {_ONE}'),
      ('draft_lengths', 2),
      ('variants:bild', None),
      ('variants:lossy', None),
      ('variants:token', 2),
      ('calibrate', '4 --config.dev_prompts=6'),
      ('rule_bandit', 4),
    )
  },
  'decoder_only:summarization': (suite.DATA, _OF_MINI),
  **{
    f'decoder_only:{task}': (suite.DATA, None)
    for task in ('translation', 'qa', 'math')
  },
  'frontier:smollm2_summarization': _of(12),
  'frontier:heads_summarization': _of(12, few=None),
  'temperatures:smollm2_summarization': _of(16, more=_NO_CLOCKS, few=None),
  'draft_lengths:smollm2_summarization': _of(8, few=None),
  'variants:smollm2_token': _of(8, few=None),
  'decoder_only:smollm2_summarization': _of(32, few=None),
  'decoder_only:smollm2_qa': _of(48, 'qa', few=None),
  'decoder_only:smollm2_math': _of(24, 'math', few=None),
}


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config('cascades', _RUNS, size, _BEFORE)
