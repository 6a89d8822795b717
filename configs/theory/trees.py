r"""Trees for budgets of nodes: optimal static trees and dynamic trees.

python -m experiments.main --config=configs/theory/trees.py \
    --config.data_dir=DATA --workdir=runs/theory_trees

The temperature is 0. `predicted` are the tokens per round that follow from the
acceptance rates of depths and ranks, measured on other prompts.
`configs/theory/trees.py:smollm2` uses SmolLM2 with the head of EAGLE-1. With
SmolLM2, the dynamic tree emits more tokens than the optimal static tree at
every budget, and with mini fewer.
"""

import ml_collections

from specjax import registry

_VARIANTS = {
  'mini': {'family': 'mini/heads', 'prompts_per_domain': 24},
  'smollm2': {'family': 'smollm2/heads', 'prompts_per_domain': 4},
}

VARIANTS = tuple(_VARIANTS)
SMOKE = {'factors': (2, 1), 'depth': 2, 'nums_nodes': (2, 3)}


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  return ml_collections.ConfigDict(
    {
      'experiment': 'theory.trees',
      **registry.lookup(_VARIANTS, 'which', which),
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {}},
      'drafter': 'feature_head(eagle)',
      'dynamic': 'dynamic_tree(eagle, num_nodes={num_nodes}, depth={depth})',
      'factors': (4, 3, 2, 1, 1),  # The tree that acceptance is measured with.
      'depth': 5,
      'nums_nodes': (2, 4, 8, 16, 25),
      'batch_size': 4,
      'sampling': {'temperature': 0.0},
      'max_new_tokens': 64,
      'max_length': 512,
      'seed': 0,
      'columns': (
        'num_nodes',
        'method',
        'predicted',
        'block_efficiency',
        'block_efficiency_error',
        'over_dynamic',
        'over_dynamic_error',
        'acceptance_by_depth',
      ),
    }
  )
