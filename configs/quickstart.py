r"""Plain and speculative decoding: tokens per target call, and time.

python -m experiments.main --config=configs/quickstart.py \
    --workdir=runs/quickstart

Columns of the table: emitted tokens per target call (block efficiency); the
speed-up where calls are bound by reading weights, which is block efficiency
over 1 + draft length * size of the draft model / size of the target; and the
measured speed-up on this machine. They differ by how much longer a target call
takes for a whole draft than for a single token, which is measured and printed
below the table.

`configs/quickstart.py:smollm2` does the same with SmolLM2-135M and its EAGLE
head (python -m specjax.families.fetch smollm2).
"""

import ml_collections

from specjax import registry

_FAMILIES = {
  'mini': {
    'family': 'mini',
    'methods': ('none', 'prompt_lookup:4', 'small:2', 'medium:2', 'medium:4'),
    'shown_method': 'medium:4',
    'shown_prompt': (
      'Write a Python function to calculate the factorial of a number.'
    ),
    'prompts_per_domain': 2,
  },
  'smollm2': {
    'family': 'smollm2/heads',
    'methods': (
      'none',
      'prompt_lookup:4',
      'feature_head(eagle):2',
      'feature_head(eagle):4',
    ),
    'shown_method': 'feature_head(eagle):4',
    'shown_prompt': (
      'Write a Python function that checks whether a word is a palindrome.'
    ),
    'prompts_per_domain': 1,
  },
}

VARIANTS = tuple(_FAMILIES)
SMOKES = {
  name: {'methods': ('none', fields['shown_method'])}
  for name, fields in _FAMILIES.items()
}
SMOKE = SMOKES['mini']


def get_config(family='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  return ml_collections.ConfigDict(
    {
      'experiment': 'quickstart',
      **registry.lookup(_FAMILIES, 'family', family),
      'data_dir': '',
      'prompts': {'family': {}},
      'sampling': {'temperature': 0.0},
      'max_new_tokens': 64,
      'max_length': 256,
      'batch_size': 1,
      'repeats': 3,  # Timings, interleaved with plain decoding.
      'seed': 0,
      'columns': (
        'method',
        'block_efficiency',
        'speed_up_if_memory_bound',
        'speed_up_here',
      ),
    }
  )
