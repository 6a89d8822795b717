r"""BanditSpec's Table 1 with its own arms: Eagle-2, PLD, Rest and Suffix Tree.

python -m experiments.main --config=configs/train/datastore.py \
    --config.family=smollm2 --config.data_dir=DATA \
    --workdir=runs/smollm2_datastore
STORE=runs/smollm2_datastore/datastore.safetensors
python -m experiments.main \
    --config=configs/banditspec/heads.py:$STORE,DATA/spec_bench.jsonl \
    --config.data_dir=DATA --workdir=runs/banditspec_heads

As drafters.py, with SmolLM2 and its head `eagle`, of whose trees the target
reads 64 tokens, as in the paper. Prompts and answers have 2048 tokens at most.

Of two prompts a domain, Eagle-2 has 2.18 ± 0.18 tokens a round on Spec-Bench,
prompt lookup 1.51 ± 0.16, UCBSpec 1.90 ± 0.18 and hedge 2.34 ± 0.21. On two
cores all of these are slower than plain decoding there: a call for 64 tokens
costs more than it saves.
"""

from configs.banditspec import drafters

VARIANTS = ('',)  # Or files.


def get_config(files=''):
  """Returns the config; `files` are as in drafters.py."""
  config = drafters.of_family(
    'smollm2/heads', ('dynamic_tree(eagle, num_nodes=63)',), files
  )
  config.max_new_tokens = 64
  config.max_length = 2048
  return config
