r"""Heads on SmolLM2's hidden states: EAGLE, EAGLE-2, EAGLE-3 and Medusa.

python -m experiments.main \
    --config=configs/benchmark/heads.py:DATA/spec_bench.jsonl \
    --config.data_dir=DATA --workdir=runs/heads

Prompts are decoded one at a time, interleaved with plain decoding.
`acceptance_by_depth` is the share of draft tokens that are accepted if their
predecessors are, and `same_outputs` the number of greedy answers that equal
those of plain decoding. The heads, trained by configs/train/heads/, are
drafters of the family, which may also be a folder of yours. The static and the
dynamic tree have 25 nodes each.

At temperature 0, the dynamic tree emits 2.32 ± 0.09 tokens per round (eval),
the static one 2.14 ± 0.09 and a chain of five 1.65 ± 0.05. At temperature 1,
where its nodes are chosen rather than sampled, the dynamic tree emits fewer
tokens than the static one (1.63 and 1.94). In these results, which are older
than the cheaper calls for a few tokens, a call with 26 tokens on two cores
costs more than it saves: over all domains, every head is slower than plain
decoding (a chain of five reaches 0.82 ± 0.03 of its speed; in mathematics 1.09
± 0.04), and prompt lookup is 1.23 ± 0.06 times as fast.
configs/benchmark/stops.py has later timings.
"""

import pathlib

import ml_collections

from experiments.common import sweeps

# Methods with heads whose names are those of their kinds.
HEADS = (
  'medusa(medusa):4',
  'feature_head(eagle):5',
  'feature_head(eagle):eagle',
  'dynamic_tree(eagle, num_nodes=25, depth=5)',
  'feature_head(eagle3):5',
  'dynamic_tree(eagle3, num_nodes=25, depth=5)',
)

VARIANTS = ('',)  # The argument is a file.


def get_config(file=''):
  """Returns the config.

  Args:
    file: a JSONL file with further prompts, or ''.
  """
  file_prompts = {pathlib.Path(file).stem: {'source': file}} if file else {}
  return ml_collections.ConfigDict(
    {
      'experiment': 'compare',
      'family': 'smollm2/heads',
      'data_dir': '',  # Its eval files; the shipped prompts by default.
      'prompts': {'eval': {}, **file_prompts},
      'prompts_per_domain': 8,
      'by_domain': True,
      'methods': (
        'none',
        'prompt_lookup:5',
        'small:4',
        *HEADS,
      ),
      'batch_size': 1,
      'repeats': 1,
      'sampling': {'temperature': 0.0},
      'sweep': sweeps.product({'sampling.temperature': (0.0, 1.0)}),
      'max_new_tokens': 64,
      'max_length': 512,
      'seed': 0,
      'columns': (
        'sampling.temperature',
        'prompts',
        'domain',
        'method',
        'block_efficiency',
        'block_efficiency_error',
        'acceptance_by_depth',
        'tokens_per_second',
        'speed_up',
        'speed_up_error',
        'same_outputs',
      ),
    }
  )
