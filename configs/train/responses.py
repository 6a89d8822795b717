r"""Samples responses from a target model, to train drafters and heads on.

python -m experiments.main --config=configs/train/responses.py \
    --config.data_dir=DATA --workdir=runs/responses
python -m experiments.main --config=configs/train/responses.py:short \
    --config.data_dir=DATA --workdir=runs/short
python -m experiments.main --config=configs/train/responses.py:long \
    --config.data_dir=DATA --workdir=runs/long
python -m experiments.main --config=configs/train/responses.py:smollm2 \
    --config.data_dir=DATA --workdir=runs/smollm2_responses

The first command samples from the target that configs/train/target.py has
trained in runs/target (`--config.family=mini` samples from the one that comes
with the package), the others from SmolLM2: 'short' and 'long' for short and
long prompts from each domain, 'smollm2' for all train prompts of at most 280
tokens, greedily and at temperature 1. `responses.npz` contains the sampled
token ids, and `responses.jsonl` the texts; models can be trained on either.
"""

import ml_collections

_MINI = {
  'family': 'runs/target',
  'num_responses': {'all': 4096},  # By domain.
  'max_prompt_tokens': 192,
  'max_new_tokens': 128,
  'batch_size': 32,
  'temperatures': (1.0,),
  'num_parts': 1,
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
  'num_parts': 1,
  'seed': 0,
}
_LONG = {
  **_SHORT,
  'num_responses': {'instruct': 64, 'qa': 128, 'summarization': 384},
  'max_prompt_tokens': 280,
  'max_new_tokens': 96,
  'seed': 2,
}
_SMOLLM2 = {
  **_LONG,
  'num_responses': {'all': 1_000_000},
  'max_new_tokens': 128,
  'temperatures': (0.0, 1.0),
  'num_parts': 64,
  'seed': 3,
}
_VARIANTS = {
  'mini': _MINI,
  'short': _SHORT,
  'long': _LONG,
  'smollm2': _SMOLLM2,
}

VARIANTS = tuple(_VARIANTS)


def get_config(variant='mini'):
  """Returns the config.

  Args:
    variant: 'mini', 'short', 'long' or 'smollm2'.
  """
  return ml_collections.ConfigDict(
    {
      'experiment': 'train.responses',
      'data_dir': 'data',
      'sampling': {'top_p': 1.0},
      'as_text': True,  # Whether responses.jsonl is also written.
      **_VARIANTS[variant],
    }
  )
