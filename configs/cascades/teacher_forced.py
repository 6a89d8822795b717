r"""Loss against rejections on reference texts, for all rules (Lemmas 1 and 4).

python -m experiments.main --config=configs/cascades/teacher_forced.py \
    --config.data_dir=DATA --workdir=runs/teacher_forced

Nothing is sampled: at each token of held-out responses, the loss and the
rejection probability of a rule are closed forms of the distributions of both
models. The family is mini with the drafter `small`, or SmolLM2 with `:smollm2`;
with `:smollm2_heads`, an EAGLE head drafts, whose distributions are those of
the first token of a draft.
The column `alpha` has the first number of a rule: the `epsilon` of `typical`
(Medusa's acceptance) and of `over_acceptance`, the `delta` of `cactus`, and how
many tokens `top_k` (relaxed acceptance) keeps. Rules that depend on more than
these two distributions cannot be measured here: stop rules, which change the
draft, and verifiers that judge a path as a whole.
At the target's 0-1 loss, mini emits 1.113 ± 0.006 times as many tokens per
round with `token_v3` as with lossy decoding, and 1.128 ± 0.019 times as many
with `opt`.
"""

import ml_collections

from configs.cascades import frontier
from specjax import registry

_GAPS = (
  *(-0.5, -0.4, -0.3, -0.25, -0.2, -0.15, -0.1, -0.05),
  *(0.0, 0.05, 0.1, 0.2, 0.3, 0.5),
)
_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_LOG_GAPS = (-2.0, -1.5, -1.0, -0.7, -0.4, -0.2, 0.0, 0.2, 0.4, 0.7, 1.0)
_RULES = {
  'bild': (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0),
  'cactus': (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
  'chow': _SHARES,
  'chow_log': (0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0),
  'diff': _GAPS,
  'diff_log': _LOG_GAPS,
  'lossy': (0.02, *_SHARES, 0.95),
  'opt': (-2.0, -1.0, *_GAPS, 1.0),
  'opt_log': (-4.0, -3.0, *_LOG_GAPS, 2.0),
  'over_acceptance': (0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
  'token_v1': (-0.3, -0.1, 0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8),
  'token_v2': (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8),
  'token_v3': (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.97, 0.99, 0.995, 0.998, 0.999),
  'top_k': (1, 2, 3, 5, 10, 20, 50, 100),
  'typical': (0.0003, 0.001, 0.003, 0.01, 0.03, 0.09, 0.3),
}
_DOMAINS = 'code', 'instruct', 'lm', 'math', 'qa', 'summarization'
_SMOLLM2 = {'domains': _DOMAINS, 'texts_per_domain': 24}
_FAMILIES = {
  'mini': {
    'family': 'mini',
    'domains': (*_DOMAINS, 'translation'),
    'texts_per_domain': 60,
  },
  'smollm2': _SMOLLM2 | {'family': frontier.SMOLLM2},
  'smollm2_heads': _SMOLLM2 | {'family': frontier.HEADS},
}
_DRAFTERS = {'smollm2_heads': 'feature_head(eagle)'}

VARIANTS = tuple(_FAMILIES)


def get_config(which='mini'):
  """Returns the config for 'mini', 'smollm2' or 'smollm2_heads'."""
  return ml_collections.ConfigDict(
    {
      'experiment': 'cascades.teacher_forced',
      **registry.lookup(_FAMILIES, 'family', which),
      'data_dir': 'data',
      'methods': methods(_RULES, _DRAFTERS.get(which, 'small')),
      'max_length': 320,  # Tokens of a text, with its prompt.
      'sampling': {'temperature': 1.0},
      'num_resamples': 1000,
      'seed': 0,
      'columns': (
        'method',
        'alpha',
        'loss_01',
        'log_loss',
        'rejection_rate',
        'tokens_per_round',
        'loss_01_over_lossy',
        'log_loss_over_lossy',
        'ratio_to_lossy',
        'loss_01_over_target',
      ),
    }
  )


def methods(rules, draft='small'):
  """Returns the rule that never defers, and the methods of `drafted`."""
  never_defers = {'arm': f'{draft}:5~chow(1.0)', 'label': 'draft'}
  return never_defers, *frontier.drafted(rules, draft)


SMOKE = {
  'methods': methods({'chow': (0.5,), 'opt': (-0.2, 0.2)}),
  'texts_per_domain': 2,
  'num_resamples': 10,
}
