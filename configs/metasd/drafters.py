r"""Specialised drafters and what chooses among them: MetaSD's main tables.

python -m experiments.main --config=configs/metasd/drafters.py \
    --config.data_dir=DATA --workdir=runs/metasd_drafters

Tables 3 and 7 in domain, 6 and 12 in other words, 6 out of domain; Tables 14
and 15 with --config.temperature=0.7 and 1.
"""

import ml_collections

DOMAINS = ('code', 'translation', 'summarization', 'qa', 'math')
ARMS = tuple((domain, 5) for domain in DOMAINS)


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'bandits',
      'family': 'mini/specialists',
      'data_dir': '',
      'prompts_per_domain': 24,
      'sets': {
        'in domain': {'domains': DOMAINS},
        'in other words': {'domains': DOMAINS, 'rephrase': True},
        'out of domain': {'domains': ('instruct', 'lm', 'shakespeare')},
      },
      'prompts_file': '',
      'datastore': '',
      'arms': ARMS,
      'others': (
        ('all', 5),  # One size fits all.
        ('prompt_lookup', 5),
        ('suffix', 5),  # What followed the same n-gram before.
        (DOMAINS, 5),  # Draft-all: one tree of everyone's drafts.
      ),
      'bandits': (
        'uniform',
        'exp3:gamma=0.4/block_divergence',
        'sequential_halving/block_divergence',
        'petc:budget=15/block_divergence',
        'ucb1:beta=0.01/block_divergence',
        'ucb1:beta=0.01/block_divergence+32',  # Learns from the prompt, too.
        'ucb1:beta=0.01/block_efficiency',
        'discounted_ucb:beta=0.01/block_divergence',
        'sliding_window_ucb:beta=0.01/block_divergence',
        'hedge/block_divergence',
        'hedge/block_divergence+32',
      ),
      'reward': 'block_divergence',
      'router': True,
      'router_prompts': 512,
      'carry_over': False,
      'max_new_tokens': 128,
      'max_length': 512,
      'temperature': 0.0,
      'seed': 0,
    }
  )
