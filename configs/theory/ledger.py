r"""What over-acceptance costs at each token: beside Yin et al. (2024), Table 1.

python -m experiments.main --config=configs/theory/ledger.py \
    --workdir=runs/theory_ledger

Bias and rejection are closed forms of draft and target behind each prefix of
decoded texts, as if every token had been drafted and tested. So OPT and UNO are
told apart without noise, where win rates show nothing: drafted by `small`, the
tokens of UNO are 0.028 ± 0.003 further from the target's distribution than
OPT's at epsilon 0.01, 0.001 at 0.2 and 0.0001 or less from 0.4 on. The paper's
code for UNO is twice to four times as far.
"""

from configs.theory import diagnose

VARIANTS = diagnose.VARIANTS
SMOKE = {'epsilons': (0.1, 0.4)}


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  # The texts are those that the verifier lets pass.
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
