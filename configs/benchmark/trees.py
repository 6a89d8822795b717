r"""Further draft sizes for heads.py: one token, and trees with 59 nodes.

python -m experiments.main --config=configs/benchmark/trees.py \
    --config.data_dir=DATA --workdir=runs/trees

There are no timings, and the temperature is 0. If a call with 60 tokens costs
little more than one with a single token, as `configs/accelerators.py:heads`
predicts for a TPU, a larger tree pays off.
"""

from configs.benchmark import heads
from experiments.common import sweeps

METHODS = (
  'feature_head(eagle):1',
  'dynamic_tree(eagle, num_nodes=59, depth=4)',
  'dynamic_tree(eagle, num_nodes=59, depth=6)',
)


def get_config():
  config = heads.get_config()
  config.methods = ('none', *METHODS)
  config.repeats = 0
  config.sweep = sweeps.product({'sampling.temperature': (0.0,)})
  config.columns = (
    'prompts',
    'domain',
    'method',
    'block_efficiency',
    'block_efficiency_error',
    'acceptance_by_depth',
  )
  return config
