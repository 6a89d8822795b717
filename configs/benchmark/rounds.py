r"""A round over its model calls, with features, and with several arms.

python -m experiments.main --config=configs/benchmark/rounds.py \
    --workdir=runs/rounds

A plain round is also compared with one read of its weights: the ratio's inverse
is the share of the memory's bandwidth that it reaches, where the weights do not
fit into a cache: `configs/benchmark/rounds.py:smollm2`, 1 / 1.73 = 58% at batch
size 1 on two cores.

A round of a chain of five of EAGLE takes 1.09 times what its model calls take
alone at batch size 1 on two cores, and 1.04 times at batch size 8.
"""

import ml_collections

from specjax import registry

# The family, the arm that is timed alone, and those of the bandit.
_WHICH = {
  'mini': ('mini', 'medium:4', ('large:4', 'medium:4', 'small:2', 'none')),
  'smollm2': (
    'smollm2',
    'prompt_lookup:4',
    ('prompt_lookup:4', 'suffix:4', 'none'),
  ),
  'heads': (
    'smollm2/heads',
    'feature_head(eagle):5',
    ('feature_head(eagle):5', 'medusa(medusa):4', 'none'),
  ),
}

VARIANTS = tuple(_WHICH)


def get_config(which='mini'):
  """Returns the config for 'mini', 'smollm2' or 'heads', those of SmolLM2."""
  family, arm, arms = registry.lookup(_WHICH, 'family', which)
  return ml_collections.ConfigDict(
    {
      'experiment': 'benchmark.rounds',
      'family': family,
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {}},
      'prompts_per_domain': 1,
      'arm': arm,
      'arms': arms,  # Of the bandit.
      'rounds': 64,  # That are timed together,
      'repeats': 5,  # so often.
      'batch_size': 1,
      'sweep': {'batch_size': (1, 8)},
      'max_new_tokens': 128,
      'max_length': 256,
      'sampling': {'temperature': 0.0},
      'seed': 0,
    }
  )
