r"""Decodes your prompts with the mini family, or another one.

python -m experiments.main --config=configs/decode.py --workdir=runs/decode \
    --config.prompts="what is the capital of france?"
python -m experiments.main --config=configs/decode.py --workdir=runs/decode \
    --config.prompts_file=prompts.jsonl --config.batch_size=8
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'decode',
      'family': 'mini',  # Or a folder with the same files.
      'drafter': 'medium',  # '' decodes plainly.
      'draft_length': 4,
      'prompts': '',
      'prompts_file': '',
      'batch_size': 1,
      'max_new_tokens': 128,
      'max_length': 512,
      'sampling': {'temperature': 1.0, 'top_k': 0, 'top_p': 1.0},
      'seed': 0,
    }
  )
