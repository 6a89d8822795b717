r"""Predicted and measured speeds of draft lengths and numbers of drafts.

python -m experiments.main --config=configs/theory/practice.py \
    --workdir=runs/theory_practice

From the acceptance rate at length 4 and the time per round, theory predicts the
speed of every draft length and number of drafts (Leviathan et al. 2023, Theorem
3.8), which is compared with measured speeds. Times per round are measured
separately.
"""

import ml_collections

from configs.benchmark import smollm2
from specjax import registry

_VARIANTS = {
  'mini': {'drafter': 'medium', 'domains': (), 'prompts_per_domain': 2},
  'smollm2': {
    'drafter': 'small',
    'domains': smollm2.DOMAINS,
    'prompts_per_domain': 1,
  },
}

VARIANTS = tuple(_VARIANTS)
SMOKE = {'from_length': 1}


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  variant = registry.lookup(_VARIANTS, 'family', which)
  return ml_collections.ConfigDict(
    {
      'experiment': 'theory.practice',
      'family': which,
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {'domains': variant['domains']}},
      'prompts_per_domain': variant['prompts_per_domain'],
      'methods': tuple(
        {
          'arm': f'{variant["drafter"]}:{drafts}x{length}',
          'columns': {'drafts': drafts, 'length': length},
        }
        for drafts in (1, 2, 4, 8)
        for length in (1, 2, 4, 8)
      ),
      'from_length': 4,  # The length whose acceptance rate is used.
      'cost_rounds': 16,  # Rounds that are timed together.
      'cost_repeats': 5,  # How often they are timed.
      'sampling': {'temperature': 1.0},
      'max_new_tokens': 64,
      'max_length': 256,
      'batch_size': 1,
      'repeats': 1,  # Timings, interleaved with plain decoding.
      'seed': 0,
      'columns': (
        'drafts',
        'length',
        'acceptance',
        'predicted_efficiency',
        'block_efficiency',
        'block_efficiency_error',
        'relative_round',
        'predicted_best',
        'best',
        'predicted_speed_up',
        'speed_up',
        'speed_up_error',
        'best_speed_up',
        'best_speed_up_error',
        'worth',
        'worth_error',
      ),
    }
  )
