r"""Drafts only where the head is sure, with SmolLM2 at temperature 1.

python -m experiments.main \
    --config=configs/benchmark/stops_sampled.py:DATA/spec_bench.jsonl \
    --config.data_dir=DATA --workdir=runs/stops_sampled

The methods with the head are those of configs/benchmark/stops.py.
"""

from configs.benchmark import stops

VARIANTS = stops.VARIANTS


def get_config(file=''):
  """Returns the config; `file` is a JSONL file with further prompts, or ''."""
  config = stops.get_config(file)
  config.sampling.temperature = 1.0
  config.methods = stops.HEAD, stops.SURE, stops.LOOKUP_OR_SURE
  # Sampled texts of different methods differ.
  config.columns = tuple(
    name for name in config.columns if name != 'same_outputs'
  )
  return config
