r"""Round time over model calls, with hidden-state taps, and with several arms.

python -m experiments.main --config=configs/benchmark/rounds.py \
    --workdir=runs/rounds

A plain round is also compared with one read of its weights: the inverse of the
ratio is the share of the memory bandwidth that it reaches, if the weights do
not fit into a cache. With `configs/benchmark/rounds.py:smollm2`, it is 1 / 1.73
= 58% at batch size 1 on two cores.

A round with a chain of five from EAGLE takes 1.09 times as long as its model
calls at batch size 1 on two cores, and 1.04 times at batch size 8.
"""

import ml_collections

from experiments.common import sweeps
from specjax import registry

_VARIANTS = {
  'mini': {
    'family': 'mini',
    'arm': 'medium:4',
    # The bandit selects among them.
    'arms': ('large:4', 'medium:4', 'small:2', 'none'),
  },
  'smollm2': {
    'family': 'smollm2',
    'arm': 'prompt_lookup:4',
    'arms': ('prompt_lookup:4', 'suffix:4', 'none'),
  },
  'heads': {
    'family': 'smollm2/heads',
    'arm': 'feature_head(eagle):5',
    'arms': ('feature_head(eagle):5', 'medusa(medusa):4', 'none'),
  },
}

VARIANTS = tuple(_VARIANTS)


def get_config(which='mini'):
  """Returns the config for 'mini', 'smollm2', or the 'heads' of SmolLM2."""
  return ml_collections.ConfigDict(
    {
      'experiment': 'benchmark.rounds',
      **registry.lookup(_VARIANTS, 'family', which),
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {}},
      'prompts_per_domain': 1,
      'rounds': 64,  # Rounds that are timed together.
      'repeats': 5,  # How often they are timed.
      'batch_size': 1,
      'sweep': sweeps.product({'batch_size': (1, 8)}),
      'max_new_tokens': 128,
      'max_length': 256,
      'sampling': {'temperature': 0.0},
      'seed': 0,
    }
  )
