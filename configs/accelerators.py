r"""What a round takes on a TPU and on a GPU, by their compilers: nothing runs.

JAX_PLATFORMS=cpu python -m experiments.main --config=configs/accelerators.py \
    --workdir=runs/accelerators

Needs `pip install -e '.[accelerators]'`, but no such device; without the
variable, JAX looks for devices where there are none. A target of 7B in
bfloat16, with full caches of 2048 tokens, at batch size 1. `over_least` is what
a round reads and writes over one read of the weights and caches of each of its
model calls, `round_ms` what that takes at the device's bandwidth. Speed-ups are
predicted where `measured.file` has block efficiencies of the ways, such as
those of SmolLM2's drafters (results of configs/benchmark/heads.py).
"""

import ml_collections

from configs.benchmark import heads as benchmark

_LLAMA_7B = {
  'vocab_size': 32000,
  'num_layers': 32,
  'd_model': 4096,
  'num_heads': 32,
  'num_kv_heads': 32,
  'head_dim': 128,
  'd_ff': 11008,
  'tie_embeddings': False,
  'max_length': 4096,
}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'accelerators',
      'devices': ('v5e:1x1', 'h100'),
      'models': {
        'target': _LLAMA_7B,
        # Their vocabulary is the same share of the target's as of SmolLM2's.
        'eagle': {'kind': 'eagle', 'head_size': 5200},
        'eagle3': {'kind': 'eagle3', 'head_size': 5200},
        'medusa': {'kind': 'medusa', 'head_size': 5200},
      },
      'ways': (
        'none',
        *benchmark.OF_HEADS,
      ),
      'batch_size': 1,
      'max_length': 2048,
      'sampling': {'temperature': 0.0},
      # Results with a block efficiency for each way, and which rows of them.
      'measured': {
        'file': '',
        'rows': (
          ('sampling.temperature', 0.0),
          ('prompts', 'eval'),
          ('domain', 'all'),
        ),
      },
      'columns': (
        'device',
        'way',
        'fits',
        'peak_gigabytes',
        'gigabytes',
        'over_least',
        'round_ms',
        'block_efficiency',
        'speed_up',
      ),
    }
  )
