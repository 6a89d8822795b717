r"""Which draft length, one bandit for the batch: BanditSpec's Figure 3.

python -m experiments.main --config=configs/banditspec/lengths.py \
    --workdir=runs/banditspec_lengths

Tokens per second of bandits over the best fixed length in hindsight, in 12
minutes on two cores: see the README's table. `ucb1:beta=0.1` is at 0.90, 0.97,
0.91 and 0.93 (± 0.03 at most) at batch sizes 1, 2, 4 and 8, where the best
lengths are 3, 1, 1 and 0.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'lengths',
      'family': 'mini',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts_per_domain': 20,
      'drafter': 'medium',
      'draft_lengths': (0, 1, 2, 3, 4),
      'bandits': ('ucb_spec', 'ucb1:beta=0.1', 'hedge'),
      'batch_sizes': (1, 2, 4, 8, 16, 32),
      'num_batches': 16,
      'carry_over': True,  # The bandit's state, from batch to batch.
      'reward': 'throughput',  # A name of REWARDS.
      'costs': '',  # costs.json of configs/benchmark.py; or measured now,
      'cost_rounds': 32,  # from so many rounds,
      'cost_repeats': 5,  # so often.
      'max_new_tokens': 64,
      'max_length': 256,
      'temperature': 0.0,
      'seed': 0,
    }
  )
