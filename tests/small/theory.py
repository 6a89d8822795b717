"""The theory paper's configs, made small."""

from tests import small

_WHICH = 'mini', 'smollm2'

VARIANTS = {
  'theory/all': ('full', 'small'),
  'theory/diagnose': _WHICH,
  'theory/ledger': _WHICH,
  'theory/practice': _WHICH,
  'theory/trees': _WHICH,
  'theory/winrate': _WHICH,
}
CHANGES = {
  'theory/all': small.SUITE,
  'theory/chains': {
    'vocab_size': 2,
    'length': 2,
    'max_chains': 2,
    'max_best_chains': 1,
    'num_models': 2,
  },
  'theory/diagnose': {'ways': ('small:2/maximal',)},
  'theory/ledger': {'ways': ('small:2/maximal',), 'epsilons': (0.1, 0.4)},
  'theory/pareto': {'epsilons': (0.1,), 'positions': (1,)},
  'theory/practice': {
    'ways': tuple(
      {'arm': f'small:{k}x2', 'columns': {'drafts': k, 'length': 2}}
      for k in (1, 2)
    ),
    'from_length': 2,
  },
  'theory/rejections': {
    'horizons': (3,),
    'decoded_horizons': (3,),
    'simulated_runs': 4,
    'decoded_runs': 5,
    'num_drafts': (1, 2),
    'simulated_drafts': (2,),
    'decoded_drafts': (2,),
  },
  'theory/trees': {
    'family': '{family}/plain/heads',
    'factors': (2, 1),
    'depth': 2,
    'nums_nodes': (2, 3),
    'prompts_per_domain': 2,
  },
  'theory/winrate': {
    'ways': (
      {'arm': 'none', 'label': 'target'},
      {'arm': 'none', 'label': 'small', 'target': 'small'},
      *(
        {
          'arm': f'small:2/over_acceptance(0.1, {replacement})',
          'label': label,
          'columns': {'epsilon': 0.1},
        }
        for label, replacement in (('OPT', 'residual'), ('UNO', 'target'))
      ),
    ),
    'comparisons': (('target', 'small'), ('OPT', 'UNO')),
  },
}
FILES = {'theory/all': ('docs/results/theory.md',)}
NO_ROWS = FILES
