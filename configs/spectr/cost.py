r"""What a coupling costs, and how much of a round goes to verification.

python -m experiments.main --config=configs/spectr/cost.py \
    --workdir=runs/spectr_cost
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'couplings',
      'num_drafts': 8,
      # Couplings, over one pass over the two rows.
      'vocab_sizes': (4096, 32000, 256000),
      'spread': 0.5,  # Noise of the logits, in nats.
      'values_per_repeat': 2**23,  # Calls of a repeat times vocabulary.
      # Verification, over the whole round.
      'family': 'mini',
      'drafter': 'medium',
      'draft_length': 8,
      'verifiers': ('kseq', 'otm', 'multiround', 'batch', 'maximal'),
      'batch_size': 1,
      'temperature': 1.0,
      'rounds': 16,
      'repeats': 11,
      'seed': 0,
    }
  )
