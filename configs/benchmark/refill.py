r"""Rows that are refilled, and who drafts how much then.

python -m experiments.main --config=configs/benchmark/refill.py \
    --workdir=runs/refill

Prompts of mixed lengths, in the order in which they come, whose answers have
between `shortest` and `max_new_tokens` tokens. `over_padded` is tokens a second
over those of padded batches, of the same way and batch size; `over_plain` over
those of plain decoding, both refilled. Reading prompts is part of it. `goodput`
chooses among the draft lengths and plain decoding, by what rounds of each take
and by what is accepted; `pulls` are the shares of its rounds.
"""

import ml_collections

from configs.benchmark import smollm2
from specjax import registry

# By family: the drafter, domains of prompts, the longest answer, repeats.
_WHICH = {
  'mini': ('medium', (), 128, 5),
  'smollm2': ('small', smollm2.DOMAINS, 64, 2),
}
_LENGTHS = 1, 2, 4, 8


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  drafter, domains, longest, repeats = registry.lookup(_WHICH, 'family', which)
  arms = ('none', *(f'{drafter}:{length}' for length in _LENGTHS))
  return ml_collections.ConfigDict(
    {
      'experiment': 'benchmark.refill',
      'family': which,
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {'domains': domains, 'limit': 240}},
      'prompts_per_domain': 240,
      'ways': (
        *arms,
        {
          'bandit': 'ucb_spec',
          'reward': 'throughput',
          'label': 'ucb_spec',
        },
        {'bandit': 'goodput', 'label': 'goodput'},
      ),
      'arms': arms,  # Of bandits.
      'cost_rounds': 16,  # Of each arm, that are timed together,
      'cost_repeats': 5,  # so often.
      'sampling': {'temperature': 0.0},
      'shortest': 1,
      'max_new_tokens': longest,
      'max_length': 256,
      'batch_size': 8,
      'sweep': {'batch_size': (1, 4, 8, 16, 32)},
      'repeats': repeats,
      'seed': 0,
      'columns': (
        *('batch_size', 'way', 'block_efficiency', 'pulls'),
        *('padded', 'refilled', 'over_padded', 'over_padded_error'),
        *('over_plain', 'over_plain_error', 'tokens', 'differ'),
      ),
    }
  )
