r"""Whether specialists are best at home: columns D1 to D5 of MetaSD's Table 3.

python -m experiments.main --config=configs/metasd/specialists.py \
    --config.data_dir=DATA --workdir=runs/metasd_specialists

`over_best` compares the same prompts, with the standard error of the ratio.
"""

from configs.metasd import drafters


def get_config():
  config = drafters.get_config()
  config.sets = {'in domain': {'domains': drafters.DOMAINS}}
  config.prompts_per_domain = 64
  config.others = (('all', 5),)
  config.bandits = ()
  config.router = False
  return config
