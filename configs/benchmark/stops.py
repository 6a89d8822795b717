r"""Drafts only where the drafter is sure, with SmolLM2.

python -m experiments.main --config=configs/benchmark/stops.py \
    --config.data_dir=DATA --workdir=runs/stops

Where a token is too unlikely to be accepted, it is cheaper not to verify it:
`stop=unsure(alpha)` ends a draft before a token if the drafter's largest
probability is less than `1 - alpha`. Without any draft, the target is called
for one token. On two cores, the target's call for two tokens takes 1.2 times
as long as that for one (docs/models.md), so that a first token should be
drafted from a probability of 0.2 to 0.3 on; further ones cost less. Family and
lengths are those of configs/benchmark/heads.py, and prompts those of
configs/benchmark/lookup_or.py; docs/results/benchmark.md has the results.
"""

from configs.benchmark import heads
from configs.benchmark import lookup_or

_LOOKUP = 'prompt_lookup(max_ngram=6)'
HEAD = 'feature_head(eagle):3'
SURE = 'feature_head(eagle, stop=unsure(0.7)):3'
_SURE_MODEL = 'small(stop=unsure(0.7)):3'
_LOOKUP_OR_NONE, LOOKUP_OR_SURE = (
  f'lookup_or({_LOOKUP}, {other}min_match=2):7' for other in ('', f'{SURE!r}, ')
)

VARIANTS = heads.VARIANTS


def get_config(file=''):
  """Returns the config; `file` is a JSONL file with further prompts, or ''."""
  config = heads.get_config(file)
  del config.sweep
  config.prompts = lookup_or.get_config(file).prompts
  config.methods = (_SURE_MODEL, HEAD, SURE, _LOOKUP_OR_NONE, LOOKUP_OR_SURE)
  hidden = {'sampling.temperature', 'acceptance_by_depth'}
  if not file:
    hidden.add('prompts')
  config.columns = tuple(name for name in config.columns if name not in hidden)
  return config
