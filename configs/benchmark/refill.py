r"""What it is worth to refill rows that are done, and what drafts are then.

python -m experiments.main --config=configs/benchmark/refill.py \
    --workdir=runs/refill

Prompts of mixed lengths, in the order in which they come, whose answers have
between `shortest` and `max_new_tokens` tokens. `over_padded` is tokens a second
over those of padded batches, of the same way and batch size; `over_plain` over
those of plain decoding, both refilled. Reading prompts is part of it.
"""

import ml_collections

from configs.benchmark import smollm2
from specjax import registry

# By family: drafted ways, prompts, domains, the longest answer, repeats.
_WHICH = {
  'mini': (('medium:2', 'medium:4'), 240, (), 128, 5),
  'smollm2': (('small:2', 'prompt_lookup:4'), 240, smollm2.DOMAINS, 64, 2),
}


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  arms, num, domains, longest, repeats = registry.lookup(
    _WHICH, 'family', which
  )
  return ml_collections.ConfigDict(
    {
      'experiment': 'benchmark.refill',
      'family': which,
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {'domains': domains, 'limit': num}},
      'prompts_per_domain': num,
      'ways': ('none', *arms),
      'arms': ('none', *arms),  # Of bandits.
      'sampling': {'temperature': 0.0},
      'shortest': 1,
      'max_new_tokens': longest,
      'max_length': 256,
      'batch_size': 8,
      'sweep': {'batch_size': (1, 4, 8, 16)},
      'repeats': repeats,
      'seed': 0,
      'columns': (
        *('batch_size', 'way', 'block_efficiency'),
        *('padded', 'refilled', 'over_padded', 'over_padded_error'),
        *('over_plain', 'over_plain_error', 'tokens', 'differ'),
      ),
    }
  )
