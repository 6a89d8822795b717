r"""Talks with SmolLM2 on the terminal, in the colours of its tokens' origins.

python -m specjax.families.fetch smollm2
python -m experiments.main --config=configs/chat.py --workdir=runs/chat

An answer comes as it is decoded, with the tokens a round and a second behind
it. What the models have read of the conversation they do not read again. With
--config.turns="('Hello!', 'Who are you?')" nothing need be typed.
"""

import ml_collections

SMOKE = {'turns': ('What is it?', '/new', 'Count to two.', 'And then?')}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'chat',
      'family': 'smollm2',  # Or any with a chat template.
      'system': '',  # The system prompt; if empty, the template's.
      'arms': ('prompt_lookup:8',),
      'bandit': '',  # Who chooses, if there are several.
      'reward': 'emitted',
      'feedback': 'bandit',
      'warm_start': 0,
      'per_row': False,
      # As SmolLM2's authors advise: warmer, so small a model rambles.
      'sampling': {'temperature': 0.2, 'top_k': 0, 'top_p': 0.9, 'min_p': 0.0},
      'turns': (),  # What the user says; if empty, what is typed.
      'max_new_tokens': 256,
      'max_length': 2048,  # Tokens of the whole conversation.
      'seed': 0,
      'columns': ('turn', 'tokens', 'tokens_per_round', 'tokens_per_second'),
    }
  )
