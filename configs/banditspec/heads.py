r"""BanditSpec's Table 1 with the paper's arms: Eagle-2, PLD, Rest, Suffix Tree.

python -m experiments.main --config=configs/train/datastore.py:smollm2 \
    --config.data_dir=DATA --workdir=runs/smollm2_datastore
STORE=runs/smollm2_datastore/datastore.safetensors
python -m experiments.main \
    --config=configs/banditspec/heads.py:$STORE,DATA/spec_bench.jsonl \
    --config.data_dir=DATA --workdir=runs/banditspec_heads

This is drafters.py with SmolLM2 and its head `eagle`, whose trees have 64
tokens with the root, as in the paper. Prompts and answers have at most 2048
tokens.

With two prompts per domain, Eagle-2 emits 2.18 ± 0.18 tokens per round on
Spec-Bench, prompt lookup 1.51 ± 0.16, UCBSpec 1.90 ± 0.18 and hedge 2.34 ±
0.21. On two cores, all of them are slower than plain decoding: a call with 64
tokens costs more than it saves.
"""

from configs.banditspec import drafters

VARIANTS = ('',)  # Arguments are files.


def get_config(files=''):
  """Returns the config; see drafters.py for `files`."""
  config = drafters.family_config(
    'smollm2/heads', ('dynamic_tree(eagle, num_nodes=63)',), files
  )
  config.max_new_tokens = 64
  config.max_length = 2048
  return config
