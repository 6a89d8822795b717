r"""Quality against cost for all rules and baselines (Table 2, Figures 1, 2, 4).

python -m experiments.main --config=configs/cascades/frontier.py \
    --config.data_dir=DATA --workdir=runs/frontier

The family is the workdir of `configs/train/encoder_decoder.py`. Ratings are
BLEU, or ROUGE-2 with `:summarization`, and the target's nats per token,
`target_nats`, which is more reliable, as the models are too small to translate.
By this rating, `token_v3` at 0.9 reaches -2.87 ± 0.06 in 0.89 ± 0.04 of the
target's time, and the target -3.60 ± 0.06. `opt` has no better points than
lossy decoding, as a small draft model is often overconfident. Plain decoding
with `min_p` is rated far above any rule: much of the rules' gain may come from
sharpening.

`:smollm2_summarization`, `:smollm2_qa` and `:smollm2_math` use SmolLM2 at fewer
shares; with `:heads_summarization`, its drafter is EAGLE's head, which is
closer to the target.
"""

import ml_collections

from experiments.common import paper
from specjax import registry
from specjax import verifiers

SUMMARIZATION = ('summarization',)
TRANSLATION = ('translation_fr-en', 'translation_ja-en', 'translation_zh-en')
# The metric of questions for models that answer in sentences.
ANYWHERE = 'exact_match(anywhere=True)'
T5, SMOLLM2, HEADS = 'runs/encoder_decoder', 'smollm2', 'smollm2/heads'
_TASKS = {
  'translation': {
    'family': T5,
    'prompts': {'translation': {'domains': TRANSLATION, 'limit': 200}},
    'metric': 'bleu',
    'max_new_tokens': 32,
    'max_length': 96,
  },
  'summarization': {
    'family': T5,
    'prompts': {'summarization': {'domains': SUMMARIZATION, 'limit': 70}},
    'metric': 'rouge2',
    'max_new_tokens': 64,
    'max_length': 448,
  },
  'smollm2_summarization': {
    'family': SMOLLM2,
    'prompts': {'summarization': {'domains': SUMMARIZATION, 'limit': 16}},
    'metric': 'rouge2',
    'max_new_tokens': 48,
    'max_length': 448,
  },
  'smollm2_qa': {
    'family': SMOLLM2,
    'prompts': {'qa': {'domains': ('qa',), 'limit': 16}},
    'metric': ANYWHERE,
    'max_new_tokens': 32,
    'max_length': 384,
  },
  'smollm2_math': {
    'family': SMOLLM2,
    'prompts': {'math': {'domains': ('math',), 'limit': 16}},
    'metric': 'final_number',
    'max_new_tokens': 128,
    'max_length': 320,
  },
}
TASKS = tuple(_TASKS)
# A better drafter for the same target, which cannot decode by itself.
_BETTER = {
  'heads_summarization': {**_TASKS['smollm2_summarization'], 'family': HEADS},
}
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
SURPRISES = (1.0, 2.0, 3.0, 5.0, 8.0)
RULES = {
  'bild': SURPRISES,
  'chow': SHARES,
  'diff': (-0.2, 0.0, 0.1, 0.2, 0.4),
  'opt': (-0.5, 0.0, 0.2, 0.5, 1.0),
  'token_v3': SHARES,
}
_SHARES = (0.3, 0.6, 0.9)
# At 0, both rules already accept more than keeps the quality of the target.
_GAPS = (-0.5, -0.2, 0.0, 0.1, 0.3)
# Columns of points that are compared without clocks.
UNTIMED = (
  'method',
  'alpha',
  'quality',
  'target_nats',
  'target_calls',
  'nats_over_lossy',
  'deferral_rate',
  'rejection_rate',
)
# For runs in which all of these would take too long.
FEW = {
  'bild': (1.0, 2.0, 4.0),
  'chow': _SHARES,
  'diff': _GAPS,
  'lossy': (0.05, 0.1, *_SHARES),
  'opt': _GAPS,
  'token_v3': _SHARES,
}

# In Table 2, a drafter with 77M parameters and a target with 800M.
_CLAIMS = (
  *(('opt', 'lossy'), ('token_v3', 'bild'), ('token_v3', 'lossy')),
  ('lossy', 'token_cascade'),
)

VARIANTS = *TASKS, *_BETTER


def get_config(task='translation'):
  """Returns the config of a task, with T5 models or with SmolLM2."""
  config = shared(task, _TASKS | _BETTER)
  config.columns += ('paper',)
  config.paper = (
    _table('equal quality', 'speed_up_at_quality', 'speed_up', 'target_nats'),
    _table('equal quality', 'speed_up_at_quality', 'speed_up', 'quality'),
    _table('equal latency', 'rating_at_latency', 'quality', 'quality'),
  )
  if config.family == HEADS:
    config.methods = *plain(None), *drafted(FEW, 'feature_head(eagle)')
    return config
  config.methods = (
    *plain(),
    *drafted(RULES if config.family == T5 else FEW),
    *token_cascade((0.1, 0.5, 0.9)),
    *line('oracle_diff', 'small:0~diff({alpha})', (0.0, 0.2)),
    *(min_p_method(alpha) for alpha in (0.5, 0.9)),
  )
  config.sequence_alphas = (0.9, 0.999, 1 - 1e-6, 1 - 1e-12)
  return config


def shared(task, tasks=_TASKS):
  """Returns the fields that all experiments on a task share."""
  return ml_collections.ConfigDict(
    {
      'experiment': 'cascades.frontier',
      **registry.lookup(tasks, 'task', task),
      'data_dir': 'data',
      'prompts_per_domain': 400,
      'methods': (),
      'sequence_alphas': (),
      'sampling': {'temperature': 1.0},
      'batch_size': 1,
      'repeats': 1,
      'seed': 0,
      'columns': (
        'method',
        'alpha',
        'quality',
        'target_nats',
        'latency',
        'total_latency',
        'target_calls',
        'nats_over_lossy',
        'deferral_rate',
        'rejection_rate',
        'by',
        'speed_up_at_quality',
        'rating_at_latency',
        'best_share',
      ),
      'paper': (),
    }
  )


def plain(draft='small'):
  """Returns plain decoding with the target, and with the draft model if any."""
  target = {'arm': 'none', 'label': 'target'}
  if draft is None:
    return (target,)
  return target, {'arm': 'none', 'target': draft, 'label': 'draft'}


def drafted(rules, draft='small', length=5, **columns):
  """Returns lossless and lossy decoding, and a cascade per rule.

  Lossy decoding uses the shares of `lossy` if these are among the rules, and
  those of `chow` otherwise.
  """
  arm = f'{draft}:{length}'
  shares = rules.get('lossy', rules.get('chow', SHARES))
  return (
    {'arm': arm, 'label': 'lossless', 'columns': columns},
    *line('lossy', _rule(arm, 'lossy'), shares, **columns),
    *(
      method
      for rule, alphas in rules.items()
      if rule != 'lossy'
      for method in line(rule, _rule(arm, rule), alphas, **columns)
    ),
  )


def _rule(arm, name):
  """Returns an arm with a rule, which is a lossy verifier or a goal."""
  separator = '/' if name in verifiers.VERIFIERS else '~'
  return f'{arm}{separator}{name}({{alpha}})'


def line(label, arm, alphas, **columns):
  """Returns methods with one label and several alphas: a line of a plot."""
  return tuple(
    {
      'arm': arm.format(alpha=alpha),
      'label': label,
      'columns': {'alpha': alpha, **columns},
    }
    for alpha in alphas
  )


def token_cascade(alphas):
  """Returns Algorithm 2: up to 10 draft tokens, then one from the target."""
  arm = 'small(stop=unsure({alpha}),bonus_probs=False):10~chow({alpha})'
  return line('token_cascade', arm, alphas)


def min_p_method(alpha):
  """Returns plain decoding from the tokens that `token_v3` would accept."""
  return {
    'arm': 'none',
    'sampling': {'min_p': round(1 - alpha, 6)},
    'label': 'min_p',
    'columns': {'alpha': alpha},
  }


SMOKE = {
  'methods': plain() + drafted({'chow': (0.5,), 'opt': (0.2,)}, length=2)
}


def _table(part, field, number, by):
  numbers = paper.read('cascades/table_2')
  return paper.table(
    f'Cascades, Table 2, {part} (ours by {by})',
    field,
    numbers[['prompts', 'method', number]],
    {'part': part, 'by': by},
    _CLAIMS,
    number,
  )
