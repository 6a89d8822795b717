r"""Round time and memory on TPUs and GPUs, estimated from compiled programs.

JAX_PLATFORMS=cpu python -m experiments.main --config=configs/accelerators.py \
    --workdir=runs/accelerators

This needs `pip install -e '.[accelerators]'` but no such device; without the
variable, JAX looks for devices. Targets are in bfloat16, with full KV caches of
2048 tokens. A target may also be a checkpoint, whose architecture is read:

JAX_PLATFORMS=cpu python -m experiments.main --config=configs/accelerators.py \
    --config.find_mesh=true --config.targets="('DIRECTORY',)" \
    --workdir=runs/find_mesh

`find_mesh` finds the smallest mesh along 'model' on which a method fits.
`over_least` is the bytes that a round reads and writes, over one read of the
weights and caches per model call, and `round_ms` the time that this takes at
the device's bandwidth. Speed-ups are predicted for chains that accept each
token with the probability `acceptance`, or for methods whose block efficiency
is in `measured.files`: with `:heads`, the results of configs/benchmark/heads.py
and trees.py. For a target of 7B at batch size 1, the best head is predicted to
be 2.12 times as fast as plain decoding on a v5e, with a tree of 59 nodes, and
1.66 times on an H100, with 25 nodes: there, attention scores are written and
read again, which counts as memory traffic although a large L2 cache may hold
them.

On a machine with such a device, without the variable, `--config.run=true` also
measures rounds with random weights, and copies of an array.
`predicted_over_measured` is `round_ms` over `measured_ms`, and `share_of_copy`
is the bandwidth of a round over that of the copies. `projected_speed_up` uses
measured round times and the assumed acceptance; no text is decoded. In a
workdir with compiled results, rounds are only measured.
`:run` was measured on an H100. `:rounds` measures and traces rounds without
compiling them for their bytes.

`kernels`, `conditionals` and `inner_loops` count the launches of a round, which
bytes do not show. `:launches` counts them for a 7B target with two and with
four layers; the difference gives `kernels_per_layer`.

`:half_hour` is a suite that spends 25 minutes of a device on measurements that
need one; docs/accelerators.md has its command and its parts.
"""

import ml_collections

from configs.benchmark import heads as benchmark
from configs.benchmark import trees
from configs.train import drafters
from configs.train import target as mini
from configs.train import tokenizer
from configs.train.heads import dflash
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
# Targets with published shapes; `mini` comes with specjax.
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
# The first layers of a target; all further layers are equal.
_SLICES = {
  f'llama_7b_{num_layers}_layers': {**_LLAMA, 'num_layers': num_layers}
  for num_layers in (2, 4)
}
# Drafters: a model with 160 million parameters, one of mini's for small
# targets, and heads whose vocabulary is the same share of the target's as for
# SmolLM2.
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
  for kind in ('eagle', 'eagle3', 'medusa', 'dflash')
}
_ROUND_HEADS = 'eagle', 'dflash'
# Kinds of kernels in a trace.
_TRACED = 'product', 'reduction', 'copy', 'host', 'other'
# Targets, devices, batch sizes and methods, by the argument of the config.
_TABLES = {
  'drafter': {
    'targets': ('llama_7b',),
    'devices': ('v5e:1x1', 'v5e:2x4', 'v6e:1x1', 'h100'),
    'batch_sizes': (1, 8, 32),
    'methods': ('none', 'draft:4', 'draft:4/block', 'draft:8x4/otm'),
  },
  'models': {
    'targets': tuple(_SHAPES),
    'devices': ('v5p:1x1x1', 'h100'),
    'batch_sizes': (8,),
    'methods': ('none', 'draft:4'),
    'find_mesh': True,
  },
  'heads': {
    'targets': ('llama_7b',),
    'devices': ('v5e:1x1', 'h100'),
    'batch_sizes': (1,),
    'methods': ('none', *benchmark.HEADS, *trees.METHODS),
    'sampling': {'temperature': 0.0},
    'acceptance': 0.0,
    'drafters': {'others': _HEADS},
  },
  'launches': {
    'targets': tuple(_SLICES),
    'devices': ('v5e:1x1', 'h100'),
    'batch_sizes': (1,),
    'methods': (
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
    'methods': ('none', 'draft:4'),
    'run': True,
  },
  # The rounds that `half_hour` measures.
  'rounds': {
    'targets': ('llama_7b',),
    'devices': ('h100',),
    'batch_sizes': (1,),
    'methods': (
      'none',
      'draft:4',
      'feature_head(eagle):5',
      'block_head(dflash):5',
      'dynamic_tree(eagle, num_nodes=25, depth=5)',
      'draft:8x4/kseq',
      'draft:8x8/otm',
    ),
    'drafters': {
      'mini': {
        'draft': _SMALL,
        **{kind: {'kind': kind, 'head_size': 512} for kind in _ROUND_HEADS},
      },
      'others': {
        'draft': _DRAFTER,
        **{kind: _HEADS[kind] for kind in _ROUND_HEADS},
      },
    },
    'compile': False,
    'run': True,
    'trace': True,
    'columns': (
      'target',
      'device',
      'batch_size',
      'method',
      'fits',
      'least_gigabytes',
      'measured_ms',
      'copy_gigabytes_per_second',
      'share_of_copy',
      'launched',
      'busy_ms',
      *(f'{kind}_ms' for kind in _TRACED),
    ),
  },
}
# Columns that only one table shows; the rows of all tables have them.
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
VARIANTS = *_TABLES, 'half_hour'
SMOKE = {
  'devices': ('cpu',),
  'targets': ('tiny',),
  'shapes': {'tiny': {'vocab_size': 64, **_TINY}},
  'drafters': {'others': {'draft': _TINY}},
  'methods': ('none', 'draft:2'),
  'max_length': 64,
  'find_mesh': True,
  'run': True,
  'copied_megabytes': 1,
  'measured': {'files': (), 'rows': ()},
}
# Smoke runs of arguments with other fields.
SMOKES = {'half_hour': {'device': 'cpu', 'family': 'mini/heads', 'small': True}}


def get_config(table='drafter'):
  """Returns the config of a table: a key of `_TABLES`, or 'half_hour'."""
  if table == 'half_hour':
    return _half_hour()
  fields = registry.lookup(_TABLES | {'half_hour': None}, 'table', table)
  return ml_collections.ConfigDict(
    {
      'experiment': 'accelerators.estimates',
      # 'model' defaults to all devices that 'data' does not use.
      'mesh': {
        'data': 1,
        'model': ml_collections.config_dict.placeholder(int),
        'split_drafters': True,
      },
      'find_mesh': False,
      'compile': True,  # Whether programs are compiled.
      # Whether rounds are measured on real devices, with random weights.
      'run': False,
      'trace': False,  # Whether rounds are profiled.
      'rounds': 32,
      'repeats': 5,
      # The size of the array that is copied, to compare a round's bandwidth
      # with that of a copy. It should not fit into the device's caches.
      'copied_megabytes': 256,
      # `targets` are names in `shapes`, or paths of checkpoints.
      'shapes': {**_SHAPES, **_SLICES},
      'drafters': {
        'smollm2': {'draft': _SMALL},
        'mini': {'draft': _SMALL},
        'others': {'draft': _DRAFTER},
      },
      'max_length': 2048,
      'sampling': {'temperature': 1.0},
      'acceptance': 0.7,  # The assumed acceptance rate; 0 if unknown.
      # Results with the block efficiency of each method, and their rows.
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
        'method',
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
        'measured_ms',
        'predicted_over_measured',
        'share_of_copy',
        'block_efficiency',
        'speed_up',
        'projected_speed_up',
      ),
      **fields,
    }
  )


def _half_hour():
  """Returns the suite, whose parts are ordered by value."""
  return ml_collections.ConfigDict(
    {
      'experiment': 'timed_suite',
      'data_dir': '',
      'family': 'smollm2/heads',
      'device': 'h100',  # Or another available device, such as v5e:1x1.
      'small': False,  # Whether to rehearse all parts at small sizes.
      # Minutes at the end of each part in which only tables are written.
      'reserve': 0.5,
      # Environment variables of every part. By default, JAX leaves a quarter of
      # a GPU's memory free.
      'environment': {'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.92'},
      'parts': {  # They run in the order of their names.
        'a1_rounds': _rounds(3.0),
        'a2_rounds_graphs': _rounds(3.0, command_buffers=True),
        'a3_batches': _rounds(1.5, **_BATCHES),
        'a4_batches_graphs': _rounds(1.0, command_buffers=True, **_BATCHES),
        'b_smollm2': _decoded(3.5, methods=_smollm2_methods()),
        'c_responses': _RESPONSES,
        'd1_drafter': _DRAFTER_TRAINING,
        'd2_heads': _HEAD_TRAINING,
        'e_smollm2': _decoded(
          2.0, drafters=_NEW_DRAFTERS, methods=_smollm2_methods('new_')
        ),
      },
    }
  )


_SMOLLM2 = {'data_dir': 'DATA', 'family': 'FAMILY'}
# Larger batches of rounds, with shorter KV caches.
_BATCHES = {'batch_sizes': (8, 32), 'max_length': 1024}
# The drafters that the parts d1 and d2 train.
_NEW_DRAFTERS = {
  'new_small': 'WORKDIR/d1_drafter/small.safetensors',
  **{
    f'new_{name}': f'WORKDIR/d2_heads/{name}.safetensors'
    for name in ('eagle', 'eagle3', 'medusa', 'dflash')
  },
}
_RESPONSES = {
  'minutes': 6.0,
  'config': 'configs/train/responses.py:smollm2',
  'fields': {
    **_SMOLLM2,
    'dtype': 'bfloat16',
    'batch_size': 256,
    'max_new_tokens': 256,
    'temperatures': (0.0, 1.0, 0.7, 1.0),
    'as_text': False,
  },
  'small': {
    'dtype': 'float32',
    'num_responses': {'all': 64},
    'batch_size': 8,
    'max_new_tokens': 24,
    'temperatures': (0.0, 1.0),
    'num_parts': 4,
  },
  'command_buffers': False,
}
_TRAINING_TEXT = {
  **_SMOLLM2,
  'responses': ('WORKDIR/c_responses/responses.npz',),
  'num_texts': {'all': 0},
  'teacher_batch_size': 32,
}
_SMALL_TRAINING = {
  'training': {'steps': 8, 'warmup_steps': 2, 'batch_size': 2},
  'teacher_batch_size': 4,
  'row_length': 128,
}
_DRAFTER_TRAINING = {
  'minutes': 1.5,
  'config': 'configs/train/distill.py',
  'fields': {
    **_TRAINING_TEXT,
    'max_tokens': 6000000,
    'training': {'batch_size': 16, 'steps': 1500},
  },
  'small': {
    'students': {'small': {'layers': (0, 3), 'head_size': 512}},
    **_SMALL_TRAINING,
  },
  'command_buffers': False,
}
_HEAD_TRAINING = {
  'minutes': 3.0,
  'config': 'configs/train/heads/all.py',
  'fields': {
    **_TRAINING_TEXT,
    'max_tokens': 4000000,  # Each token takes 4.6 kB on disk.
    'training': {'batch_size': 16, 'steps': 1500},
    'heads': {
      'eagle': {'training': {'steps': 750}},
      'eagle3': {'training': {'steps': 750}},
      'dflash': {'training': {'steps': 1500}},
    },
  },
  'small': {
    **_SMALL_TRAINING,
    'heads': {
      'eagle_first': {'options': {'head_size': 512}},
      'eagle': {'training': {'steps': 4}},
      'eagle3_first': {'options': {'head_size': 512}},
      'eagle3': {'training': {'steps': 4}},
      'medusa': {'options': {'head_size': 512}},
      'dflash': {
        'options': {
          'head_size': 512,
          'mask_token': dflash.MASK_TOKENS['mini'],
        },
        'training': {'steps': 8},
      },
    },
  },
  'command_buffers': False,
}


def _rounds(minutes, *, command_buffers=False, **fields):
  """Returns a part that measures and traces rounds of a 7B target.

  Args:
    minutes: the time limit.
    command_buffers: whether XLA runs whole decodes as CUDA graphs.
    **fields: values of further fields of the config.
  """
  return {
    'minutes': minutes,
    'config': 'configs/accelerators.py:rounds',
    'fields': {'devices': ('DEVICE',), **fields},
    'small': {
      'targets': ('mini',),
      'max_length': 256,
      'rounds': 4,
      'repeats': 2,
      'copied_megabytes': 16,
    },
    'command_buffers': command_buffers,
  }


def _decoded(minutes, **fields):
  """Returns a part that times SmolLM2's drafters against plain decoding.

  Args:
    minutes: the time limit.
    **fields: values of further fields of the config.
  """
  return {
    'minutes': minutes,
    'config': 'configs/benchmark/heads.py',
    'fields': {
      **_SMOLLM2,
      'dtype': 'bfloat16',
      'sweep': {'batch_size': (1, 8, 32)},
      'prompts_per_domain': 3,
      'by_domain': False,
      **fields,
    },
    'small': {
      'dtype': 'float32',
      'sweep': {'batch_size': (1, 2)},
      'prompts_per_domain': 1,
      'max_new_tokens': 8,
    },
    'command_buffers': False,
  }


def _smollm2_methods(prefix=''):
  """Returns methods with SmolLM2's drafters, whose names have a prefix."""
  eagle, eagle3 = f'{prefix}eagle', f'{prefix}eagle3'
  # The family has no block head before one is trained.
  block_head = f'block_head({prefix}dflash):4'
  others = (block_head,) if prefix else ('prompt_lookup:8',)
  return (
    'none',
    f'{prefix}small:4',
    f'feature_head({eagle}):5',
    f'dynamic_tree({eagle}, num_nodes=25, depth=5)',
    f'feature_head({eagle3}):5',
    f'dynamic_tree({eagle3}, num_nodes=25, depth=5)',
    f'medusa({prefix}medusa):4',
    *others,
  )
