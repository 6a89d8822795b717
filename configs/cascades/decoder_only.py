r"""Quality against rejections of a decoder-only pair (Figures 3, 10, 11).

python -m experiments.main --config=configs/cascades/decoder_only.py \
    --config.data_dir=DATA --workdir=runs/decoder_only

One drafted token, as the paper has for Gemma, and five. Other tasks are
`:translation`, `:qa` and `:math`, each with the paper's metric. Models of this
size answer few questions: there, `target_nats` is the rating to read. There are
no clocks but with `--config.batch_size=1 --config.repeats=1`.
"""

from configs.cascades import frontier

_TASKS = {
  'summarization': (('summarization',), 60, 'rouge2', 64, 448),
  'translation': (frontier.TRANSLATION, 100, 'bleu', 32, 96),
  'qa': (('qa',), 100, 'exact_match', 16, 384),
  'math': (('math',), 50, 'final_number', 128, 320),
}
_RULES = frontier.RULES | {
  'token_v1': (-0.2, 0.0, 0.2, 0.4, 0.6),
  'token_v2': (0.0, 0.1, 0.2, 0.4, 0.6),
}


def get_config(task='summarization'):
  """One of the tasks."""
  config = frontier.shared(task, _TASKS[task])
  config.family = 'mini'
  config.batch_size, config.repeats = 8, 0
  config.columns = (
    *('draft_length', 'way', 'alpha', 'quality', 'target_nats'),
    *('target_calls', 'deferral_rate', 'rejection_rate'),
  )
  config.ways = frontier.alone('medium') + tuple(
    way
    for length in (1, 5)
    for way in frontier.drafted(_RULES, 'medium', length, draft_length=length)
  )
  return config
