r"""Acceptance by the number of drafts: SpecTr's Figures 4, 5 and 6.

python -m experiments.main --config=configs/spectr/acceptance.py \
    --workdir=runs/spectr_acceptance

The optimum is compared with the paper's closed form, where there is one. With 4
drafts from Ber(0.25) and a target Ber(0.75), `otm` reaches the optimum of
0.934, `kseq` 0.830 and `multiround` 0.789 (all within 1e-5). `distinct` columns
are for drafts without replacement, whose acceptance is never lower;
`distinct_otm` is at most 0.002 below its optimum.
"""

import ml_collections

_MAX_DRAFTS = 10
_BERNOULLI = 0.25
_BERNOULLI_TARGETS = (0.1, 0.25, 0.75, 1.0)
_UNIFORM = 120
_UNIFORM_TARGETS = (60, 40, 20, 10)

SMOKE = {'max_drafts': 2, 'zipf_size': 50, 'zipf_spreads': (1.0,)}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'spectr.acceptance',
      'max_drafts': _MAX_DRAFTS,
      'bernoulli_draft': _BERNOULLI,
      'bernoulli_targets': _BERNOULLI_TARGETS,
      'uniform_draft': _UNIFORM,
      'uniform_targets': _UNIFORM_TARGETS,
      'zipf_size': 32000,
      'zipf_spreads': (0.5, 1.5),  # Noise of the logits, in nats.
      'seed': 0,
      'columns': (
        'pair',
        'k',
        'optimum',
        'paper',
        'otm',
        'kseq',
        'multiround',
        'distinct_optimum',
        'distinct_otm',
        'distinct_kseq',
        'lower_bound',
        'upper_bound',
        'union_bound',
      ),
      'paper': (
        {
          'source': 'SpecTr, Equation (10), as drawn in Figures 4 and 6',
          'field': 'optimum',
          'rows': tuple(
            {
              'pair': f'draft Ber({_BERNOULLI}), target Ber({target})',
              'k': k,
              'paper': _of_bernoulli(_BERNOULLI, target, k),
            }
            for target in _BERNOULLI_TARGETS
            for k in range(1, _MAX_DRAFTS + 1)
          ),
        },
        {
          'source': 'SpecTr, Appendix B, as drawn in Figure 5',
          'field': 'optimum',
          'rows': tuple(
            {
              'pair': f'draft U({_UNIFORM}), target U({target})',
              'k': k,
              'paper': 1 - (1 - target / _UNIFORM) ** k,
            }
            for target in _UNIFORM_TARGETS
            for k in range(1, _MAX_DRAFTS + 1)
          ),
        },
      ),
    }
  )


def _of_bernoulli(draft, target, k):
  ones = min(target, 1 - (1 - draft) ** k)
  return ones + min(1 - target, 1 - draft**k)
