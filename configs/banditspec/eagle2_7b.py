r"""BanditSpec at the paper's scale: 7B and 8B targets with heads of EAGLE-2.

python -m experiments.main --config=configs/banditspec/eagle2_7b.py:llama3 \
    --workdir=runs/banditspec_llama3

Targets are LLaMA3-8B-Instruct and, with `:qwen2`, Qwen2-7B-Instruct (Hou et al.
2025, Table 1). An error lists the weights and prompts that are missing, and
where to put them. The paper does not print the temperature, the number of
prompts or the lengths of answers. Debug Bench and CodeEditorBench are not
among the prompt sets; add their files to `prompts`.
"""

from configs.banditspec import drafters
from specjax import registry

_TARGETS = {
  'llama3': {
    'target': 'meta-llama/Meta-Llama-3-8B-Instruct',
    'head': 'yuhuili/EAGLE-LLaMA3-Instruct-8B',
  },
  'qwen2': {
    'target': 'Qwen/Qwen2-7B-Instruct',
    'head': 'yuhuili/EAGLE-Qwen2-7B-Instruct',
  },
}
_SPEC_BENCH = 'data/spec_bench.jsonl'
_ALPACA = 'data/alpaca.jsonl'

VARIANTS = tuple(_TARGETS)
SMOKE = {'arms': ('prompt_lookup:16', 'suffix:4x8'), 'repeats': 0}


def get_config(target='llama3'):
  """Returns the config for 'llama3' or 'qwen2'."""
  names = registry.lookup(_TARGETS, 'target', target)
  family, head = f'weights/{target}', f'weights/{target}_eagle'
  config = drafters.family_config(
    family, ('dynamic_tree(eagle, num_nodes=63)',), ''
  )
  config.drafters = {'eagle': head}
  config.prompts = {
    'spec_bench': {'source': _SPEC_BENCH},
    'alpaca': {'source': _ALPACA, 'limit': 500},
  }
  config.prompts_per_domain = 500
  config.max_new_tokens, config.max_length = 512, 4096
  config.dtype = 'bfloat16'
  config.paper = ()
  config.sources = (
    (family, f'https://huggingface.co/{names["target"]}'),
    (head, f'https://huggingface.co/{names["head"]}'),
    (_SPEC_BENCH, 'question.jsonl of https://github.com/hemingkx/Spec-Bench'),
    (_ALPACA, 'https://huggingface.co/datasets/tatsu-lab/alpaca, as JSONL'),
  )
  return config
