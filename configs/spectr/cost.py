r"""The cost of couplings, and the share of verification in a round.

python -m experiments.main --config=configs/spectr/cost.py \
    --workdir=runs/spectr_cost

The paper has no such numbers. On two cores of an x86_64 CPU, verification of 8
chains of 8 tokens takes 1.6% of the round with `kseq`, 3.4% with `otm`, 5.3%
with `block` and 12.5% with `traversal` (up to a factor of 1.5).
"""

import ml_collections

SMOKE = {
  'num_drafts': 2,
  'vocab_sizes': (50,),
  'values_per_repeat': 100,
  'methods': ('medium:2x2/kseq',),
}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'spectr.cost',
      # Couplings, over one pass over the two rows.
      'num_drafts': 8,
      'vocab_sizes': (4096, 32000, 256000),
      'spread': 0.5,  # Noise of the logits, in nats.
      'values_per_repeat': 2**23,  # Calls of a repeat times vocabulary.
      # Verification, over the whole round.
      'family': 'mini',
      'methods': tuple(
        f'medium:8x8/{rule}'
        for rule in (
          *('kseq', 'otm', 'multiround', 'batch', 'maximal'),
          *('block', 'traversal'),
        )
      ),
      'sampling': {'temperature': 1.0},
      'batch_size': 1,
      'rounds': 16,
      'repeats': 11,
      'seed': 0,
    }
  )
