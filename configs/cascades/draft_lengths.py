r"""The frontier of shorter and longer drafts (Figure 7).

python -m experiments.main --config=configs/cascades/draft_lengths.py \
    --config.data_dir=DATA --workdir=runs/draft_lengths
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
