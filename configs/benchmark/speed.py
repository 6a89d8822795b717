r"""The speed-up of speculative decoding over plain decoding.

python -m experiments.main --config=configs/benchmark/speed.py \
    --workdir=runs/speed

At batch size 1 and temperature 0, `medium:3` and `small:3` are 1.16 and 1.17
times as fast as plain decoding on two cores with AVX2; at temperature 1,
`small:2` is 1.07 times as fast.
"""

import ml_collections

from experiments.common import sweeps


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'compare',
      'family': 'mini',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {}},
      'prompts_per_domain': 4,
      'methods': (
        'none',
        *(
          f'{name}:{k}' for name in ('large', 'medium', 'small') for k in (2, 3)
        ),
      ),
      'batch_size': 1,
      'sampling': {'temperature': 0.0},
      'sweep': sweeps.product({'sampling.temperature': (0.0, 1.0)}),
      'repeats': 3,
      'max_new_tokens': 128,
      'max_length': 256,
      'seed': 0,
      'columns': (
        'sampling.temperature',
        'method',
        'block_efficiency',
        'block_efficiency_error',
        'tokens_per_second',
        'speed_up',
        'speed_up_error',
      ),
    }
  )
