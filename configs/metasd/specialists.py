r"""Whether specialists are best at home: columns D1 to D5 of MetaSD's Table 3.

python -m experiments.main --config=configs/metasd/specialists.py \
    --config.data_dir=DATA --workdir=runs/metasd_specialists

`over_best` compares the same prompts, with the standard error of the ratio.
With `specialists.py:code`, all prompts of one domain, by its specialist and the
drafter that fits all. That has 0.86 ± 0.04 of the specialist's block efficiency
in code, 0.97 ± 0.01 in translation, 0.95 ± 0.02 in summarization, 0.92 ± 0.03
in qa and 0.92 ± 0.01 in math; any other specialist has 0.59 ± 0.02 at most. The
table is in the model card.
"""

from configs.metasd import drafters


def get_config(domain=''):
  domains = (domain,) if domain else drafters.DOMAINS
  config = drafters.get_config()
  config.sets = {'in domain': {'domains': domains}}
  config.prompts_per_domain = 1000 if domain else 64
  config.arms = tuple((name, 5) for name in domains)
  config.others = (('all', 5),)
  config.bandits = ()
  config.router = False
  return config
