r"""A round over its model calls, with features, and with several arms.

python -m experiments.main --config=configs/benchmark/rounds.py \
    --workdir=runs/rounds

A plain round is also compared with one read of its weights: the ratio's inverse
is the share of the memory's bandwidth that it reaches, see --config.family.

At batch size 1 on two cores, a round of `medium:4` takes 1.11 ± 0.03 times what
its model calls take alone.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'benchmark.rounds',
      'family': 'mini',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {}},
      'prompts_per_domain': 1,
      'arm': 'medium:4',
      'arms': ('large:4', 'medium:4', 'small:2', 'none'),  # Of the bandit.
      'rounds': 64,  # That are timed together,
      'repeats': 5,  # so often.
      'batch_size': 1,
      'sweep': {'batch_size': (1, 8)},
      'max_new_tokens': 128,
      'max_length': 256,
      'sampling': {'temperature': 0.0},
      'seed': 0,
    }
  )
