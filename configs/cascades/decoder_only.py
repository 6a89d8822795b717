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
_SUMMARIZATION = 'summarization', ('summarization',)
_QA, _MATH = ('qa', ('qa',)), ('math', ('math',))
_TASKS = {
  'summarization': (_MINI, *_SUMMARIZATION, 60, 'rouge2', 64, 448),
  'translation': (
    *(_MINI, 'translation', frontier.TRANSLATION, 100, 'bleu', 32, 96),
  ),
  'qa': (_MINI, *_QA, 100, 'exact_match', 16, 384),
  'math': (_MINI, *_MATH, 50, 'final_number', 128, 320),
  'smollm2_summarization': (_SMOLLM2, *_SUMMARIZATION, 64, 'rouge2', 48, 448),
  'smollm2_qa': (_SMOLLM2, *_QA, 96, frontier.ANYWHERE, 32, 384),
  'smollm2_math': (_SMOLLM2, *_MATH, 48, 'final_number', 128, 320),
}
_MORE = {
  'token_v1': (-0.2, 0.0, 0.2, 0.4, 0.6),
  'token_v2': (0.0, 0.1, 0.2, 0.4, 0.6),
}
_FEW_MORE = {'token_v1': (0.0, 0.2, 0.6), 'token_v2': (0.0, 0.2, 0.6)}
# The draft, the lengths of drafts and the rules, by family.
_FAMILIES = {
  _MINI: ('medium', (1, 5), frontier.RULES | _MORE),
  _SMOLLM2: ('small', (1,), frontier.FEW | _FEW_MORE),
}

VARIANTS = tuple(_TASKS)
SMOKE = frontier.SMOKE


def get_config(task='summarization'):
  """Returns the config of a task."""
  config = frontier.shared(task, _TASKS)
  draft, lengths, rules = _FAMILIES[config.family]
  config.batch_size, config.repeats = 8, 0
  config.columns = (
    *('draft_length', 'method', 'alpha', 'quality', 'target_nats'),
    *('target_calls', 'nats_over_lossy', 'deferral_rate', 'rejection_rate'),
  )
  config.methods = frontier.plain(draft) + tuple(
    method
    for length in lengths
    for method in frontier.drafted(rules, draft, length, draft_length=length)
  )
  return config
