r"""Rejections in theory and practice: Figures 2 and 5 of Yin et al. (2024).

python -m experiments.main --config=configs/theory/rejections.py \
    --workdir=runs/theory_rejections

The paper does not describe how its chains are drawn. They are probably
`RandomState(10).rand(50, 7, 7)` for the draft and then for the target, with
normalized rows, and the same at horizon 100. This gives 16.405 expected
rejections at horizon 50, where the paper has 16.41. (Over 300 seeds, such
chains give 16.31 ± 0.29, so that other procedures are not excluded.) Simulation
and decoder agree with theory within 3 standard errors, which are 0.01 and 0.05.
"""

import ml_collections

_ONE = {'horizon': 50, 'num_drafts': 1}

SMOKE = {
  'horizons': (3,),
  'decoded_horizons': (3,),
  'simulated_runs': 4,
  'decoded_runs': 5,
  'num_drafts': (1, 2),
  'simulated_drafts': (2,),
  'decoded_drafts': (2,),
}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'theory.rejections',
      'vocab_size': 7,
      'horizons': (50, 100),
      'num_drafts': (1, 2, 3, 4, 5, 6, 7, 8),
      'simulated_drafts': (1, 2, 4, 5),
      'simulated_runs': 100000,
      'runs_per_chunk': 10000,
      'decoded_horizons': (50,),
      'decoded_drafts': (1, 2, 4, 5),
      'decoded_runs': 5000,
      'sampling': {'temperature': 1.0},  # The chains' distributions.
      'batch_size': 1000,
      'means_at': (100, 1000, 10000),  # Numbers of runs, besides all.
      'seed': 10,
      'pivot': {
        'down': ('horizon', 'num_drafts'),
        'across': 'source',
        'value': 'rejections',
      },
      'paper': (
        {
          'source': 'Yin et al. (2024), Figure 2 (a)',
          'field': 'rejections',
          'rows': ({**_ONE, 'source': 'theory', 'paper': 16.41},),
          'claims': tuple(
            (
              f'rejections of 50 tokens, {source}',
              {**_ONE, 'source': source, 'runs': runs},
              None,
              16.41,
            )
            for source, runs in (('decoder', 5000), ('simulation', 100000))
          ),
        },
        {
          'source': 'Yin et al. (2024), Figure 2 (a)',
          'field': 'acceleration',
          'rows': (),
          'claims': (
            (
              'tokens per rejection, theory',
              {**_ONE, 'source': 'theory'},
              None,
              3.05,
            ),
          ),
        },
      ),
    }
  )
