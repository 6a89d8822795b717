r"""Continuous batching, with bandits over draft lengths.

python -m experiments.main --config=configs/benchmark/refill.py \
    --config.data_dir=DATA --workdir=runs/refill

Prompts of mixed lengths are decoded in a fixed order: 240 prompts from DATA, 64
with SmolLM2, or the family's 64 held-out prompts. An answer ends by itself, or
at a random limit between `shortest` and `max_new_tokens` tokens. `over_padded`
is tokens per second over those of padded batches, with the same method and
batch size, for the methods in `padded`; `over_plain` is relative to plain
decoding with continuous batching. Prefill is included. `goodput` selects among
draft lengths and plain decoding, from the costs of rounds and prefill and the
estimated acceptance; `pulls` are the arms' shares of rounds. The arms of
bandits are `deferred`: a drafter prefills only prompts of rows that select it.

`configs/benchmark/refill.py:stops` drafts up to 8 tokens, but stops where the
drafter is unsure. The arms are thresholds of uncertainty, with one bandit per
batch or per row.
"""

import itertools

import ml_collections

from configs.benchmark import smollm2
from experiments.common import sweeps
from specjax import registry

_STOPS = tuple(
  f'medium(stop=unsure({least}))' for least in (0.2, 0.4, 0.6, 0.8)
)
_VARIANTS = {
  'mini': {
    'family': 'mini',
    'domains': (),
    'num_prompts': 240,
    'repeats': 4,
    'temperatures': (0.0, 1.0),
    'drafters': ('medium',),
    'trees': (1, 2, 4, 8),  # For each drafter.
  },
  'smollm2': {
    'family': 'smollm2/heads',
    'domains': smollm2.DOMAINS,
    'num_prompts': 64,
    'repeats': 3,
    'temperatures': (0.0,),
    'drafters': ('feature_head(eagle)',),
    'trees': (1, 2),
  },
  'stops': {
    'family': 'mini',
    'domains': (),
    'num_prompts': 64,
    'repeats': 6,
    'temperatures': (0.0,),
    'drafters': _STOPS,
    'trees': (8,),
  },
}
_THROUGHPUT = {
  'bandit': 'ucb_spec',
  'reward': 'throughput',
  'label': 'ucb_spec',
}

VARIANTS = tuple(_VARIANTS)
SMOKE = {
  'methods': ('none', {'bandit': 'goodput', 'label': 'goodput'}),
  'padded': ('none',),
  'repeats': 2,
}


def get_config(which='mini'):
  """Returns the config for 'mini', 'smollm2' or 'stops'."""
  variant = registry.lookup(_VARIANTS, 'which', which)
  domains, num_prompts = variant['domains'], variant['num_prompts']
  temperatures = variant['temperatures']
  pairs = list(itertools.product(variant['drafters'], variant['trees']))
  methods = 'none', *(f'{name}:{tree}' for name, tree in pairs)
  arms = 'none', *(f'deferred({name!r}):{tree}' for name, tree in pairs)
  return ml_collections.ConfigDict(
    {
      'experiment': 'benchmark.refill',
      'family': variant['family'],
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {'domains': domains, 'limit': num_prompts}},
      'prompts_per_domain': num_prompts,
      'methods': (
        *methods,
        _THROUGHPUT,
        {**_THROUGHPUT, 'per_row': True, 'label': 'ucb_spec of rows'}
        if which == 'stops'
        else {'bandit': 'goodput', 'label': 'goodput'},
      ),
      # Methods that also decode padded batches.
      'padded': ('none', 'ucb_spec' if which == 'stops' else 'goodput'),
      'arms': arms,  # Arms of the bandits.
      'cost_rounds': 16,  # Rounds that are timed together.
      'cost_repeats': 9,  # How often they are timed.
      'sampling': {'temperature': temperatures[0]},
      'shortest': 1,
      'max_new_tokens': 64,
      'max_length': 256,
      'batch_size': 8,
      'sweep': sweeps.product(
        {'sampling.temperature': temperatures, 'batch_size': (8, 1, 32)}
      ),
      'repeats': variant['repeats'],
      'seed': 0,
      'columns': (
        'temperature',
        'batch_size',
        'method',
        'block_efficiency',
        'pulls',
        'refilled',
        'over_plain',
        'over_plain_error',
        'padded',
        'over_padded',
        'over_padded_error',
        'differ',
        'tokens',
      ),
    }
  )
