r"""The exact bias of over-acceptance per token (Yin et al. 2024, Table 1).

python -m experiments.main --config=configs/theory/ledger.py \
    --workdir=runs/theory_ledger

Bias and rejection are closed forms of the draft's and the target's
distributions after each prefix of decoded texts, as if every token had been
drafted and tested. They distinguish OPT and UNO without the noise of win rates;
docs/results/theory.md has the differences for SmolLM2.
"""

from configs.theory import diagnose

VARIANTS = diagnose.VARIANTS
SMOKE = {'epsilons': (0.1, 0.4)}


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  # The texts are decoded by the verifier of `diagnose`.
  config = diagnose.get_config(which)
  config.experiment = 'theory.ledger'
  config.num_seeds = 1
  config.batch_size = min(config.batch_size, 16)
  config.epsilons = (0.01, 0.1, 0.2, 0.4, 0.8)
  config.pivot = {
    'down': ('method', 'epsilon', 'rejection'),
    'across': 'rule',
    'value': 'bias',
  }
  return config
