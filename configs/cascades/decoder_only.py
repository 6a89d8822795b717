r"""Quality against rejections of a decoder-only pair (Figures 3, 10, 11).

python -m experiments.main --config=configs/cascades/decoder_only.py \
    --config.data_dir=DATA --workdir=runs/decoder_only

With 5 drafted tokens, on one CPU core (58 prompts, ROUGE-1 with a standard
error of about 1, nats a token by the target, latency of the loop over the
target's): token_v2 of alpha 0.2 has 13.1 and -4.02 at 0.64, token_v3 of 0.9
13.6 and -3.35 at 0.95; lossy of 0.1 10.7 and -4.07 at 0.64, bild of 5 11.6 and
-4.36 at 0.67. The target has 13.4 and -3.96, a token cascade of 0.5 12.1 and
-4.10 at 1.18 ± 0.08. The table is in the README.

With one drafted token, as in the figures, by the share of drafts rejected:
token_v3 of 0.1 has 14.4 and -3.53 at 0.30, token_v2 of 0.2 12.8 and -3.94 at
0.15; there lossy of 0.5 has 10.8 and -4.06 at 0.14, bild of 5 10.5 and -4.31 at
0.17, opt of 0 11.9 and -4.20 at 0.18.
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
