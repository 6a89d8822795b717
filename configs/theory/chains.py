r"""Exact block efficiency of rules for several chains, and the optimum.

python -m experiments.main --config=configs/theory/chains.py \
    --workdir=runs/theory_chains

Chains have three tokens from a vocabulary of three, and come from random Markov
models; the draft model is a mixture of the target with another model. `block`
selects a path by priorities, as `otm` does, and verifies it as a block,
`greedy_block` is greedy multi-path block verification, and `traversal` verifies
the tree of all chains from its leaves to the root. The optimum of all lossless
rules is a linear program over all sets of chains. SpecTr-GBV and the optimum of
a first round may exceed it, as they change what later rounds sample from. These
chains are i.i.d., whereas with `shared noise` their first tokens all differ, so
that it may exceed the optimum: with three chains or more, every token of this
vocabulary is drafted.
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
      'overlap': 0.4,  # The weight of the target in the draft model.
      'max_chains': 6,
      'max_best_chains': 3,  # For the linear program.
      'num_models': 8,
      'seed': 0,
      'pivot': {
        'down': ('num_chains',),
        'across': 'rule',
        'value': 'block_efficiency',
      },
    }
  )
