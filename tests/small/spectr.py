"""SpecTr's configs, made small."""

from tests import small


def _ways(*verifiers):
  return tuple(
    {
      'arm': f'medium:{drafts}x2/{verifier}',
      'columns': {'length': 2, 'verifier': verifier, 'drafts': drafts},
    }
    for drafts, verifier in enumerate(verifiers, 1)
  )


_WHICH = 'mini', 'smollm2'

VARIANTS = {
  'spectr/all': ('full', 'small'),
  'spectr/decode': _WHICH,
  'spectr/latency': _WHICH,
  'spectr/prefix_trees': _WHICH,
  'spectr/speed': _WHICH,
}
CHANGES = {
  'spectr/all': small.SUITE,
  'spectr/acceptance': {
    'max_drafts': 2,
    'zipf_size': 50,
    'zipf_spreads': (1.0,),
  },
  'spectr/cost': {
    'num_drafts': 2,
    'vocab_sizes': (50,),
    'values_per_repeat': 100,
    'ways': ('medium:2x2/kseq',),
  },
  'spectr/decode': {'ways': _ways('block', 'kseq')},
  'spectr/latency': {'lengths': (2,), 'prefix_length': 4},
  'spectr/prefix_trees': {'ways': ('medium:2.1/kseq', 'medium:2x2/kseq')},
  'spectr/speed': {'ways': _ways('maximal', 'kseq')},
}
FILES = {'spectr/all': ('docs/results/theory.md',)}
NO_ROWS = FILES
