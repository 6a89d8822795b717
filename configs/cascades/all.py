r"""Runs the experiments of speculative cascades, and writes their tables.

python -m experiments.main --config=configs/cascades/all.py \
    --config.data_dir=DATA --workdir=runs/cascades

The encoder-decoders of configs/train/encoder_decoder.py are trained first.
`configs/cascades/all.py:small` has fewer prompts and experiments, all but one
with the mini family, and trains nothing; it writes tables to its workdir.

Configs that need other weights or an accelerator are left out.
"""

from configs.cascades import frontier
from experiments.common import suite

_DATA = {'data_dir': suite.DATA}
_ONLY_FULL = suite.Run(_DATA, small=None)


def _mini(num_prompts, **fields):
  """Returns a run whose small variant uses the mini family."""
  small = {'family': 'mini', 'prompts_per_domain': num_prompts, **fields}
  return suite.Run(_DATA, small)


def _smollm2(task, limit, small=None, **fields):
  """Returns a run with SmolLM2 and fewer prompts, which take long."""
  fields = {**_DATA, 'prompts': {task: {'limit': limit}}, **fields}
  return suite.Run(fields, small)


_RUNS = {
  'train/encoder_decoder': suite.Run(_DATA, small=None, workdir=frontier.T5),
  'cascades/calibrate': _mini(4, dev_prompts=6),
  'cascades/decoder_only:math': _ONLY_FULL,
  'cascades/decoder_only:qa': _ONLY_FULL,
  'cascades/decoder_only:smollm2_math': _smollm2('math', 24),
  'cascades/decoder_only:smollm2_qa': _smollm2('qa', 48),
  'cascades/decoder_only:smollm2_summarization': _smollm2('summarization', 32),
  'cascades/decoder_only:summarization': _mini(1),
  'cascades/decoder_only:translation': _ONLY_FULL,
  'cascades/draft_lengths': _ONLY_FULL,
  'cascades/draft_lengths:smollm2_summarization': _smollm2('summarization', 8),
  'cascades/frontier': _mini(1),
  'cascades/frontier:heads_summarization': _smollm2('summarization', 12),
  'cascades/frontier:smollm2_summarization': _smollm2(
    'summarization', 12, small={'prompts_per_domain': 2}
  ),
  'cascades/frontier:summarization': _ONLY_FULL,
  'cascades/rule_bandit': _mini(1),
  'cascades/teacher_forced': suite.Run(_DATA, small={'texts_per_domain': 8}),
  'cascades/teacher_forced:smollm2': _ONLY_FULL,
  'cascades/teacher_forced:smollm2_heads': _ONLY_FULL,
  'cascades/temperatures': _mini(2, sweep={'sampling.temperature': (0.5,)}),
  'cascades/temperatures:smollm2_summarization': _smollm2(
    'summarization', 8, batch_size=8, repeats=0
  ),
  'cascades/variants:bild': _ONLY_FULL,
  'cascades/variants:lossy': _ONLY_FULL,
  'cascades/variants:smollm2_token': _smollm2('summarization', 8),
  'cascades/variants:token': _mini(1),
}

VARIANTS = suite.SIZES
SMOKE = suite.SMOKE


def get_config(size='full'):
  """Returns the config for 'full' or 'small'."""
  return suite.config(_RUNS, size)
