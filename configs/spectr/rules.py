r"""Tokens per target call of all lossless rules, with one drafter.

python -m experiments.main --config=configs/spectr/rules.py \
    --workdir=runs/spectr_rules

One chain of four tokens, or four of them. Their siblings, the first tokens of
the four chains, are drawn i.i.d., without replacement (`distinct`), or are the
first four by the noise that the target samples with (`shared noise`).
`ensemble` is multi-round rejection in which each sibling has a distribution of
its own. `theory/chains.py` has the exact expectations of most of these rules,
on Markov models.
"""

import ml_collections

from configs.benchmark import smollm2
from specjax import registry

_VARIANTS = {
  'mini': {
    'drafter': 'medium',
    'domains': (),
    'fields': {'prompts_per_domain': 20, 'num_seeds': 1},
  },
  'smollm2': {
    'drafter': 'small',
    'domains': smollm2.DOMAINS,
    'fields': {'prompts_per_domain': 8, 'num_seeds': 1},
  },
}
_LENGTH, _DRAFTS = 4, 4
_IID, _DISTINCT, _SHARED = 'i.i.d.', 'distinct', 'shared noise'
# Drafter options and sampling, by how siblings are drafted.
_SIBLINGS = {
  _IID: ('', {}),
  _DISTINCT: ('(distinct=True)', {}),
  _SHARED: ('', {'shared_noise': True}),
}
_RULES = (
  *((1, _IID, rule) for rule in ('maximal', 'block', 'traversal')),
  (1, _SHARED, 'greedy'),
  *(
    (_DRAFTS, _IID, rule)
    for rule in ('maximal', 'batch', 'multiround', 'kseq', 'otm')
  ),
  *((_DRAFTS, _IID, rule) for rule in ('block', 'traversal')),
  *(
    (_DRAFTS, _DISTINCT, rule)
    for rule in ('ensemble', 'kseq_distinct', 'otm_distinct', 'traversal')
  ),
  (_DRAFTS, _SHARED, 'greedy'),
)
_DEFAULT = {1: 'maximal', _DRAFTS: 'otm'}

VARIANTS = tuple(_VARIANTS)


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  variant = registry.lookup(_VARIANTS, 'family', which)
  return ml_collections.ConfigDict(
    {
      'experiment': 'compare',
      'family': which,
      'data_dir': '',
      'prompts': {'all': {'domains': variant['domains']}},
      **variant['fields'],
      'methods': tuple(_method(variant['drafter'], *rule) for rule in _RULES),
      'sampling': {'temperature': 1.0},
      'max_new_tokens': 64,
      'max_length': 256,
      'batch_size': 8,
      'seed': 0,
      'columns': ('drafts', 'siblings', 'verifier', 'block_efficiency'),
      'paper': (
        {
          'source': 'each rule over the default for i.i.d. siblings',
          'field': 'block_efficiency',
          'rows': (),
          'claims': tuple(
            (
              f'{drafts} drafts, {siblings}: {rule} over {_DEFAULT[drafts]}',
              _columns(drafts, siblings, rule),
              _columns(drafts, _IID, _DEFAULT[drafts]),
              None,  # Not in the paper.
            )
            for drafts, siblings, rule in _RULES
            if (siblings, rule) != (_IID, _DEFAULT[drafts])
          ),
        },
      ),
    }
  )


def _method(drafter, drafts, siblings, rule):
  options, sampling = _SIBLINGS[siblings]
  arm = f'{drafter}{options}:{drafts}x{_LENGTH}/{rule}'
  return {
    'arm': arm,
    'label': f'{arm}, {siblings}',
    'columns': _columns(drafts, siblings, rule),
    'sampling': sampling,
  }


def _columns(drafts, siblings, rule):
  return {'drafts': drafts, 'siblings': siblings, 'verifier': rule}
