r"""Decodes your prompts with the mini family, or another one.

python -m experiments.main --config=configs/decode.py --workdir=runs/decode \
    --config.prompt="what is the capital of france?"
python -m experiments.main --config=configs/decode.py --workdir=runs/decode \
    --config.prompts_file=prompts.jsonl --config.batch_size=8
python -m experiments.main --config=configs/decode.py --workdir=runs/chat \
    --config.family=smollm2 --config.arms="('prompt_lookup:8',)" \
    --config.system="Answer briefly." --config.prompt="Who was Ada Lovelace?"
python -m experiments.main --config=configs/decode.py --workdir=runs/pair \
    --config.family=TARGET --config.drafters="{'draft': 'DRAFT'}" \
    --config.arms="('draft:4',)" --config.prompt="Who was Ada Lovelace?"

Prompts of a file are decoded in batches whose rows are refilled: where one is
done, the next prompt takes its place. One that is too long is reported and left
out. Everything that decodes can be asked for: arms such as 'medium:8x4/otm',
'prompt_lookup:16' and 'small:5~opt(0.2)', and bandits over several. A family
with a chat template reads prompts through it, unless --config.chat=false.
"""

import ml_collections

SMOKE = {'prompt': 'what is it?'}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'decode',
      'family': 'mini',  # Or a folder with the same files, or of HuggingFace.
      'arms': ('medium:4',),  # 'none' decodes plainly.
      'bandit': '',  # Who chooses, if there are several.
      'reward': 'emitted',  # What it learns from.
      'feedback': 'bandit',  # Or 'full': it learns from all arms at once.
      'warm_start': 0,  # Tokens of the prompt that it learns from.
      'per_row': False,  # A bandit for each row.
      'sampling': {'temperature': 1.0, 'top_k': 0, 'top_p': 1.0, 'min_p': 0.0},
      'prompt': '',
      'prompts_file': '',
      'batch_size': 1,
      'max_new_tokens': 128,
      'max_length': 512,
      'seed': 0,
      'columns': ('domain', 'method', 'tokens', 'block_efficiency'),
    }
  )
