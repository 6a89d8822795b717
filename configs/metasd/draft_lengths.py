r"""Draft lengths, for the right specialist and for bandits: MetaSD's Figure 2.

python -m experiments.main --config=configs/metasd/draft_lengths.py \
    --config.data_dir=DATA --workdir=runs/metasd_draft_lengths

In the figure, tokens per round rise with the draft length and level off, and
the speed-up falls again.
"""

from configs.metasd import drafters


def get_config():
  methods = []
  for length in (1, 2, 3, 5, 7, 10):
    arms = tuple(f'{domain}:{length}' for domain in drafters.DOMAINS)
    entries = {'specialist': {'arm': arms[0]}} | {
      bandit['label']: bandit | {'arms': arms}
      for bandit in (drafters.UCB, drafters.HEDGE)
    }
    for label, entry in entries.items():
      columns = {'task': 'code', 'drafter': label, 'draft_length': length}
      methods.append(entry | {'columns': columns})
  return drafters.shared(
    experiment='compare',
    prompts={'code': {'domains': ('code',)}},
    methods=tuple(methods),
    by_domain=False,
    repeats=3,
    columns=(
      'drafter',
      'draft_length',
      'block_efficiency',
      'speed_up',
      'num_catch_up_tokens',
    ),
  )
