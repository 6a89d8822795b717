r"""SmolLM2: every method, and the same weights in other implementations.

pip install -e '.[benchmark,llama_cpp]'
python -m experiments.main --config=configs/benchmark/smollm2.py \
    --config.data_dir=DATA --workdir=runs/smollm2

One prompt at a time; all rows are of one process, in which everyone takes turns
on each prompt. llama.cpp reads the file's own weights of 4 bits, all others the
same in float32. Without data there are 8 prompts of each domain.

On two cores, specjax decodes plainly 1.26 ± 0.02 times as fast as `generate` of
transformers at temperature 0. A call of five tokens takes 1.4 times as long as
one of a single token (`rounds.py:smollm2`), and of nine more: of all methods
only `suffix` is faster than plain decoding, 1.06 ± 0.03 times, and at
temperature 1 none is. The distilled drafter emits 1.72 ± 0.04 tokens a call.
The bandit that is rewarded with tokens per second loses 1% and 14%. llama.cpp
reads a sixth of the bytes. Where GCC 12 compiles llama.cpp for AMX, its
programs crash: CMAKE_ARGS=-DGGML_NATIVE=OFF.
"""

import ml_collections

# What a user asks a model of this size.
DOMAINS = (
  *('code', 'instruct', 'math'),
  *('qa', 'summarization', 'translation'),
)
_ARMS = ('prompt_lookup:8', 'suffix:8')

VARIANTS = ('small:4', '')  # Or other arms of drafters.
SMOKE = {'batch_size': 1, 'peers': ('transformers',)}


def get_config(drafted='small:4'):
  """Returns the config.

  Args:
    drafted: arms of the family's drafters, joined by commas, as 'small:4'.
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
      'arms': arms,  # Of the bandits.
      'bandits': (
        'ucb1',
        {'bandit': 'hedge', 'feedback': 'full', 'label': 'hedge'},
        {
          'bandit': 'ucb1',
          'reward': 'throughput',
          'arms': ('none', *arms),
        },
      ),
      'cost_rounds': 16,  # Of each arm, for the reward 'throughput',
      'cost_repeats': 3,  # which are timed so often.
      'repeats': 3,
      'batch_size': 1,
      'sampling': {'temperature': 0.0},
      'sweep': "{'sampling.temperature': (0.0, 1.0)}",
      'max_new_tokens': 64,
      'max_length': 256,  # So that prompts have at most 192 tokens.
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
