r"""Decodes your prompts with the mini family, or another one.

python -m experiments.main --config=configs/decode.py --workdir=runs/decode \
    --config.prompt="Write a Python function to calculate the factorial of a \
number."
python -m experiments.main --config=configs/decode.py --workdir=runs/prompts \
    --config.prompts_file=prompts.jsonl --config.batch_size=8
python -m experiments.main --config=configs/decode.py --workdir=runs/system \
    --config.family=smollm2 --config.arms="('prompt_lookup:8',)" \
    --config.system="Answer briefly." --config.prompt="Who was Ada Lovelace?"
python -m experiments.main --config=configs/decode.py --workdir=runs/pair \
    --config.family=TARGET --config.drafters="{'draft': 'DRAFT'}" \
    --config.arms="('draft:4',)" --config.prompt="Who was Ada Lovelace?"

The prompts of a file are decoded by continuous batching. Prompts that are too
long are reported and left out. Methods are arms such as 'medium:8x4/otm',
'prompt_lookup:16' and 'small:5~opt(0.2)', and bandits over several arms; but
for `goodput` and the reward `throughput`, use configs/compare.py, which
measures the costs that they need. A family with a chat template uses it for
prompts, unless --config.chat=false.
"""

import ml_collections

SMOKE = {'prompt': 'what is it?'}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'decode',
      'family': 'mini',  # Or a folder of a family or of HuggingFace.
      'arms': ('medium:4',),  # 'none' is plain decoding.
      'bandit': '',  # Selects among several arms.
      'reward': 'emitted',  # The reward of the bandit.
      'feedback': 'bandit',  # Or 'full': the rewards of all arms.
      'warm_start': 0,  # Prompt tokens that the bandit learns from.
      'per_row': False,  # Whether each row has its own bandit.
      'sampling': {'temperature': 0.0, 'top_k': 0, 'top_p': 1.0, 'min_p': 0.0},
      'prompt': '',
      'prompts_file': '',
      'batch_size': 1,
      'max_new_tokens': 128,
      'max_length': 512,
      'seed': 0,
      'columns': ('domain', 'method', 'tokens', 'block_efficiency'),
    }
  )
