r"""`lookup_or`, the head and bandits over them at temperature 1.

python -m experiments.main --config=configs/benchmark/lookup_or_sampled.py \
    --config.data_dir=DATA --workdir=runs/lookup_or_sampled

The methods are those of configs/benchmark/lookup_or.py. A looked-up token is
accepted with the probability that the target gives it, so lookups pay less than
at temperature 0.
"""

from configs.benchmark import lookup_or

VARIANTS = lookup_or.VARIANTS


def get_config(file=''):
  """Returns the config; `file` is a JSONL file with further prompts, or ''."""
  config = at_temperature_1(lookup_or.get_config(file))
  config.prompts_per_domain = 4
  return config


def at_temperature_1(config):
  """Changes a config for temperature 0, and returns it."""
  config.sampling.temperature = 1.0
  # Sampled texts of different methods differ.
  config.columns = tuple(
    name for name in config.columns if name != 'same_outputs'
  )
  return config
