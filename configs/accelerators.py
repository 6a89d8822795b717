r"""Round time and memory on TPUs and GPUs, estimated from compiled programs.

JAX_PLATFORMS=cpu python -m experiments.main --config=configs/accelerators.py \
    --workdir=runs/accelerators

Needs `pip install -e '.[accelerators]'`, but no such device; without the
variable, JAX looks for devices where there are none. Targets are in bfloat16,
with full caches of 2048 tokens; others are a checkpoint's, of which only the
architecture is read:

JAX_PLATFORMS=cpu python -m experiments.main --config=configs/accelerators.py \
    --config.plan=true --config.targets="('DIRECTORY',)" --workdir=runs/plan

`plan` looks for the fewest devices of each kind on which a way fits, as a mesh
along 'model'. `over_least` is what a round reads and writes over one read of
the weights and caches of each of its model calls, `round_ms` what that takes at
the device's bandwidth. Of speed, what is predicted is for chains that accept
each token with the chance `acceptance`, or for ways whose block efficiency is
in `measured.files`: for `:heads`, those of SmolLM2's heads (the results of
configs/benchmark/heads.py and trees.py). Beside a target of 7B at batch 1, the
best head is predicted to be 2.12 times as fast as plain decoding on a v5e, with
a tree of 59 nodes, and 1.66 times on an H100, with one of 25: there, the scores
of attention are written and read again, which counts as memory's traffic,
though a large L2 may hold them.

On a machine with such a device, without the variable, `--config.run=true` also
measures a round there, with random weights, and the copies of an array beside
it: `predicted_over_measured` is `round_ms` over `measured_ms`, `share_of_copy`
the share of the copies' bandwidth at which the bytes of a round move.
`projected_speed_up` takes the round times as measured and the acceptance as
assumed: no text was decoded. In a workdir where the compiler has been asked
already, rounds are only measured.
`:run` is what was measured on an H100. `:rounds` measures and traces rounds
without asking a compiler for their bytes.

`kernels`, `conditionals` and `inner_loops` are what a round launches, which no
count of bytes contains. `:launches` has them for slices of a 7B target, of two
and of four layers, and of both what a layer adds: `kernels_per_layer`.
"""

import ml_collections

from configs.benchmark import heads as benchmark
from configs.benchmark import trees
from configs.train import drafters
from configs.train import target as mini
from configs.train import tokenizer
from specjax import registry

_LLAMA = {
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
# Targets, as their makers publish them; `mini` comes with specjax.
_SHAPES = {
  'llama_7b': _LLAMA,
  'llama_13b': {
    **_LLAMA,
    'num_layers': 40,
    'd_model': 5120,
    'num_heads': 40,
    'num_kv_heads': 40,
    'd_ff': 13824,
  },
  'llama_70b': {
    **_LLAMA,
    'num_layers': 80,
    'd_model': 8192,
    'num_heads': 64,
    'num_kv_heads': 8,
    'd_ff': 28672,
  },
  'gemma_2b': {
    'vocab_size': 256000,
    'num_layers': 18,
    'd_model': 2048,
    'num_heads': 8,
    'num_kv_heads': 1,
    'head_dim': 256,
    'd_ff': 16384,
    'activation': 'gelu_tanh',
    'norm_unit_offset': True,
    'scale_embeddings': True,
    'max_length': 8192,
  },
  'smollm2': {
    'vocab_size': 49152,
    'num_layers': 30,
    'd_model': 576,
    'num_heads': 9,
    'num_kv_heads': 3,
    'head_dim': 64,
    'd_ff': 1536,
    'max_length': 8192,
  },
  'mini': {
    'vocab_size': tokenizer.get_config().vocab_size,
    **mini.get_config().models.target,
  },
}
# The first layers of a target: all others are like them.
_SLICES = {
  f'llama_7b_{num_layers}_layers': {**_LLAMA, 'num_layers': num_layers}
  for num_layers in (2, 4)
}
# Drafters: a model of 160 million parameters, one of mini's for small targets,
# and heads whose vocabulary is the same share of a target's as of SmolLM2's.
_DRAFTER = {
  'num_layers': 12,
  'd_model': 768,
  'num_heads': 12,
  'num_kv_heads': 12,
  'head_dim': 64,
  'd_ff': 2048,
  'tie_embeddings': False,
}
_SMALL = drafters.get_config().models.medium.to_dict()
_HEADS = {
  kind: {'kind': kind, 'head_size': 5200}
  for kind in ('eagle', 'eagle3', 'medusa')
}
# Kinds of kernels, of which a trace has the times.
_TRACED = 'product', 'reduction', 'copy', 'host', 'other'
# Of each argument: targets, devices, rows, and ways to decode.
_TABLES = {
  'drafter': {
    'targets': ('llama_7b',),
    'devices': ('v5e:1x1', 'v5e:2x4', 'v6e:1x1', 'h100'),
    'batch_sizes': (1, 8, 32),
    'ways': ('none', 'draft:4', 'draft:4/block', 'draft:8x4/otm'),
  },
  'models': {
    'targets': tuple(_SHAPES),
    'devices': ('v5p:1x1x1', 'h100'),
    'batch_sizes': (8,),
    'ways': ('none', 'draft:4'),
    'plan': True,
  },
  'heads': {
    'targets': ('llama_7b',),
    'devices': ('v5e:1x1', 'h100'),
    'batch_sizes': (1,),
    'ways': ('none', *benchmark.OF_HEADS, *trees.WAYS),
    'sampling': {'temperature': 0.0},
    'acceptance': 0.0,
    'drafters': {'others': _HEADS},
  },
  'launches': {
    'targets': tuple(_SLICES),
    'devices': ('v5e:1x1', 'h100'),
    'batch_sizes': (1,),
    'ways': (
      'none',
      'draft:4',
      'feature_head(eagle):4',
      'dynamic_tree(eagle, num_nodes=25, depth=4)',
      'draft:8x4/otm',
      {
        'bandit': 'ucb_spec',
        'arms': ('draft:4', 'feature_head(eagle):4', 'none'),
      },
    ),
    'drafters': {
      'others': {
        'draft': {**_DRAFTER, 'num_layers': 1},
        'eagle': _HEADS['eagle'],
      }
    },
  },
  'run': {
    'targets': ('llama_7b',),
    'devices': ('h100',),
    'batch_sizes': (1, 8),
    'ways': ('none', 'draft:4'),
    'run': True,
  },
  # What the half hour measures.
  'rounds': {
    'targets': ('llama_7b',),
    'devices': ('h100',),
    'batch_sizes': (1,),
    'ways': (
      'none',
      'draft:4',
      'feature_head(eagle):5',
      'dynamic_tree(eagle, num_nodes=25, depth=5)',
      'draft:8x4/kseq',
      'draft:8x8/otm',
    ),
    'drafters': {
      'mini': {'draft': _SMALL, 'eagle': {'kind': 'eagle', 'head_size': 512}},
      'others': {'draft': _DRAFTER, 'eagle': _HEADS['eagle']},
    },
    'compile': False,
    'run': True,
    'trace': True,
  },
}
# Columns of one table alone; rows of all tables have them.
_SHOWN = {
  'launches': ('kernels', 'kernels_per_layer', 'conditionals', 'inner_loops'),
}
_MEASURED = {
  'heads': (
    'docs/results/data/benchmark/heads.json',
    'docs/results/data/benchmark/trees.json',
  ),
}

_TINY = {
  'num_layers': 1,
  'd_model': 16,
  'num_heads': 2,
  'num_kv_heads': 1,
  'head_dim': 8,
  'd_ff': 16,
}
VARIANTS = tuple(_TABLES)
SMOKE = {
  'devices': ('cpu',),
  'targets': ('tiny',),
  'shapes': {'tiny': {'vocab_size': 64, **_TINY}},
  'drafters': {'others': {'draft': _TINY}},
  'ways': ('none', 'draft:2'),
  'max_length': 64,
  'plan': True,
  'run': True,
  'copied_megabytes': 1,
  'measured': {'files': (), 'rows': ()},
}


def get_config(table='drafter'):
  """Returns the config of a table: a key of `_TABLES`."""
  own = registry.lookup(_TABLES, 'table', table)
  return ml_collections.ConfigDict(
    {
      'experiment': 'accelerators',
      # Along 'model', by default all devices that 'data' leaves.
      'mesh': {
        'data': 1,
        'model': ml_collections.config_dict.placeholder(int),
        'split_drafters': True,
      },
      'plan': False,
      'compile': True,  # Whether the compiler is asked.
      # Also on the devices that are there, with random weights.
      'run': False,
      'trace': False,  # Whether what runs is traced, too.
      'rounds': 32,
      'repeats': 5,
      # Size of the array that is copied, to compare a round's bandwidth with
      # that of a copy. It should not fit into the device's caches.
      'copied_megabytes': 256,
      # `targets` are of `shapes`, or paths of checkpoints.
      'shapes': {**_SHAPES, **_SLICES},
      'drafters': {
        'smollm2': {'draft': _SMALL},
        'mini': {'draft': _SMALL},
        'others': {'draft': _DRAFTER},
      },
      'max_length': 2048,
      'sampling': {'temperature': 1.0},
      'acceptance': 0.7,  # That is assumed; 0 is unknown.
      # Results with a block efficiency for each way, and which rows of them.
      'measured': {
        'files': _MEASURED.get(table, ()),
        'rows': (
          ('sampling.temperature', 0.0),
          ('prompts', 'eval'),
          ('domain', 'all'),
        ),
      },
      'columns': (
        'target',
        'device',
        'mesh',
        'batch_size',
        'way',
        'fits',
        'lacking_gigabytes',
        'needs',
        'peak_gigabytes',
        'gigabytes',
        'over_least',
        *_SHOWN.get(table, ()),
        'collectives',
        'collective_megabytes',
        'round_ms',
        'least_gigabytes',
        'measured_ms',
        'copy_gigabytes_per_second',
        'predicted_over_measured',
        'share_of_copy',
        'launched',
        'busy_ms',
        *(f'{kind}_ms' for kind in _TRACED),
        'block_efficiency',
        'speed_up',
        'projected_speed_up',
      ),
      **own,
    }
  )
