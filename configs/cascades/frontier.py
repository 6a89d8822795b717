r"""Quality against latency: every rule and every baseline (Table 2, Figure 4).

python -m experiments.main --config=configs/cascades/frontier.py \
    --config.data_dir=DATA --workdir=runs/frontier

The family is what `configs/train/encoder_decoder.py` leaves in its workdir. On
one CPU core, translation, in nats a token by the target at a latency: the
target -3.59 ± 0.06, draft -4.26 at 0.16; token_v3 of alpha 0.9 -2.85 at 0.93;
lossy of 0.3 -3.54 at 0.78 and of 0.7 -3.80 at 0.66; opt of 0 -3.59 at 0.76 and
of 0.2 -3.82 at 0.67; diff of 0.1 -3.86 at 0.60; bild of 5 -3.63 at 0.75; chow
of 0.9 -3.98 at 0.60; a token cascade (with other weights of the same training)
of 0.5 -3.59 at 1.12, of 0.9 -3.93 at 0.83; a sequence cascade -3.56 at 0.94 to
-3.59 at 1.21. BLEU says nothing: 0.3 to 0.8, errors of 0.15.
Summarization (`:summarization`, 58 prompts): the target -4.75 ± 0.07, token_v3
of 0.5 -4.03 at 0.80, lossy of 0.3 -4.79 at 0.63, opt of 0 -4.84 at 0.58, bild
of 5 -4.71 at 0.76, a token cascade of 0.5 -4.71 at 1.22 (other weights).
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
