r"""All of the cascades: every config of this folder, and its document.

python -m experiments.main --config=configs/cascades/all.py \
    --config.data_dir=DATA --workdir=runs/cascades

The encoder-decoders, which configs/train/encoder_decoder.py says more of, it
trains first. `configs/cascades/all.py:small` has fewer prompts and fewer
experiments, all but one with the mini family, and trains nothing; it leaves the
document in its workdir.
"""

from configs.cascades import frontier
from experiments.common import suite

_TRAIN = (
  f'configs/train/encoder_decoder.py {suite.DATA} --workdir={frontier.T5}'
)
_FEWER = '--config.prompts_per_domain=2'
_OF_MINI = '--config.family=mini --config.prompts_per_domain='
_ONE = '--config.sweep="{\'sampling.temperature\': (0.5,)}"'


def _of(limit, task='summarization', more='', few=_FEWER):
  """Prompts of SmolLM2, of which each takes long."""
  return f'{suite.DATA} --config.prompts.{task}.limit={limit}{more}', few


_NO_CLOCKS = ' --config.batch_size=8 --config.repeats=0'
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
  'frontier:smollm2_summarization': _of(12),
  'frontier:heads_summarization': _of(12, few=None),
  'temperatures:smollm2_summarization': _of(8, more=_NO_CLOCKS, few=None),
  'draft_lengths:smollm2_summarization': _of(8, few=None),
  'variants:smollm2_token': _of(8, few=None),
  'decoder_only:smollm2_summarization': _of(32, few=None),
  'decoder_only:smollm2_qa': _of(48, 'qa', few=None),
  'decoder_only:smollm2_math': _of(24, 'math', few=None),
}

VARIANTS = suite.SIZES
SMOKE = suite.SMOKE


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config('cascades', _RUNS, size, {'full': (_TRAIN,)})
