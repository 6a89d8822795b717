r"""Rejections of runs and their prediction by theory.

python -m experiments.main --config=configs/theory/diagnose.py \
    --workdir=runs/theory_diagnose --config.data_dir=DATA

The prediction is Theorem 1 of Yin et al. (2024), along each run. A row is
flagged if its `seen` rejections differ by more than 3 standard errors from the
predicted ones, which happens in one of 370 correct rows. With
`--config.methods="('small:4/over_acceptance',)"`, most rows are flagged.
"""

import ml_collections

from configs.benchmark import smollm2
from specjax import registry

# By family: drafters, domains of prompts, how many of each, tokens of an answer
# and of all, and the batch size.
_WHICH = {
  'mini': (('large', 'medium', 'small'), (), 20, 48, 144, 64),
  'smollm2': (('small',), smollm2.DOMAINS, 16, 64, 256, 8),
}

VARIANTS = tuple(_WHICH)


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  drafters, domains, prompts_per_domain, *lengths, batch_size = registry.lookup(
    _WHICH, 'family', which
  )
  return ml_collections.ConfigDict(
    {
      'experiment': 'theory.diagnose',
      'family': which,
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {'domains': domains}},
      'prompts_per_domain': prompts_per_domain,
      # Chains, with a verifier that tests tokens one by one.
      'methods': tuple(f'{name}:4/maximal' for name in drafters),
      'sampling': {'temperature': 1.0},
      'num_seeds': 4,
      'max_new_tokens': lengths[0],
      'max_length': lengths[1],
      'batch_size': batch_size,
      'seed': 0,
    }
  )
