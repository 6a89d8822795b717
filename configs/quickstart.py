r"""Plain and speculative decoding of the mini family, side by side.

python -m experiments.main --config=configs/quickstart.py \
    --workdir=runs/quickstart
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'quickstart',
      'family': 'mini',
      'drafter': 'medium',
      'draft_lengths': (1, 2, 4, 8),
      'prompts_per_domain': 2,
      'max_new_tokens': 64,
      'shown_prompt': 0,
      'sampling': {'temperature': 1.0, 'top_p': 1.0},
      'seed': 0,
    }
  )
