r"""SmolLM2: all methods, and other implementations with the same weights.

pip install -e '.[llama-cpp,oracles]'
python -m experiments.main --config=configs/benchmark/smollm2.py \
    --config.data_dir=DATA --workdir=runs/smollm2

Prompts are decoded one at a time in one process, in which all implementations
are interleaved. llama.cpp uses the file's 4-bit weights, all others the same
weights in float32. Without data there are 8 prompts per domain.

On two cores and at temperature 0, specjax is 1.26 ± 0.02 times as fast as
`generate` of transformers, without drafts. These results are older than the
cheaper calls for a few tokens (docs/models.md): no method is faster than plain
decoding beyond the errors, and `suffix` reaches 1.06 ± 0.03 of its speed. The
distilled drafter emits 1.72 ± 0.04 tokens per call. The bandit with the reward
of tokens per second reaches 0.99 ± 0.03 of the speed of plain decoding, and
0.86 ± 0.02 at temperature 1.
llama.cpp reads a sixth of the bytes. If GCC 12 compiles llama.cpp for AMX, its
programs crash; use CMAKE_ARGS=-DGGML_NATIVE=OFF.
"""

import ml_collections

from experiments.common import sweeps

# Domains of requests that are typical for a model of this size.
DOMAINS = (
  'code',
  'instruct',
  'math',
  'qa',
  'summarization',
  'translation',
)
_ARMS = ('prompt_lookup:8', 'suffix:8')

VARIANTS = ('small:4', '')  # Arguments are arms with drafters.
SMOKE = {'batch_size': 1, 'peers': ('transformers',)}


def get_config(drafted='small:4'):
  """Returns the config.

  Args:
    drafted: arms with the family's drafters, joined by commas.
  """
  arms = (*filter(None, drafted.split(',')), *_ARMS)
  return ml_collections.ConfigDict(
    {
      'experiment': 'benchmark.peer',
      'family': 'smollm2',
      'data_dir': '',  # Its eval files; the shipped prompts by default.
      'prompts': {
        'eval': {
          'domains': DOMAINS,
          'limit': 64,
        }
      },
      'prompts_per_domain': 11,
      'peers': ('transformers', 'llama.cpp'),
      'methods': ('none', *arms),
      'arms': arms,  # Arms of the bandits.
      'bandits': (
        'ucb1',
        {'bandit': 'hedge', 'feedback': 'full', 'label': 'hedge'},
        {
          'bandit': 'ucb1',
          'reward': 'throughput',
          'arms': ('none', *arms),
        },
      ),
      'cost_rounds': 16,  # Rounds that are timed together, for 'throughput'.
      'cost_repeats': 3,  # How often they are timed.
      'repeats': 3,
      'batch_size': 1,
      'sampling': {'temperature': 0.0},
      'sweep': sweeps.product({'sampling.temperature': (0.0, 1.0)}),
      'max_new_tokens': 64,
      'max_length': 256,  # Prompts have at most 192 tokens.
      'seed': 0,
      'columns': (
        'sampling.temperature',
        'implementation',
        'method',
        'block_efficiency',
        'block_efficiency_error',
        'tokens_per_second',
        'tokens_per_second_error',
        'speed_up',
        'speed_up_error',
        'specjax_ratio',
        'specjax_ratio_error',
        'same_outputs',
        'decoded',
      ),
    }
  )
