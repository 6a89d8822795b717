r"""Theory meets practice: how long and how many drafts should be.

python -m experiments.main --config=configs/theory/practice.py \
    --workdir=runs/theory_practice

From the acceptance at length 4 and from what rounds take, theory predicts the
speed of every length and number of drafts (Leviathan et al. 2023, Theorem 3.8);
clocks say which is best. A round's cost is measured by itself.
"""

import ml_collections

from configs.benchmark import smollm2
from specjax import registry

# The drafter, domains of prompts, and how many of each, by family.
_WHICH = {
  'mini': ('medium', (), 2),
  'smollm2': ('small', smollm2.DOMAINS, 1),
}

VARIANTS = tuple(_WHICH)
SMOKE = {'from_length': 1}


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  drafter, domains, prompts_per_domain = registry.lookup(
    _WHICH, 'family', which
  )
  return ml_collections.ConfigDict(
    {
      'experiment': 'theory.practice',
      'family': which,
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {'domains': domains}},
      'prompts_per_domain': prompts_per_domain,
      'methods': tuple(
        {
          'arm': f'{drafter}:{drafts}x{length}',
          'columns': {'drafts': drafts, 'length': length},
        }
        for drafts in (1, 2, 4, 8)
        for length in (1, 2, 4, 8)
      ),
      'from_length': 4,  # Whose acceptance all others are predicted from.
      'cost_rounds': 16,  # That are timed together,
      'cost_repeats': 5,  # so often.
      'sampling': {'temperature': 1.0},
      'max_new_tokens': 64,
      'max_length': 256,
      'batch_size': 1,
      'repeats': 1,  # Of clocks, in turns with plain decoding.
      'seed': 0,
      'columns': (
        *('drafts', 'length', 'acceptance', 'predicted_efficiency'),
        *('block_efficiency', 'block_efficiency_error', 'relative_round'),
        *('predicted_best', 'best', 'predicted_speed_up'),
        *('speed_up', 'speed_up_error'),
        *('best_speed_up', 'best_speed_up_error'),
        *('worth', 'worth_error'),
      ),
    }
  )
