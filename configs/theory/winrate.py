r"""Decoding-OPT against Decoding-UNO: Yin et al. (2024), Tables 1 and 2.

python -m experiments.main --config=configs/theory/winrate.py \
    --workdir=runs/theory_winrate

The score of a response is its mean log-likelihood per token under the target,
in place of a reward model. At the paper's epsilons, 0.1 and 0.4, few draft
tokens are replaced, so that OPT and UNO differ by less than the noise of so few
prompts; `ledger` has the rules' exact difference. The paper's OPT wins 52.5 to
57.5%; its UNO may be that of the text, which replaces a rejected token by a
sample from the target, or that of the code, which takes a sample from the
draft.
"""

import ml_collections
import pandas as pd

from experiments.common import paper
from experiments.common import results
from specjax import registry

_EPSILONS = (0.01, 0.1, 0.2, 0.4, 0.8)
_RULES = {'OPT': 'residual', 'UNO': 'target', 'UNO, code': 'draft'}
_VARIANTS = {
  'mini': {
    'epsilons': _EPSILONS,
    'fields': {
      'prompts': {'all': {'source': 'family'}},
      'prompts_per_domain': 64,
      'metric': '',
      'num_seeds': 16,  # Responses per prompt and method.
      'max_new_tokens': 24,
      'max_length': 128,
      'batch_size': 64,
    },
  },
  'smollm2': {
    'epsilons': (0.1, 0.4),
    'fields': {
      'prompts': {'all': {'domains': ('qa', 'summarization')}},
      'prompts_per_domain': 16,
      'metric': 'rougeL',  # A further judge of responses.
      'num_seeds': 4,
      'max_new_tokens': 32,
      'max_length': 256,
      'batch_size': 16,
    },
  },
}


def _methods(epsilons):
  """Returns plain decoding with both models, and all rules at all epsilons."""
  return (
    {'arm': 'none', 'label': 'target'},
    {'arm': 'none', 'label': 'small', 'target': 'small'},
    *(
      {
        'arm': f'small:4/over_acceptance({epsilon}, {replacement})',
        'label': rule,
        'columns': {'epsilon': epsilon},
      }
      for epsilon in epsilons
      for rule, replacement in _RULES.items()
    ),
  )


VARIANTS = tuple(_VARIANTS)
SMOKE = {'methods': _methods((0.1,))}


def get_config(which='mini'):
  """Returns the config for 'mini', or for 'smollm2' with a metric."""
  variant = registry.lookup(_VARIANTS, 'family', which)
  return ml_collections.ConfigDict(
    {
      'experiment': 'theory.winrate',
      'family': which,
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      **variant['fields'],
      'methods': _methods(variant['epsilons']),
      'comparisons': (
        ('target', 'small'),
        ('OPT', 'UNO'),
        ('OPT', 'UNO, code'),
      ),
      'sampling': {'temperature': 1.0},
      'seed': 0,
      'columns': (
        'judge',
        'method',
        'against',
        'epsilon',
        'win_rate',
        'paper',
        'tied',
        'gap',
        'score',
        'against_score',
        'rejections',
        'against_rejections',
      ),
      'paper': (
        paper.table(
          'Yin et al. (2024), Tables 1 and 2, RM-Mistral-7B',
          'win_rate',
          _numbers('RM-Mistral-7B'),
        ),
        paper.table(
          'Yin et al. (2024), Tables 1 and 2, GPT-4',
          'win_rate',
          _numbers('GPT-4')[:0],  # A row has one number.
          claims=tuple(_claims('GPT-4')),
        ),
      ),
    }
  )


def _numbers(judge):
  """Returns both tables by one judge; the paper may mean either form of UNO."""
  tables = [
    paper.read('theory/table_2').assign(method='target', against='small'),
    *(
      paper.read('theory/table_1').assign(method='OPT', against=against)
      for against in ('UNO', 'UNO, code')
    ),
  ]
  numbers = pd.concat(tables)
  numbers['number'] /= 100  # From percent.
  return numbers[numbers.pop('judge') == judge]


def _claims(judge):
  for row in results.records(_numbers(judge)):
    rate = row.pop('number')
    yield _claim_text(**row), row, None, rate


def _claim_text(method, against, epsilon=None):
  """Returns the text of a claim."""
  at = '' if epsilon is None else f' at epsilon {epsilon}'
  return f'{method} wins against {against}{at}'
