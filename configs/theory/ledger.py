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

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'theory.ledger',
      'family': 'mini',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {}},
      'prompts_per_domain': 20,
      # Chains of a model; the texts are those that the verifier lets pass.
      'ways': tuple(f'{name}:4/maximal' for name in _MODELS),
      'epsilons': (0.01, 0.1, 0.2, 0.4, 0.8),
      'sampling': {'temperature': 1.0},
      'max_new_tokens': 48,
      'max_length': 144,
      'batch_size': 16,
      'seed': 0,
      'pivot': {
        'down': ('way', 'epsilon', 'rejection'),
        'across': 'rule',
        'value': 'bias',
      },
    }
  )


_MODELS = ('large', 'medium', 'small')
