r"""The cheapest rule that keeps most of the target's quality.

python -m experiments.main --config=configs/cascades/calibrate.py \
    --config.data_dir=DATA --config.floor=0.95 --workdir=runs/calibrate

A second run in the same workdir, with another floor, margin or cost, does not
decode dev prompts again. `choice.json` specifies the selected decoder:

    from experiments.cascades import calibrate
    from specjax import families

    family = families.load('runs/encoder_decoder')
    choice = json.load(open('runs/calibrate/choice.json'))
    decoder = calibrate.decoder(family, choice)
"""

from configs.cascades import frontier
from specjax import registry

_PROMPTS = {'translation': 190, 'summarization': 29}  # Half of all prompts.
_RULES = {rule: frontier.RULES[rule] for rule in ('chow', 'opt', 'token_v3')}

VARIANTS = tuple(_PROMPTS)
SMOKE = frontier.SMOKE | {'prompts_per_domain': 4, 'dev_prompts': 2}


def get_config(task='translation'):
  dev_prompts = registry.lookup(_PROMPTS, 'task', task)
  config = frontier.shared(task)
  config.experiment = 'cascades.calibrate'
  config.columns = ('draft_length', *config.columns)
  config.prompts[task].limit = 0
  config.methods = (
    frontier.plain()[0],
    *(
      method
      for length in (3, 5)
      for method in frontier.drafted(_RULES, length=length, draft_length=length)
    ),
  )
  config.update(
    {
      'floor': 0.95,  # The required share of the target's quality.
      'margin': 0.0,  # Standard errors by which quality must exceed it.
      'cost': 'latency',  # Or another column with costs.
      'dev_prompts': dev_prompts,  # The others are test prompts.
    }
  )
  return config
