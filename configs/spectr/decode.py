r"""Several drafts a round: SpecTr's Tables 1 and 4, with newer rules beside.

python -m experiments.main --config=configs/spectr/decode.py \
    --workdir=runs/spectr_decode

Block efficiency of 8 drafted tokens, mean and standard error:

drafts, rule  small        medium       large
1 maximal     2.31 ± 0.04  2.93 ± 0.05  3.53 ± 0.06
1 block       2.65 ± 0.05  3.55 ± 0.06  4.25 ± 0.09
8 kseq        3.11 ± 0.04  3.98 ± 0.06  4.53 ± 0.07
8 otm         3.31 ± 0.05  4.00 ± 0.06  4.70 ± 0.07

On two cores of a CPU a round of many drafts costs more than it saves: see
`configs/spectr/latency.py`.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'multidraft',
      'family': 'mini',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts_per_domain': 20,
      'drafters': (),  # All of them.
      'draft_lengths': (4, 8),
      'chain_verifiers': ('maximal', 'block'),
      'num_drafts': (2, 4, 8),
      'verifiers': ('kseq', 'otm'),
      'max_new_tokens': 64,
      'max_length': 256,
      'batch_size': 1,
      'temperature': 1.0,
      'num_seeds': 3,
      'seed': 0,
    }
  )
