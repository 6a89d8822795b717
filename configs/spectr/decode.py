r"""Several drafts a round: SpecTr's Tables 1 and 4, with newer rules beside.

python -m experiments.main --config=configs/spectr/decode.py \
    --workdir=runs/spectr_decode

Block efficiency grows with the number of drafts, and with the verifier from
`kseq` to `otm`; `block` beats the plain walk of one chain. On CPU a round of
many drafts costs more than it saves: see `configs/spectr/latency.py`.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'multidraft',
      'family': 'mini',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts_per_domain': 20,  # Of data_dir.
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
