r"""Rules for several chains on one axis, exactly, beside the best that can be.

python -m experiments.main --config=configs/theory/chains.py \
    --workdir=runs/theory_chains

Chains of three tokens, over a vocabulary of three, of random Markov models; the
draft is the target, mixed with another model. `block` chooses a path by
priorities, as `otm` does, and judges it as a whole; what any lossless rule can
accept is a linear program over all sets of chains.
"""

import ml_collections

SMOKE = {
  'vocab_size': 2,
  'length': 2,
  'max_chains': 2,
  'max_best_chains': 1,
  'num_models': 2,
}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'theory.chains',
      'vocab_size': 3,
      'length': 3,
      'overlap': 0.4,  # Of the draft, how much is the target's.
      'max_chains': 6,
      'max_best_chains': 3,  # Of the linear program.
      'num_models': 8,
      'seed': 0,
      'pivot': {
        'down': ('num_chains',),
        'across': 'rule',
        'value': 'block_efficiency',
      },
    }
  )
