r"""Drafts only where the drafter is sure, with SmolLM2.

python -m experiments.main --config=configs/benchmark/stops.py \
    --config.data_dir=DATA --workdir=runs/stops
python -m experiments.main --config=configs/benchmark/stops.py:sampled \
    --config.data_dir=DATA --workdir=runs/stops_sampled

Where a token is too unlikely to be accepted, it is cheaper not to verify it:
`stop=unsure(alpha)` ends a draft before a token if the drafter's largest
probability is less than `1 - alpha`. Without any draft, the target is called
for one token. On two cores, the target's call for two tokens takes about a
quarter longer than that for one, so that a first token should be drafted from
a probability of about 0.3 on; further ones cost less. `:sampled` has fewer
methods and prompts, at temperature 1. Prompts are decoded one at a time,
interleaved with plain decoding. docs/results/benchmark.md has the results.
"""

import ml_collections

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
  return ml_collections.ConfigDict(
    {
      'experiment': 'compare',
      'family': 'smollm2/heads',
      'data_dir': '',  # Its eval files; the shipped prompts by default.
      'prompts': {'eval': {'domains': smollm2.DOMAINS}},
      'prompts_per_domain': num_prompts,
      'by_domain': True,
      'methods': arms,
      'batch_size': 1,
      'repeats': 1,  # Timings, interleaved with plain decoding.
      'sampling': {'temperature': temperature},
      'max_new_tokens': 64,
      'max_length': 512,
      'seed': 0,
      'columns': (
        'domain',
        'method',
        'block_efficiency',
        'block_efficiency_error',
        'acceptance_by_depth',
        'tokens_per_second',
        'speed_up',
        'speed_up_error',
        *(() if temperature else ('same_outputs',)),
      ),
    }
  )
