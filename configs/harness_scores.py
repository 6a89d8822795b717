r"""Scores on a task of lm-evaluation-harness against rejection rates.

pip install -e '.[lm-eval]'
python -m experiments.main --config=configs/harness_scores.py \
    --workdir=runs/harness_scores

The task `agreement` compares texts with those of the target at temperature 0,
on the family's prompts: mini is too small to solve word problems. Other tasks
are YAML files in the folder `--config.task_folder`, or, if that is empty, the
tasks that come with the harness.
"""

import ml_collections

from configs.cascades import frontier

_DRAFTER = 'medium'
# Rules that are lossy at temperature 0; lossy decoding is lossless there.
_RULES = {
  'lossy': (),
  'over_acceptance': (0.1, 0.3, 0.6),
  'opt': (-0.2, 0.0),
}

SMOKE = {'limit': 2}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'harness_scores',
      'family': 'mini',
      'tasks': ('agreement',),
      'task_folder': 'experiments/tasks',
      'limit': 0,  # The most requests per task; 0 for all.
      'methods': (
        *frontier.plain(None),
        *frontier.drafted(_RULES, _DRAFTER, 4),
      ),
      'sampling': {'temperature': 0.0},
      'batch_size': 32,
      'max_new_tokens': 64,  # For tasks that set no limit.
      'max_length': 512,
      'seed': 0,
      'columns': (
        'metric',
        'method',
        'alpha',
        'score',
        'rejection_rate',
        'block_efficiency',
        'same_outputs',
      ),
    }
  )
