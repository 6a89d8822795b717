r"""Splits the time of a round into draft, target, verification and remainder.

python -m experiments.main --config=configs/benchmark/split.py \
    --workdir=runs/split --config.methods="('none', 'medium:4')"

Answers why a speed-up is smaller than a paper's. A speed-up is block efficiency
(emitted tokens per target call) over the time of a round in rounds of plain
decoding. Where calls are bound by reading weights, a round takes as long as
1 + draft length * size of the draft model / size of the target plain rounds;
here, it takes as long as its parts. All families, methods, prompts and batch
sizes are possible; `configs/benchmark/split.py:smollm2` has the drafters of
SmolLM2.

Parts are timed on the first prompts after prefill, each in a loop of its own.
They are not representative for a drafter that finds nothing there, such as
prompt lookup; its whole rounds are.
"""

import ml_collections

from specjax import registry

_METHODS = {
  'mini': ('none', 'small:2', 'medium:2', 'medium:4'),
  'smollm2': (
    'none',
    'prompt_lookup:4',
    'small:2',
    'feature_head(eagle):2',
    'feature_head(eagle):4',
    'dynamic_tree(eagle, num_nodes=8, depth=3, beam=4)',
  ),
}

VARIANTS = tuple(_METHODS)
SMOKES = {name: {'methods': methods[::2]} for name, methods in _METHODS.items()}
SMOKE = SMOKES['mini']


def get_config(family='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  methods = registry.lookup(_METHODS, 'family', family)
  return ml_collections.ConfigDict(
    {
      'experiment': 'benchmark.split',
      # Or a folder of a family or of HuggingFace.
      'family': 'smollm2/heads' if family == 'smollm2' else family,
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {}},
      'prompts_per_domain': 1,
      'methods': methods,
      'rounds': 32,  # Rounds that are timed together.
      'cost_repeats': 7,  # How often they are timed, interleaved.
      'batch_size': 1,
      'sampling': {'temperature': 1.0},
      'max_new_tokens': 64,
      'max_length': 256,
      'seed': 0,
      'columns': (
        'method',
        'round_ms',
        'draft_ms',
        'target_ms',
        'verification_ms',
        'remainder_ms',
        'plain_rounds',
        'block_efficiency',
        'speed_up',
        'speed_up_if_memory_bound',
      ),
    }
  )
