r"""Runs all cascades: every config in this folder, and its tables.

python -m experiments.main --config=configs/cascades/all.py \
    --config.data_dir=DATA --workdir=runs/cascades

The encoder-decoders of configs/train/encoder_decoder.py are trained first.
`configs/cascades/all.py:small` has fewer prompts and experiments, all but one
with the mini family, and trains nothing; it writes tables to its workdir.
"""

from configs.cascades import frontier
from experiments.common import suite

_TRAIN = (
  f'configs/train/encoder_decoder.py {suite.DATA} --workdir={frontier.T5}'
)
_FEWER = '--config.prompts_per_domain=2'
_OF_MINI = '--config.family=mini --config.prompts_per_domain='
_ONE = '--config.sweep="{\'sampling.temperature\': (0.5,)}"'


def _fields(limit, task='summarization', extra='', few=_FEWER):
  """Returns the fields of runs with SmolLM2, whose prompts take long."""
  return f'{suite.DATA} --config.prompts.{task}.limit={limit}{extra}', few


_NO_TIMINGS = ' --config.batch_size=8 --config.repeats=0'
_RUNS = {
  'frontier': (suite.DATA, f'{_OF_MINI}1'),
  'temperatures': (suite.DATA, f'{_OF_MINI}2 {_ONE}'),
  'variants:token': (suite.DATA, f'{_OF_MINI}1'),
  'calibrate': (suite.DATA, f'{_OF_MINI}4 --config.dev_prompts=6'),
  'rule_bandit': (suite.DATA, f'{_OF_MINI}1'),
  'decoder_only:summarization': (suite.DATA, f'{_OF_MINI}1'),
  **{
    name: (suite.DATA, None)
    for name in (
      *('draft_lengths', 'variants:bild', 'variants:lossy'),
      *('frontier:summarization', 'decoder_only:math'),
      *('decoder_only:translation', 'decoder_only:qa'),
    )
  },
  'frontier:smollm2_summarization': _fields(12),
  'frontier:heads_summarization': _fields(12, few=None),
  'temperatures:smollm2_summarization': _fields(8, extra=_NO_TIMINGS, few=None),
  'draft_lengths:smollm2_summarization': _fields(8, few=None),
  'variants:smollm2_token': _fields(8, few=None),
  'decoder_only:smollm2_summarization': _fields(32, few=None),
  'decoder_only:smollm2_qa': _fields(48, 'qa', few=None),
  'decoder_only:smollm2_math': _fields(24, 'math', few=None),
}

VARIANTS = suite.SIZES
SMOKE = suite.SMOKE


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config('cascades', _RUNS, size, {'full': (_TRAIN,)})
