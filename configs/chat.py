r"""Chats with SmolLM2 on the terminal, in the colors of its tokens' origins.

python -m specjax.families.fetch smollm2
python -m experiments.main --config=configs/chat.py --workdir=runs/chat

The drafter is SmolLM2's EAGLE head, which drafts only where it is sure, so that
it saves time on a CPU. Answers are printed while they are decoded, followed by
the tokens per target call and per second; the rate begins after the first call,
so that it contains neither compilation nor the prefill. KV caches are kept
between turns. With --config.turns="('Hello!', 'Who are you?')" no input is
needed.
"""

import ml_collections

SMOKE = {'turns': ('What is it?', '/new', 'Count to two.', 'And then?')}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'chat',
      'family': 'smollm2/heads',  # Or another family with a chat template.
      'system': '',  # The system prompt; '' for that of the template.
      'arms': ('feature_head(eagle, stop=unsure(0.7)):3',),
      'bandit': '',  # Selects among several arms.
      'reward': 'emitted',
      'feedback': 'bandit',
      'warm_start': 0,
      'per_row': False,
      # As SmolLM2's authors recommend for a small model.
      'sampling': {'temperature': 0.2, 'top_k': 0, 'top_p': 0.9, 'min_p': 0.0},
      'turns': (),  # The user's messages; if empty, they are typed.
      'max_new_tokens': 256,
      'max_length': 2048,  # Tokens of the whole conversation.
      'seed': 0,
      'columns': (
        'turn',
        'tokens',
        'block_efficiency',
        'tokens_per_second',
      ),
    }
  )
