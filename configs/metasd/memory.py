r"""The memory of five heads relative to one: MetaEagle.

python -m experiments.main --config=configs/metasd/memory.py \
    --config.data_dir=DATA --workdir=runs/metasd_memory

All heads share the target's hidden states and embedding, and one part of its
output head; each has its own layer and KV cache. The paper has 19 GB and 17 GB
(1.118) with a 7B target; here, the compiled loop takes 1.117 times the memory
of that with one head, and 1.113 times with a batch size of eight.
"""

from configs.banditspec import memory
from configs.metasd import heads


def get_config():
  config = memory.get_config()
  config.family = 'smollm2/heads'
  config.arms = heads.ARMS
  config.methods = ()
  config.bandits = ({'bandit': 'ucb1(beta=0.01)', 'label': _UCB},)
  config.baseline = _BASELINE
  config.repeats = 0  # The paper has no bandwidth.
  config.columns = tuple(
    name for name in config.columns if name != 'relative_bandwidth'
  )
  config.paper = (_MEMORY,)
  return config


_BASELINE, _UCB = heads.ARMS[0], 'ucb1 over five heads'
_MEMORY = {
  'source': 'MetaSD, Section 5 and Appendix I.3, memory over that of one head',
  'field': 'relative_loop',
  'rows': (
    {'batch_size': 1, 'method': _BASELINE, 'paper': 1.0},
    {'batch_size': 1, 'method': _UCB, 'paper': 19 / 17},
  ),
  'claims': (
    (
      f'{_UCB} over {_BASELINE}, 1',
      {'batch_size': 1, 'method': _UCB},
      {'batch_size': 1, 'method': _BASELINE},
    ),
  ),
}
