r"""What a coupling costs, and how much of a round goes to verification.

python -m experiments.main --config=configs/spectr/cost.py \
    --workdir=runs/spectr_cost

Over a pass, as calls (inside a loop), on two cores of an x86_64 CPU:

             V = 4096   V = 32000  V = 256000
maximal     2.1 (2.4)   2.9 (1.4)   3.0 (1.4)
multiround  2.2 (3.1)   3.1 (2.1)   3.7 (1.9)
kseq         2.7 (14)   4.9 (9.7)    12 (5.9)
otm          3.8 (28)    11 (20)     19 (11)

Of a round of 8 chains of 8: maximal 1.5%, multiround 1.6%, batch 2.2%, kseq
2.3%, otm 4.3%.
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
