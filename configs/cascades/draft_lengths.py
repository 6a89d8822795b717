r"""Quality against cost for several draft lengths (Figure 7).

python -m experiments.main --config=configs/cascades/draft_lengths.py \
    --config.data_dir=DATA --workdir=runs/draft_lengths

Tasks of frontier.py whose names begin with `smollm2` use SmolLM2 at fewer
shares.
"""

from configs.cascades import frontier

VARIANTS = frontier.TASKS
SMOKE = {
  'methods': frontier.plain()
  + frontier.drafted({'chow': (0.5,)}, length=2, draft_length=2),
}


def get_config(task='translation'):
  config = frontier.shared(task)
  config.columns = ('draft_length', *config.columns)
  shares = frontier.FEW if config.family == frontier.SMOLLM2 else frontier.RULES
  rules = {rule: shares[rule] for rule in ('opt', 'token_v3')}
  config.methods = frontier.plain() + tuple(
    method
    for length in (3, 5, 7)
    for method in frontier.drafted(rules, length=length, draft_length=length)
  )
  return config
