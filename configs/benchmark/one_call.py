r"""Compares a head of one call per draft with drafters of one call per token.

python -m experiments.main --config=configs/train/responses.py:smollm2 \
    --config.temperatures='(0.0,)' --config.max_prompt_tokens=128 \
    --config.data_dir=DATA --workdir=runs/smollm2_greedy
python -m experiments.main --config=configs/train/heads/dflash.py \
    --config.responses="('runs/smollm2_greedy/responses.npz',)" \
    --config.num_texts.all=300 --config.max_tokens=409600 \
    --config.heads.dflash.training.steps=2400 \
    --config.data_dir=DATA --workdir=runs/dflash
python -m experiments.main --config=configs/benchmark/one_call.py \
    --config.data_dir=DATA --workdir=runs/one_call

A block head (DSpark) drafts four tokens in one call, SmolLM2's EAGLE head and
its distilled drafter in four. Prompts are decoded one at a time, interleaved
with plain decoding. After this short training, the block head reaches 0.74 ±
0.03 of the speed of plain decoding on two cores at temperature 0, the EAGLE
head 0.89 ± 0.05.
"""

from configs.benchmark import heads
from configs.benchmark import lookup_or

_PATH = 'runs/dflash/dflash.safetensors'


def get_config():
  config = heads.get_config()
  config.drafters = {'dflash': _PATH}
  config.sources = ((_PATH, 'configs/train/heads/dflash.py'),)
  config.prompts = lookup_or.get_config().prompts
  config.prompts_per_domain = 2
  config.methods = 'feature_head(eagle):4', 'block_head(dflash):4', 'small:4'
  config.columns = (
    'sampling.temperature',
    'domain',
    'method',
    'block_efficiency',
    'block_efficiency_error',
    'first_acceptance',
    'first_acceptance_error',
    'acceptance_by_depth',
    'speed_up',
    'speed_up_error',
  )
  return config
