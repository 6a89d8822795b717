r"""Emitted tokens per target call of heads that differ in the training loss.

python -m experiments.main --config=configs/benchmark/losses.py \
    --config.data_dir=DATA --workdir=runs/losses_compared

The heads are those of configs/train/heads/losses.py. Chains of four tokens, on
held-out prompts, at temperature 0 and 1; `eagle` is the head that all others
start from. According to Samarin et al. (2026, arXiv:2602.23881), heads that are
trained for the acceptance rate emit more tokens than those trained with KL.
"""

import ml_collections

from configs.benchmark import smollm2
from configs.train.heads import losses
from experiments.common import sweeps
from specjax import registry

_DOMAINS = {'smollm2': smollm2.DOMAINS, 'mini': ()}
LENGTH = 4
TEMPERATURE, _TEMPERATURES = 'sampling.temperature', (0.0, 1.0)

VARIANTS = tuple(_DOMAINS)


def get_config(family='smollm2'):
  """Returns the config for 'smollm2' or 'mini'."""
  domains = registry.lookup(_DOMAINS, 'family', family)
  heads = {name: f'runs/losses/{name}.safetensors' for name in losses.LOSSES}
  return ml_collections.ConfigDict(
    {
      'experiment': 'compare',
      'family': f'{family}/heads',
      'data_dir': 'data',
      'drafters': heads,
      'sources': tuple(
        (path, 'configs/train/heads/losses.py') for path in heads.values()
      ),
      'prompts': {'eval': {'domains': domains}},
      'prompts_per_domain': 8,
      'methods': tuple(
        {
          'arm': f'feature_head({name}):{LENGTH}',
          'label': name,
          'columns': {'loss': name},
        }
        for name in ('eagle', *losses.LOSSES)
      ),
      'sampling': {'temperature': 1.0},
      'sweep': sweeps.product({TEMPERATURE: _TEMPERATURES}),
      'num_seeds': 1,
      'max_new_tokens': 64,
      'max_length': 320,
      'batch_size': 8,
      'seed': 0,
      'columns': (
        TEMPERATURE,
        'method',
        'block_efficiency',
        'acceptance_by_depth',
      ),
      'paper': (
        {
          'source': 'each loss over KL',
          'field': 'block_efficiency',
          'rows': (),
          'claims': tuple(
            (
              f'{name} over kl, temperature {temperature:g}',
              {'loss': name, TEMPERATURE: temperature},
              {'loss': 'kl', TEMPERATURE: temperature},
              None,  # Not in the paper.
            )
            for temperature in _TEMPERATURES
            for name in losses.LOSSES
            if name != 'kl'
          ),
        },
      ),
    }
  )
