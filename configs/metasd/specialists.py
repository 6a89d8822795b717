r"""Specialists in their domains: columns D1 to D5 of MetaSD's Table 3.

python -m experiments.main --config=configs/metasd/specialists.py \
    --config.data_dir=DATA --workdir=runs/metasd_specialists

`specialists.py:code` decodes all prompts of one domain with its specialist and
with the general drafter.
"""

from configs.metasd import drafters

VARIANTS = ('', 'code')  # Any domain is valid.


def get_config(domain=''):
  domains = (domain,) if domain else drafters.DOMAINS
  config = drafters.get_config()
  config.prompts = {'in domain': {'domains': domains}}
  config.prompts_per_domain = 1000 if domain else 64
  config.arms = tuple(f'{name}:5' for name in domains)
  config.methods = ('all:5',)
  config.bandits = ()
  config.router = False
  return config
