r"""Regret with costs of switching: MetaSD's equation (49) and Theorem 8.

python -m experiments.main --config=configs/metasd/switching.py \
    --workdir=runs/metasd_switching

A drafter that is selected again reads the tokens that it missed, at a cost in
rounds per token. Bandits that never stop exploring then have linear regret;
PETC, which explores for O(ln B) rounds and commits, has a regret of O(ln B): 62
± 8 rounds for 20,000 tokens at 0.01 rounds per token, where ucb1 loses 987 ± 1.
"""

import ml_collections

SMOKE = {'lengths': (20, 40)}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'metasd.switching',
      'acceptances': (0.8, 0.4, 0.5, 0.6, 0.55),  # Simulated arms.
      'draft_length': 5,
      'bandits': (
        'petc',
        'sequential_halving(period=4)',
        'ucb1',
        'ucb1(beta=0.1)',
        'ucb_spec',
        'exp3(gamma=0.1)',
        'thompson',
        'uniform',
      ),
      'exploration': 16.0,  # PETC's rounds, over ln(tokens).
      'token_costs': (0.0, 0.001, 0.01),  # In rounds.
      'lengths': (200, 600, 2000, 6000, 20000),  # Tokens.
      'runs': 500,
      'seed': 0,
      'columns': (
        'token_cost',
        'bandit',
        'tokens',
        'regret',
        'lost_rounds',
        'missed_tokens',
      ),
    }
  )
