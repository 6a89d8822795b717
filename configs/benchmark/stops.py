r"""Drafts only where the drafter is sure, with SmolLM2.

python -m experiments.main --config=configs/benchmark/stops.py \
    --config.data_dir=DATA --workdir=runs/stops
python -m experiments.main --config=configs/benchmark/stops.py:sampled \
    --config.data_dir=DATA --workdir=runs/stops_sampled

Where a token is too unlikely to be accepted, it is cheaper not to verify it:
`stop=unsure(alpha)` ends a draft before a token if the drafter's largest
probability is less than `1 - alpha`. Without any draft, the target is called
for one token. On two cores, the target's call for two tokens takes 1.2 times
as long as that for one (docs/models.md), so that a first token should be
drafted from a probability of 0.2 to 0.3 on; further ones cost less. `:sampled`
has fewer methods and prompts, at temperature 1. Family and lengths are those
of configs/benchmark/heads.py; docs/results/benchmark.md has the results.
"""

from configs.benchmark import heads
from configs.benchmark import smollm2
from specjax import registry

_LOOKUP = 'prompt_lookup(max_ngram=6)'
_HEAD = 'feature_head(eagle):3'
_SURE = 'feature_head(eagle, stop=unsure(0.7)):3'
_SURE_MODEL = 'small(stop=unsure(0.7)):3'
_LOOKUP_OR_NONE, _LOOKUP_OR_SURE = (
  f'lookup_or({_LOOKUP}, {other}min_match=2):7'
  for other in ('', f'{_SURE!r}, ')
)
# Temperature, prompts per domain, and methods.
_VARIANTS = {
  'greedy': (
    *(0.0, 8),
    (_SURE_MODEL, _HEAD, _SURE, _LOOKUP_OR_NONE, _LOOKUP_OR_SURE),
  ),
  'sampled': (1.0, 4, (_HEAD, _SURE, _LOOKUP_OR_SURE)),
}

VARIANTS = tuple(_VARIANTS)


def get_config(which='greedy'):
  """Returns the config.

  Args:
    which: 'greedy' or 'sampled'.
  """
  temperature, num_prompts, arms = registry.lookup(_VARIANTS, 'variant', which)
  config = heads.get_config()
  del config.sweep
  config.sampling.temperature = temperature
  config.prompts.eval.domains = smollm2.DOMAINS
  config.prompts_per_domain = num_prompts
  config.methods = arms
  hidden = {'sampling.temperature', 'prompts', 'acceptance_by_depth'}
  if temperature:
    hidden.add('same_outputs')  # Sampled texts of different methods differ.
  config.columns = tuple(name for name in config.columns if name not in hidden)
  return config
