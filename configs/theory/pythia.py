r"""Decoding-OPT against Decoding-UNO at the paper's scale: Pythia 2.8B and 70M.

python -m experiments.main --config=configs/theory/pythia.py \
    --workdir=runs/theory_pythia

Models and prompts are those of Yin et al. (2024), Section 4.2 and Appendix G:
200 prompts of AlpacaFarm with 500 responses each. The judge is the target's
likelihood, as in winrate.py, instead of a reward model. An error lists the
weights and prompts that are missing. The paper prints neither the temperature,
nor the draft length, nor the lengths of responses.
"""

from configs.theory import winrate

_TARGET, _DRAFT = 'weights/pythia_2.8b', 'weights/pythia_70m'
_PROMPTS = 'data/alpaca_farm_eval.jsonl'
_HUB = 'https://huggingface.co'

SMOKE = winrate.SMOKE


def get_config():
  config = winrate.get_config()
  config.family = _TARGET
  config.drafters = {'small': _DRAFT}
  config.prompts = {'alpaca_farm': {'source': _PROMPTS, 'limit': 200}}
  config.prompts_per_domain = 200
  config.num_seeds = 500
  config.max_new_tokens, config.max_length = 128, 1024
  config.dtype = 'bfloat16'
  config.sources = (
    (_TARGET, f'{_HUB}/EleutherAI/pythia-2.8b'),
    (_DRAFT, f'{_HUB}/EleutherAI/pythia-70m'),
    (_PROMPTS, f'{_HUB}/datasets/tatsu-lab/alpaca_farm, as JSONL'),
  )
  return config
