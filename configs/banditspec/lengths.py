r"""Selecting draft lengths, with one bandit per batch: BanditSpec's Figure 3.

python -m experiments.main --config=configs/banditspec/lengths.py \
    --workdir=runs/banditspec_lengths

The paper's figure has no numbers: its UCBSpec stays close to the best length in
hindsight. `predicted_speed_up` follows from the cost table for the same rounds.
"""

import ml_collections

from experiments.common import sweeps
from specjax import registry

_LENGTHS = 1, 2, 3, 4
_VARIANTS = {
  'mini': {
    'family': 'mini',
    'arms': ('none', *(f'medium:{length}' for length in _LENGTHS)),
  },
  'heads': {
    'family': 'smollm2/heads',
    'arms': ('none', *(f'feature_head(eagle):{length}' for length in _LENGTHS)),
  },
}

VARIANTS = tuple(_VARIANTS)


def get_config(which='mini'):
  """Returns the config for 'mini', or for SmolLM2's 'heads' with EAGLE-1."""
  return ml_collections.ConfigDict(
    {
      'experiment': 'banditspec.lengths',
      **registry.lookup(_VARIANTS, 'family', which),
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {}},
      'prompts_per_domain': 20,
      'bandits': (
        'ucb_spec',
        'ucb_spec_released',  # The rule of the authors' code.
        'ucb1(beta=0.1)',
        {'bandit': 'hedge', 'feedback': 'full', 'label': 'hedge'},
      ),
      'reward': 'throughput',
      'costs': '',  # A workdir of configs/benchmark/costs.py; else measured.
      'cost_rounds': 32,  # Rounds that are timed together.
      'cost_repeats': 5,  # How often they are timed.
      'batch_size': 1,
      'sweep': sweeps.product({'batch_size': (1, 2, 4, 8, 16, 32)}),
      'num_batches': 16,
      'carry_over': True,  # Whether bandits keep their state between batches.
      'repeats': 1,  # Timings, interleaved with plain decoding.
      'max_new_tokens': 64,
      'max_length': 256,
      'sampling': {'temperature': 0.0},
      'seed': 0,
      'columns': (
        'batch_size',
        'method',
        'block_efficiency',
        'block_efficiency_error',
        'tokens_per_second',
        'speed_up',
        'speed_up_error',
        'predicted_speed_up',
        'over_best',
        'over_best_error',
        'over_hindsight',
        'mean_length',
      ),
    }
  )
