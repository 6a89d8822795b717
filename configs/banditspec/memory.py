r"""What several arms cost in memory: BanditSpec's Table 2.

python -m experiments.main --config=configs/banditspec/memory.py \
    --workdir=runs/banditspec_memory

In about 3 minutes on two cores, without a datastore. Over `large 4`, at batch
sizes 1 and 8; one pass through the loop in MB:

| | parameters | caches | loop | bytes a token | one pass |
|---|---|---|---|---|---|
| none | 0.80 | 0.79 | 0.80, 0.78 | 1.35, 1.19 | 43, 97 |
| large 4 | 1 | 1 | 1 | 1 | 86, 221 |
| medium 4 | 0.87 | 0.95 | 0.88, 0.90 | 0.78, 0.87 | 62, 178 |
| prompt_lookup 16 | 0.80 | 0.82 | 0.81, 0.86 | 1.15, 1.70 | 56, 213 |
| suffix 4x8 | 0.80 | 0.80 | 0.82, 0.92 | 1.57, 2.84 | 70, 326 |
| ucb_spec, drafters | 1.07 | 1.17 | 1.09, 1.21 | 1.47, 2.64 | 110, 469 |
| hedge, drafters | 1.07 | 1.17 | 1.09, 1.21 | 1.42, 2.57 | 120, 526 |
| ucb_spec, lengths | 0.87 | 0.95 | 0.88, 0.90 | 1.01, 1.36 | 69, 219 |
| hedge, lengths | 0.87 | 0.95 | 0.88, 0.90 | 0.87, 1.08 | 69, 209 |

Several arms hold what their drafters do, here one more, and the widest tree's
intermediate values; a bandit holds 60 bytes at most. Lengths of one drafter
hold hardly more than that drafter. A pass is XLA's count before anything runs,
of the costliest arm, so that bytes a token are an upper bound for several arms.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'memory',
      'family': 'mini',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts_per_domain': 20,
      'datastore': '',  # From configs/datastore.py; without, no retrieval.
      'arms': (  # Drafter, draft length, drafts.
        ('large', 4),
        ('medium', 4),
        ('prompt_lookup', 16),
        ('retrieval', 4, 4),
        ('suffix', 8, 4),
      ),
      'baseline': 'large 4',  # The best single arm.
      'drafter': 'medium',  # Of the lengths.
      'draft_lengths': (0, 1, 2, 3, 4),
      'bandits': ('ucb_spec', 'hedge'),
      'batch_sizes': (1, 8),
      'num_prompts': 16,  # Whose rounds the emitted tokens are counted in.
      'max_new_tokens': 64,
      'max_length': 512,
      'temperature': 0.0,
      'seed': 0,
    }
  )
