r"""Block efficiency of a family's drafters on held-out prompts, by domain.

python -m experiments.main --config=configs/evaluate.py \
    --config.data_dir=DATA --workdir=runs/evaluate
python -m experiments.main --config=configs/evaluate.py:smollm2 \
    --config.data_dir=DATA --workdir=runs/evaluate_smollm2
python -m experiments.main --config=configs/evaluate.py:mini/heads \
    --config.data_dir=DATA --workdir=runs/evaluate_heads

The first uses the mini family, the last heads on its target's hidden states.
"""

import ml_collections

from experiments.common import sweeps

_MINI = {
  'prompts_per_domain': 20,
  'methods': ('large:4', 'medium:4', 'small:4'),
  'max_new_tokens': 96,
  'max_length': 512,
  'batch_size': 16,
  'columns': ('domain', 'method', 'decoded', 'block_efficiency'),
}
_SMOLLM2 = {
  'prompts_per_domain': 11,
  'methods': ('small:4',),
  'sweep': sweeps.product({'sampling.temperature': (0.0, 1.0)}),
  'max_new_tokens': 64,
  'max_length': 256,
  'batch_size': 8,
  'columns': (
    'sampling.temperature',
    'domain',
    'method',
    'decoded',
    'block_efficiency',
    'block_efficiency_error',
  ),
}
_HEADS = {
  **_SMOLLM2,
  'methods': (
    'medium:4',
    'medusa(medusa):4',
    'feature_head(eagle):4',
    'feature_head(eagle):eagle',
    'dynamic_tree(eagle, num_nodes=25, depth=5)',
    'feature_head(eagle3):4',
    'dynamic_tree(eagle3, num_nodes=25, depth=5)',
  ),
}
_FAMILIES = {'mini': _MINI, 'smollm2': _SMOLLM2, 'mini/heads': _HEADS}

VARIANTS = tuple(_FAMILIES)


def get_config(family='mini'):
  """Returns the config for 'mini', 'smollm2' or 'mini/heads'."""
  if family not in _FAMILIES:
    raise ValueError(
      f'family must be one of {list(_FAMILIES)}, got {family!r}.'
    )
  return ml_collections.ConfigDict(
    {
      'experiment': 'compare',
      'family': family,
      'data_dir': 'data',
      'prompts': {'eval': {}},
      'by_domain': True,
      'sampling': {'temperature': 1.0},
      'seed': 0,
      **_FAMILIES[family],
    }
  )
