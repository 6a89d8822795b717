r"""Speed with several drafts per round: SpecTr's Table 1.

python -m experiments.main --config=configs/spectr/speed.py \
    --workdir=runs/spectr_speed

Tokens per second over plain decoding at batch size 1, from interleaved timings.
Mini's drafter (0.7M) and target (8.2M), or SmolLM2 and its drafter, correspond
to PALM-2-Gecko and Bison. On two CPU cores and with mini, a round with 8 drafts
of 8 tokens costs more than it saves: it reaches 0.37 ± 0.04 times the speed of
plain decoding, and one draft of 4 tokens 1.03 ± 0.04 times; see
`configs/spectr/latency.py`.
"""

import ml_collections

from configs.benchmark import smollm2
from experiments.common import paper
from specjax import registry

_VERIFIERS = {  # By the number of drafts.
  1: ('maximal', 'block'),
  **dict.fromkeys((2, 4, 8), ('kseq', 'otm', 'block')),
}
_VARIANTS = {
  'mini': {'drafter': 'medium', 'domains': (), 'repeats': 3},
  'smollm2': {'drafter': 'small', 'domains': smollm2.DOMAINS, 'repeats': 1},
}

VARIANTS = tuple(_VARIANTS)


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  variant = registry.lookup(_VARIANTS, 'family', which)
  numbers = paper.read('spectr/table_1')[['length', 'drafts', 'speed_up']]
  return ml_collections.ConfigDict(
    {
      'experiment': 'compare',
      'family': which,
      'data_dir': '',
      'prompts': {'all': {'domains': variant['domains']}},
      'prompts_per_domain': 2,
      'methods': tuple(
        {
          'arm': f'{variant["drafter"]}:{drafts}x{length}/{verifier}',
          'columns': _columns(length, drafts, verifier),
        }
        for length in (4, 8)
        for drafts, verifiers in _VERIFIERS.items()
        for verifier in verifiers
      ),
      'sampling': {'temperature': 1.0},
      'max_new_tokens': 64,
      'max_length': 256,
      'batch_size': 1,
      'repeats': variant['repeats'],
      'seed': 0,
      'columns': (
        'length',
        'drafts',
        'verifier',
        'block_efficiency',
        'speed_up',
        'paper',
      ),
      'paper': (
        paper.table(
          'SpecTr, Table 1',
          'speed_up',
          numbers.assign(
            verifier=numbers['drafts'].map({1: 'maximal', 8: 'kseq'})
          ),
          number='speed_up',
          claims=tuple(
            (
              f'8 drafts of {length} over 1, tokens per second',
              _columns(length, 8, 'kseq'),
              _columns(length, 1, 'maximal'),
            )
            for length in (4, 8)
          ),
        ),
      ),
    }
  )


def _columns(length, drafts, verifier):
  return {'length': length, 'verifier': verifier, 'drafts': drafts}
