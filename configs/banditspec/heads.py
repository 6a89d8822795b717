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
"""

from configs.banditspec import drafters


def get_config(files=''):
  """Returns the config; `files` are as in drafters.py."""
  config = drafters.of_family(
    'smollm2/heads', ('dynamic_tree(eagle, num_nodes=63)',), files
  )
  config.max_new_tokens = 64
  config.max_length = 2048
  return config
