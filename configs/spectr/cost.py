r"""What a coupling costs, and how much of a round goes to verification.

python -m experiments.main --config=configs/spectr/cost.py \
    --workdir=runs/spectr_cost

Over a pass, as calls (inside a loop), on two cores of an x86_64 CPU:

             V = 4096   V = 32000  V = 256000
maximal     4.0 (2.3)   2.8 (1.3)   3.0 (1.4)
multiround  4.0 (2.8)   2.8 (1.7)   2.4 (1.0)
kseq         4.9 (16)   5.1 (9.7)   9.8 (5.7)
otm          7.7 (29)     12 (22)     23 (11)

Of a round of 8 chains of 8: maximal 1.3%, multiround 1.5%, batch 1.9%, kseq
1.8%, otm 4.9%.
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
