r"""Quality against rejections of a decoder-only pair (Figures 3, 10, 11).

python -m experiments.main --config=configs/cascades/decoder_only.py \
    --config.data_dir=DATA --workdir=runs/decoder_only
"""

from configs.cascades import frontier


def get_config(domain='summarization'):
  """One drafted token, as the paper has for Gemma, and five."""
  config = frontier.get_config('summarization')
  config.family = 'mini'
  config.draft = 'medium'
  config.domain = domain
  config.metric = 'rouge1'
  config.draft_lengths = (1, 5)
  config.methods.token_v1 = {'alphas': (-0.2, 0.0, 0.2, 0.4, 0.6)}
  config.methods.token_v2 = {'alphas': (0.0, 0.1, 0.2, 0.4, 0.6)}
  config.prompts = 60
  config.max_new_tokens = 64
  config.max_length = 448
  return config
