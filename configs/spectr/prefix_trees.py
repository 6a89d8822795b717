r"""Prefix trees against independent drafts: SpecTr's Appendix D, Algorithm 4.

python -m experiments.main --config=configs/spectr/prefix_trees.py \
    --workdir=runs/spectr_prefix_trees

The tree 4.2.1.1 has 8 leaves and 28 nodes, as many leaves as 8 chains of 4 and
as many nodes as 7 chains; 2.1.2.2 has 8 leaves and 16 nodes, as many as 4
chains; 2.2.2.1 has 8 leaves and 22 nodes, between 5 and 6 chains. In the paper,
trees did not beat as many independent drafts. With `kseq_distinct` and
`otm_distinct`, siblings are drawn without replacement, so that all siblings are
different tokens. With mini, such trees emit no more than others. With
replacement, a token that is drawn twice has the children of both nodes.
"""

import ml_collections

from configs.benchmark import smollm2
from specjax import registry

_CHAINS = (4, 5, 6, 7, 8)
_TREES = {'4.2.1.1': 28, '2.2.2.1': 22, '2.1.2.2': 16}  # Nodes; 8 leaves.
_VERIFIERS = ('kseq', 'otm', 'block')
# Only for trees, as chains share only the root.
_DISTINCT = ('kseq_distinct', 'otm_distinct')
_VARIANTS = {
  'mini': {
    'drafter': 'medium',
    'domains': (),
    'fields': {'prompts_per_domain': 20, 'num_seeds': 3},
  },
  'smollm2': {
    'drafter': 'small',
    'domains': smollm2.DOMAINS,
    'fields': {'prompts_per_domain': 8, 'num_seeds': 1},
  },
}

VARIANTS = tuple(_VARIANTS)


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  variant = registry.lookup(_VARIANTS, 'family', which)
  drafter = variant['drafter']
  return ml_collections.ConfigDict(
    {
      'experiment': 'compare',
      'family': which,
      'data_dir': '',
      'prompts': {'all': {'domains': variant['domains']}},
      **variant['fields'],
      'methods': tuple(
        {
          'arm': _arm(drafter, tree, verifier),
          'columns': _columns(verifier, tree, nodes),
        }
        for verifier in (*_VERIFIERS, *_DISTINCT)
        for tree, nodes in (_TREES | _chains()).items()
        if verifier not in _DISTINCT or tree in _TREES
      ),
      'sampling': {'temperature': 1.0},
      'max_new_tokens': 64,
      'max_length': 256,
      'batch_size': 8,
      'seed': 0,
      'columns': (
        'method',
        'nodes',
        'block_efficiency',
        'block_efficiency_error',
      ),
      'paper': (
        {
          'source': 'SpecTr, Appendix D',
          'field': 'block_efficiency',
          'rows': (),
          'claims': tuple(
            (
              f'tree {tree} over 8 drafts, {verifier}: at most',
              {'method': _arm(drafter, tree, verifier)},
              {'method': _arm(drafter, '8x4', verifier)},
              1.0,
            )
            for verifier in _VERIFIERS
            for tree in _TREES
          ),
        },
        {
          'source': 'the same trees',
          'field': 'block_efficiency',
          'rows': (),
          'claims': tuple(
            (
              f'tree {tree}, {better} over {other}',
              _columns(better, tree, nodes),
              _columns(other, tree, nodes),
              None,  # Not in the paper.
            )
            for better, other in (
              *zip(_DISTINCT, ('kseq', 'otm')),
              ('block', 'otm'),
            )
            for tree, nodes in _TREES.items()
          ),
        },
      ),
    }
  )


def _arm(drafter, tree, verifier):
  """Returns an arm whose siblings are i.i.d. or distinct."""
  if verifier in _DISTINCT:
    drafter = f'{drafter}(distinct=True)'
  return f'{drafter}:{tree}/{verifier}'


def _chains():
  return {f'{num}x4': 4 * num for num in _CHAINS}


def _columns(verifier, tree, nodes):
  shape = 'chains of 4' if 'x' in tree else 'prefix trees of 8 leaves'
  return {'verifier': verifier, 'shape': shape, 'nodes': nodes}
