r"""Specialised drafters and what chooses among them: MetaSD's main tables.

python -m experiments.main --config=configs/metasd/drafters.py \
    --config.data_dir=DATA --workdir=runs/metasd_drafters

Tables 3 and 7 in domain, 6 and 12 in other words, 6 out of domain; Tables 14
and 15 with --config.temperature=0.7 and 1 (in domain, at 0.7 and at 1: all 5
3.15 ± 0.08 and 2.97 ± 0.06; ucb1, BD 3.15 ± 0.08 and 2.93 ± 0.07; draft-all
3.44 ± 0.07 and 3.05 ± 0.04; oracle 3.60 ± 0.09 and 3.29 ± 0.06; at 1 ucb1, BD,
+32 3.15 ± 0.07). Block efficiency of all domains of a set at temperature 0 with
its standard error; by domain in the README:

                    in domain        in other words   out of domain
all 5               3.56 ± 0.16      2.85 ± 0.13      2.22 ± 0.09
draft-all 5         4.03 ± 0.16      3.53 ± 0.10      2.91 ± 0.10
router              3.87 ± 0.15      2.53 ± 0.12      1.99 ± 0.08
uniform             2.23 ± 0.09      2.10 ± 0.06      1.95 ± 0.06
sequential_halving  3.10 ± 0.12      2.48 ± 0.11      2.13 ± 0.07
ucb1, BE            2.96 ± 0.15      2.48 ± 0.10      2.08 ± 0.08
ucb1, BD            3.29 ± 0.13      2.61 ± 0.12      2.14 ± 0.08
ucb1, BD, +32       3.87 ± 0.15      2.56 ± 0.12      2.18 ± 0.08
hedge, BD           3.59 ± 0.14      2.81 ± 0.11      2.15 ± 0.08
oracle              3.88 ± 0.15      3.02 ± 0.12      2.36 ± 0.09
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
        'ucb1:beta=0.01/accepted_fraction',
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
