r"""Responses sampled from a target, for the distillation of drafters and heads.

python -m experiments.main --config=configs/train/responses.py \
    --config.data_dir=DATA --workdir=runs/responses
python -m experiments.main --config=configs/train/responses.py:short \
    --config.data_dir=DATA --workdir=runs/short
python -m experiments.main --config=configs/train/responses.py:long \
    --config.data_dir=DATA --workdir=runs/long

The first are those of the mini target; the others, to short and to long prompts
of each domain, are SmolLM2's.
"""

import ml_collections

_MINI = {
  'family': 'runs/target',
  'num_responses': {'all': 4096},  # By domain.
  'max_prompt_tokens': 192,
  'max_new_tokens': 128,
  'batch_size': 32,
  'temperatures': (1.0,),
  'seed': 0,
}
_SHORT = {
  'family': 'smollm2',
  'num_responses': {
    'code': 512,
    'instruct': 448,
    'lm': 128,
    'math': 512,
    'qa': 448,
    'shakespeare': 128,
    'translation': 448,
  },
  'max_prompt_tokens': 128,
  'max_new_tokens': 112,
  'batch_size': 64,
  'temperatures': (0.0,),
  'seed': 0,
}
_LONG = {
  **_SHORT,
  'num_responses': {'instruct': 64, 'qa': 128, 'summarization': 384},
  'max_prompt_tokens': 280,
  'max_new_tokens': 96,
  'seed': 2,
}
_WHICH = {'mini': _MINI, 'short': _SHORT, 'long': _LONG}


def get_config(which='mini'):
  """Returns the config.

  Args:
    which: 'mini', 'short' or 'long'.
  """
  return ml_collections.ConfigDict(
    {
      'experiment': 'train.responses',
      'data_dir': 'data',
      'sampling': {'temperature': 1.0, 'top_p': 1.0},
      **_WHICH[which],
    }
  )
