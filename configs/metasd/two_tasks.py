r"""Two tasks in turn, and a bandit that follows: MetaSD's Table 19.

python -m experiments.main --config=configs/metasd/two_tasks.py \
    --config.data_dir=DATA --workdir=runs/metasd_two_tasks

The bandit goes on with what the first task has taught it; single drafters, the
router and the oracle stay the same for both. Each prompt is read alone: the
target has never seen two of them in one text, and would go on with the first.
Block efficiency of all pairs:

math 5, the best specialist    2.11 ± 0.09
all 5, the one for all         3.43 ± 0.11
oracle, the best of each pair  2.99 ± 0.08
router                         2.36 ± 0.09
uniform                        2.15 ± 0.06
ucb1, BE                       2.44 ± 0.08
ucb1, BD                       2.66 ± 0.07
ucb1, BD, +32                  3.06 ± 0.08
sliding_window_ucb, BD         2.81 ± 0.07
hedge, BD                      3.00 ± 0.08

The oracle and the bandits choose among the specialists. None of them is as good
as the one for all.
"""

from configs.metasd import drafters


def get_config():
  config = drafters.get_config()
  config.sets = {
    'two tasks': {'domains': drafters.DOMAINS, 'turns': 2},
  }
  config.prompts_per_domain = 12  # Of each pair of domains.
  config.max_new_tokens = 96
  config.others = (('all', 5),)
  return config
