r"""Quality against rejections with decoder-only models (Figures 3, 10, 11).

python -m experiments.main --config=configs/cascades/decoder_only.py \
    --config.data_dir=DATA --workdir=runs/decoder_only

Draft lengths are one, as in the paper for Gemma, and five. Other tasks are
`:translation`, `:qa` and `:math`, each with the paper's metric. Models of this
size answer few questions, so that `target_nats` is the more reliable rating.
Timings require `--config.batch_size=1 --config.repeats=1`.
"""

from configs.cascades import frontier

_MINI, _SMOLLM2 = 'mini', frontier.SMOLLM2
_TASKS = {
  'summarization': {
    'family': _MINI,
    'prompts': {
      'summarization': {'domains': frontier.SUMMARIZATION, 'limit': 60}
    },
    'metric': 'rouge2',
    'max_new_tokens': 64,
    'max_length': 448,
  },
  'translation': {
    'family': _MINI,
    'prompts': {'translation': {'domains': frontier.TRANSLATION, 'limit': 100}},
    'metric': 'bleu',
    'max_new_tokens': 32,
    'max_length': 96,
  },
  'qa': {
    'family': _MINI,
    'prompts': {'qa': {'domains': ('qa',), 'limit': 100}},
    'metric': 'exact_match',
    'max_new_tokens': 16,
    'max_length': 384,
  },
  'math': {
    'family': _MINI,
    'prompts': {'math': {'domains': ('math',), 'limit': 50}},
    'metric': 'final_number',
    'max_new_tokens': 128,
    'max_length': 320,
  },
  'smollm2_summarization': {
    'family': _SMOLLM2,
    'prompts': {
      'summarization': {'domains': frontier.SUMMARIZATION, 'limit': 64}
    },
    'metric': 'rouge2',
    'max_new_tokens': 48,
    'max_length': 448,
  },
  'smollm2_qa': {
    'family': _SMOLLM2,
    'prompts': {'qa': {'domains': ('qa',), 'limit': 96}},
    'metric': frontier.ANYWHERE,
    'max_new_tokens': 32,
    'max_length': 384,
  },
  'smollm2_math': {
    'family': _SMOLLM2,
    'prompts': {'math': {'domains': ('math',), 'limit': 48}},
    'metric': 'final_number',
    'max_new_tokens': 128,
    'max_length': 320,
  },
}
_MORE = {
  'token_v1': (-0.2, 0.0, 0.2, 0.4, 0.6),
  'token_v2': (0.0, 0.1, 0.2, 0.4, 0.6),
}
_FEW_MORE = {'token_v1': (0.0, 0.2, 0.6), 'token_v2': (0.0, 0.2, 0.6)}
_FAMILIES = {
  _MINI: {
    'draft': 'medium',
    'draft_lengths': (1, 5),
    'rules': frontier.RULES | _MORE,
  },
  _SMOLLM2: {
    'draft': 'small',
    'draft_lengths': (1,),
    'rules': frontier.FEW | _FEW_MORE,
  },
}

VARIANTS = tuple(_TASKS)
SMOKE = frontier.SMOKE


def get_config(task='summarization'):
  """Returns the config of a task."""
  config = frontier.shared(task, _TASKS)
  family = _FAMILIES[config.family]
  draft, rules = family['draft'], family['rules']
  config.batch_size, config.repeats = 8, 0
  config.columns = (
    'draft_length',
    *frontier.UNTIMED,
  )
  config.methods = frontier.plain(draft) + tuple(
    method
    for length in family['draft_lengths']
    for method in frontier.drafted(rules, draft, length, draft_length=length)
  )
  return config
