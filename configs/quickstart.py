r"""Plain and speculative decoding with the mini family.

python -m experiments.main --config=configs/quickstart.py \
    --workdir=runs/quickstart
"""

import ml_collections

SMOKE = {'methods': ('none', 'medium:4')}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'quickstart',
      'family': 'mini',
      'data_dir': '',
      'prompts': {'family': {}},
      'prompts_per_domain': 2,
      'methods': ('none', 'medium:1', 'medium:2', 'medium:4', 'medium:8'),
      'sampling': {'temperature': 1.0},
      'max_new_tokens': 64,
      'max_length': 256,
      'batch_size': 1,
      'repeats': 3,  # Timings, interleaved with plain decoding.
      # The shipped prompt with the most likely greedy answer, among answers
      # that end and that repeat no four tokens.
      'shown_prompt': 3,
      'shown_method': 'medium:4',
      'seed': 0,
      'columns': (
        'method',
        'block_efficiency',
        'tokens_per_second',
        'speed_up',
      ),
    }
  )
