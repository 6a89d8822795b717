r"""SmolLM2: every way to decode, and the same weights in other implementations.

pip install -e '.[benchmark,llama_cpp]'
python -m experiments.main --config=configs/benchmark/smollm2.py \
    --config.data_dir=DATA --workdir=runs/smollm2

One prompt at a time; all rows are of one process, in which everyone takes turns
on each prompt. llama.cpp reads the file's own weights of 4 bits, all others the
same in float32. Without data there are 8 prompts of each domain. Where GCC 12
compiles llama.cpp for AMX, its programs crash: CMAKE_ARGS=-DGGML_NATIVE=OFF.
"""

import ml_collections

_ARMS = ('prompt_lookup:8', 'suffix:8')


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
          'domains': (
            'code',
            'instruct',
            'math',
            'qa',
            'summarization',
            'translation',
          ),
          'limit': 64,
        }
      },
      'prompts_per_domain': 11,
      'peers': ('transformers', 'llama.cpp'),
      'ways': ('none', *arms),
      'arms': arms,  # Of the bandits.
      'bandits': (
        'ucb1',
        {'bandit': 'hedge', 'catch_up': 'always', 'label': 'hedge'},
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
        'way',
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
