r"""The frontier of shorter and longer drafts (Figure 7).

python -m experiments.main --config=configs/cascades/draft_lengths.py \
    --config.data_dir=DATA --workdir=runs/draft_lengths

With `--config.prompts=100` on one CPU core, for 3, 5 and 7 drafted tokens:
lossless takes 0.81, 0.97 and 1.17 of the target's time, lossy of 0.5 0.57, 0.71
and 0.78 (-3.6 nats a token by the target), token_v3 of 0.9 0.75, 0.84 and 0.95
(-2.74 to -2.87; the target -3.58). The cheapest points, which keep nearly all
drafts, are as fast with 3 as with 7 (0.50 to 0.54): a draft is rejected once in
three tokens here, and reading 8 tokens costs more than reading 4.
"""

from configs.cascades import frontier


def get_config(task='translation'):
  config = frontier.get_config(task)
  config.draft_lengths = (3, 5, 7)
  config.methods = {
    name: config.methods[name]
    for name in ('target', 'draft', 'lossless', 'lossy', 'opt', 'token_v3')
  }
  return config
