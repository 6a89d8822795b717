r"""The cheapest rule that keeps most of the target's quality, and its price.

python -m experiments.main --config=configs/cascades/calibrate.py \
    --config.data_dir=DATA --config.floor=0.95 --workdir=runs/calibrate

A second run in the same workdir, with another floor, margin or cost, measures
no dev prompt again. In 6 minutes of one CPU core token_v3 of alpha 0.3 was
chosen, with 3 drafted tokens, of BLEU 0.72 ± 0.18 (target 0.68 ± 0.17) at 0.78
of the target's latency on dev and 0.73 ± 0.17 at 0.84 on test. `choice.json` is
for use:

    family = specjax.families.load('runs/encoder_decoder')
    decoder = calibrate.decoder(family, json.load(open('choice.json')))
"""

import ml_collections

from configs.cascades import frontier

_PROMPTS = {'translation': 190, 'summarization': 29}  # Half of what there is.


def get_config(task='translation'):
  return ml_collections.ConfigDict(
    {
      'experiment': 'calibrate',
      **frontier.shared(task),
      'floor': 0.95,  # Of the target's quality.
      'margin': 0.0,  # Standard errors of quality that must lie above it.
      'cost': 'latency',  # Or 'rejection_rate', or 'target_calls' for a token.
      'methods': {  # Beside 'target' and 'lossless', which are always there.
        'lossy': {'alphas': (0.1, 0.3, 0.5, 0.7, 0.9)},
        'chow': {'alphas': (0.1, 0.3, 0.5, 0.7, 0.9)},
        'opt': {'alphas': (-0.5, 0.0, 0.2, 0.5, 1.0)},
        'token_v3': {'alphas': (0.1, 0.3, 0.5, 0.7, 0.9)},
      },
      'temperature': 1.0,
      'draft_lengths': (3, 5),
      'dev_prompts': _PROMPTS[task],
      'test_prompts': _PROMPTS[task],
    }
  )
