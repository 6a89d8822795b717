r"""A bandit over rules that end a draft, as in TapOut (arXiv:2511.02017).

python -m experiments.main --config=configs/banditspec/stop_rules.py \
    --config.data_dir=DATA --workdir=runs/stop_rules

Arms draft up to eight tokens with `medium` and differ only in where they stop:
nowhere, by the confidence of the draft, its margin, its entropy or the
probability of the drafted path, or after two or four tokens. SVIP
(arXiv:2411.18462) and AdaEDL (arXiv:2410.18351) with a fixed threshold are
`unsure_log` with other units of the threshold.
"""

from configs.banditspec import drafters

_RULES = (
  *('length(2)', 'length(4)', 'unsure(0.6)', 'margin(0.2)'),
  *('unsure_log(1.5)', 'path_probability(0.3)'),
)


def get_config():
  config = drafters.family_config('mini', ('medium:8',), '')
  config.arms = (
    'medium:8',
    *(f'medium(stop={rule}):8' for rule in _RULES),
  )
  config.bandits = (
    'uniform',
    {'bandit': 'ucb1(beta=0.1)', 'reward': 'throughput'},
    {'bandit': 'thompson', 'reward': 'throughput'},
    'goodput',
  )
  config.paper = ()
  return config
