r"""Quality against latency: every rule and every baseline (Table 2, Figure 4).

python -m experiments.main --config=configs/cascades/frontier.py \
    --config.data_dir=DATA --workdir=runs/frontier

The family is what `configs/train/encoder_decoder.py` leaves in its workdir. On
one CPU core, translation: the target says -2.96 nats a token, by itself, and
has BLEU 0.38 ± 0.03; token_v3 of alpha 0.9 -2.45 and 0.47 ± 0.03 at a latency
of 0.96; lossy of 0.5 -2.97 at 0.88 and of 0.7 -3.19 at 0.76; opt of 0 -3.05 at
0.82; bild of 5 -3.28 at 0.88; a token cascade of 0.5 -3.05 at 1.56.
"""

import ml_collections

_TRANSLATION = ('translation_fr-en', 'translation_ja-en', 'translation_zh-en')
# Domain, metric, tokens of an answer, and of all.
_TASKS = {
  'translation': (_TRANSLATION, 'bleu', 32, 96),
  'summarization': ('summarization', 'rouge2', 64, 448),
}
_PROMPTS = {'translation': 200, 'summarization': 70}


def get_config(task='translation'):
  """The T5 set-up, for 'translation' or 'summarization'."""
  return ml_collections.ConfigDict(
    {
      'experiment': 'cascades',
      **shared(task),
      'methods': {
        'target': {},
        'draft': {},
        'lossless': {},
        'lossy': {'alphas': (0.1, 0.3, 0.5, 0.7, 0.9)},
        'bild': {'alphas': (1.0, 2.0, 3.0, 5.0, 8.0)},
        'chow': {'alphas': (0.1, 0.3, 0.5, 0.7, 0.9)},
        'diff': {'alphas': (-0.2, 0.0, 0.1, 0.2, 0.4)},
        'opt': {'alphas': (-0.5, 0.0, 0.2, 0.5, 1.0)},
        'token_v3': {'alphas': (0.1, 0.3, 0.5, 0.7, 0.9)},
        'token_cascade': {'alphas': (0.1, 0.5, 0.9)},
        'sequence_cascade': {'alphas': (0.9, 0.999, 1 - 1e-6, 1 - 1e-12)},
        'oracle_diff': {'alphas': (0.0, 0.2)},
        'min_p': {'alphas': (0.5, 0.9)},
      },
      'temperatures': (1.0,),
      'draft_lengths': (5,),
      'prompts': _PROMPTS[task],
    }
  )


def shared(task):
  """What every experiment on a task states."""
  domain, metric, max_new_tokens, max_length = _TASKS[task]
  return {
    'family': 'runs/encoder_decoder',
    'draft': 'small',
    'data_dir': 'data',
    'domain': domain,
    'metric': metric,
    'max_new_tokens': max_new_tokens,
    'max_length': max_length,
    'seed': 0,
  }
